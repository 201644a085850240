"""The command line: help with an example for every command, one clear line for an error."""

import json
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
    assert "calling it without arguments failed" in capsys.readouterr().err
    assert main(["explain", "torch.nn:PReLU", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["atom"] == "gain"
    assert main(["explain", "torch.nn:PReLU"]) == 0
    assert "PReLU" in capsys.readouterr().out
    for place, message in (("torch.nn", "expected package.module:factory"), ("no_such_package:f", "no_such_package")):
        assert main(["explain", place]) == 1
        assert message in capsys.readouterr().err


def test_python_dash_m_autogd_is_the_command():
    out = subprocess.run([sys.executable, "-m", "autogd", "--version"], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("autogd ")
