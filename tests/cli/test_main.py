"""The command line: help with an example for every command, one clear line for an error, tables that fit."""

import json
import os
import sys

import pytest
from torch import nn

from autogd import explain
from autogd.cli.main import COMMANDS, main
from autogd.cli.study import final_table
from autogd.report.tables import COLUMNS
from patience import run_child


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


def test_a_factory_in_the_current_folder_is_found(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_model.py").write_text("from torch import nn\ndef make():\n    return nn.Linear(4, 2)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))])
    assert main(["explain", "my_model:make"]) == 0
    assert "1 of 2×4" in capsys.readouterr().out
    del sys.modules["my_model"]


def closed_pipe():
    """The end to write to of a pipe that nobody reads, as `| head -1` leaves it after its line."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("words", [["--help"], ["explain", "torch.nn:PReLU"]], ids=" ".join)
def test_a_reader_who_has_seen_enough_is_no_error(words, monkeypatch, capsys):
    # what is left is flushed on the way out, as it is at Python's end
    with os.fdopen(closed_pipe(), "w") as unread, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", unread)
        assert main(words) == 141
    assert capsys.readouterr().err == ""


def test_python_dash_m_autogd_is_the_command_and_ends_with_its_status():
    writing = closed_pipe()
    out = run_child([sys.executable, "-m", "autogd", "--help"], stdout=writing)
    os.close(writing)
    assert (out.returncode, out.stderr) == (141, "")


def test_bash_completes_commands_and_options(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out

    def completed(*words):
        ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _tyro_autogd; echo ${{COMPREPLY[@]}}"
        out = run_child(["bash", "-c", f"{script}\n{ask}"])
        assert out.returncode == 0, out.stderr
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


WITH_TABLES = {
    "reproduce": ["reproduce", "--list", "--scale", "laptop"],
    "trust": ["bench", "trust", "--report"],
    "quality": ["bench", "quality", "--report"],
    "long": ["bench", "quality", "--report", "--long"],
    "check": ["check", "--draws", "3"],
    "scale": ["bench", "scale", "--ranks", "1", "64"],
}


@pytest.mark.parametrize("name", WITH_TABLES)
def test_a_table_fits_and_keeps_its_words(name, capsys, monkeypatch):
    printed = {}
    for width in (80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(WITH_TABLES[name]) == 0
        lines = capsys.readouterr().out.splitlines()
        printed[width] = [line for line in lines if "Counterexample" not in line]  # prose, which the terminal wraps
    assert max(map(len, printed[80])) <= 80
    assert "…" not in "".join(printed[80])
    narrow, wide = (sorted(" ".join(printed[width]).replace("─", "").split()) for width in (80, 200))
    assert narrow == wide


def test_a_comparison_with_many_seeds_fits(capsys):
    from rich.console import Console

    row = {"label": "schedulefree-adamw lr=0.001", "runs": 3, "diverged": 1, "epochs": 20}
    for name in COLUMNS:
        row |= {f"{name}_mean": 0.98765, f"{name}_spread": 0.01234}
    Console(width=80).print(final_table([row, row]))
    out = capsys.readouterr().out
    assert "…" not in out
    assert "schedulefree-adamw lr=0.001" in out
    assert "98.77% ± 1.23" in out


def test_a_model_with_long_names_is_explained_in_80_columns():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.ModuleDict({"a_rather_long_name": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)})
    lines = str(explain(model)).splitlines()
    assert max(map(len, lines)) <= 80
    assert "a_rather_long_name.layers.1.self_attn.in_proj_weight" in lines
