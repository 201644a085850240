"""The demo shows what it says."""

import json

import pytest

from autogd.cli.main import main


@pytest.mark.slow
def test_agd_trains_what_adam_and_sgd_do_not(tmp_path, capsys):
    out = tmp_path / "demo.png"
    assert main(["demo", "--epochs", "12", "--out", str(out), "--json"]) == 0
    last = {epoch["optimiser"]: epoch for epoch in json.loads(capsys.readouterr().out)["epochs"]}
    assert last["AGD"]["test_accuracy"] > 0.6
    assert last["Adam"]["test_accuracy"] < 0.3
    assert last["SGD"]["test_accuracy"] < 0.3
    assert out.stat().st_size > 10_000


def test_the_demo_refuses_no_epochs(capsys):
    assert main(["demo", "--epochs", "0"]) == 1
    assert "epochs: at least one is needed" in capsys.readouterr().err
