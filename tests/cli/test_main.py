"""The command line: help with an example for every command, one clear line for an error."""

import json
import os
import subprocess
import sys

import pytest

from autogd.cli.main import COMMANDS, main


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_and_json(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"example: autogd {command}" in text
    assert "--json" in text


def test_the_list_of_commands_is_the_help(capsys):
    assert main(["--help"]) == 0
    listing = capsys.readouterr().out
    assert all(f"  {command}" in listing for command in COMMANDS)
    assert main([]) == 2


def test_an_unknown_command_is_named(capsys):
    assert main(["trian"]) == 2
    assert "there is no command 'trian'" in capsys.readouterr().err


def test_explain_prints_a_table_or_json(capsys):
    assert main(["explain", "torch.nn:RNNBase"]) == 1
    assert "cannot be called without arguments" in capsys.readouterr().err
    assert main(["explain", "torch.nn:PReLU", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["atom"] == "gain"
    assert main(["explain", "torch.nn:PReLU"]) == 0
    assert "gain" in capsys.readouterr().out
    for place, message in (
        ("torch.nn", "expected package.module:name or path/to/file.py:name"),
        ("no_such_package:f", "no_such_package"),
    ):
        assert main(["explain", place]) == 1
        assert message in capsys.readouterr().err


def test_python_dash_m_autogd_is_the_command():
    out = subprocess.run([sys.executable, "-m", "autogd", "--version"], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("autogd ")


def test_a_factory_in_the_current_folder_is_found(tmp_path):
    (tmp_path / "my_model.py").write_text("from torch import nn\ndef make():\n    return nn.Linear(4, 2)\n")
    command = [sys.executable, "-c", "from autogd.cli.main import main; raise SystemExit(main())"]
    out = subprocess.run([*command, "explain", "my_model:make"], cwd=tmp_path, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert "1 of 2×4" in out.stdout


@pytest.mark.parametrize("words", [["--help"], ["explain", "torch.nn:PReLU"]], ids=" ".join)
def test_a_reader_who_has_seen_enough_is_no_error(words):
    reading, writing = os.pipe()
    os.close(reading)  # as `| head -1` does after its line
    command = [sys.executable, "-m", "autogd", *words]
    out = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert out.returncode == 141
    assert out.stderr == ""


def test_bash_completes_commands_and_options(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out

    def completed(*words):
        ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _tyro_autogd; echo ${{COMPREPLY[@]}}"
        out = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
        return out.stdout.split()

    assert completed("autogd", "comp") == ["compare", "completion"]
    assert "--optimiser" in completed("autogd", "train", "--opt")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_too(shell, capsys):
    assert main(["completion", shell, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["shell"] == shell
    assert all(command in answer["script"] for command in COMMANDS)


def test_ctrl_c_while_a_command_is_loaded_is_one_line(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("autogd.cli.main.importlib.import_module", interrupted)
    assert main(["explain", "torch.nn:Identity"]) == 130
    assert capsys.readouterr().err == "autogd explain: stopped\n"


def test_a_closed_output_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["glossary"]) == 0
