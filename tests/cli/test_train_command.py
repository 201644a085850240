"""The commands that train: train, compare, sweep and demo."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import autogd
from autogd.cli.main import main
from autogd.training import Run
from patience import finish, wait_until

SMALL = ["--depth", "2", "--width", "16", "--epochs", "2"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_json_prints_the_summary_and_nothing_else(capsys):
    assert main(["train", *SMALL, "--json", "--out", "run"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["run"] == "run"
    assert captured.err == ""


def test_a_folder_that_holds_a_run_is_not_overwritten(capsys):
    assert main(["train", *SMALL, "--json", "--out", "run"]) == 0
    before = Run(Path("run")).metrics()
    assert main(["train", *SMALL, "--json", "--out", "run"]) == 1
    assert "run: holds a run already; continue it with --resume run" in capsys.readouterr().err
    assert Run(Path("run")).metrics() == before


def test_resume_refuses_another_setting_and_admits_another_device(capsys):
    assert main(["train", *SMALL, "--json", "--out", "run"]) == 0
    assert main(["train", "--resume", "run", "--width", "32"]) == 1
    assert "--width: run was started with 16" in capsys.readouterr().err
    assert main(["train", "--resume", "run", "--device", "cpu", "--json"]) == 0
    assert main(["train", "--resume", "nowhere"]) == 1
    assert "nowhere: no run is here" in capsys.readouterr().err


def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_resume(tmp_path, capsys):
    command = [
        sys.executable,
        "-m",
        "autogd",
        "train",
        "--epochs",
        "500",
        "--depth",
        "2",
        "--width",
        "8",
        "--out",
        "run",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(autogd.__file__).parents[1])}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        wait_until((tmp_path / "run" / "metrics.jsonl").exists, process)
        process.send_signal(signal.SIGINT)
        _, errors = finish(process)
    assert process.returncode == 130
    assert "and saved; resume with: autogd train --resume run" in errors
    assert 1 <= len(list((tmp_path / "run" / "checkpoints").glob("step-*"))) <= 2


def test_a_diverging_run_is_an_error_with_one_clear_line(capsys):
    assert main(["train", *SMALL, "--optimiser", "sgd", "--lr", "1e30", "--out", "run", "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("autogd train: step ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--optimiser", "adamn"], "'adamn' is not known; choose one of agd"),
        (["--data", "cifar11"], "'cifar11': there is no such data set"),
        (["--model", "fcm"], "'fcm': there is no such network"),
        (["--batch-size", "0"], "batch_size: expected at least 1"),
    ],
)
def test_a_bad_option_is_named_with_the_way_out(words, message, capsys):
    assert main(["train", *words, "--json"]) == 1
    assert message in capsys.readouterr().err


def test_tensorboard_gets_every_number(tmp_path):
    pytest.importorskip("tensorboard")
    assert main(["train", *SMALL, "--tensorboard", "--out", "run", "--json"]) == 0
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_without_tensorboard_the_error_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(["train", *SMALL, "--tensorboard", "--out", "run"]) == 1
    assert "autogd[tensorboard]" in capsys.readouterr().err


def test_compare_gives_mean_and_spread_over_seeds_and_does_not_train_twice(tmp_path, capsys):
    command = ["compare", *SMALL, "--optimisers", "agd", "sgd=0.1", "--seeds", "2", "--out", "both"]
    assert main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["label"] for row in rows] == ["agd", "sgd lr=0.1"]
    finals = [run.metrics()[-1]["test_accuracy"] for run in (Run(tmp_path / "both" / f"agd-seed{i}") for i in (0, 1))]
    assert rows[0]["test_accuracy_mean"] == pytest.approx(sum(finals) / 2)
    assert rows[0]["test_accuracy_spread"] == pytest.approx(abs(finals[0] - finals[1]) / 2**0.5)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "both").glob("*/*.json*")}
    assert main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "both").glob("*/*.json*")} == stamps
    assert "standard deviation over the seeds" in capsys.readouterr().out
    assert (tmp_path / "both" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert main([*command, "--epochs", "3"]) == 1
    assert "recorded with other settings (epochs)" in capsys.readouterr().err


def test_sweep_names_the_best_skips_what_is_recorded_and_counts_what_diverged(tmp_path, capsys):
    command = ["sweep", *SMALL, "--optimiser", "sgd", "--json", "--out", "grid", "--grid"]
    assert main([*command, "0.0001", "0.1"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["best"] == "sgd lr=0.1"
    assert main([*command, "0.0001", "0.1", "1e30"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["rows"][:2] == first["rows"]
    assert second["rows"][2]["diverged"] == 1
    assert second["best"] == first["best"]
    assert main(["sweep", "--optimiser", "agd"]) == 1
    assert "agd has no learning rate to sweep" in capsys.readouterr().err


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
