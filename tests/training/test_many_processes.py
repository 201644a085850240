import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import autogd
from autogd.training import Config, Run, train
from autogd.training.distributed import Place
from patience import finish, wait_until
from training.conftest import Crash
from training.forking import launch
from training.ranks import measure

pytestmark = pytest.mark.distributed
STEPS = 12
RANKS = Path(__file__).with_name("ranks.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(autogd.__file__).parents[1])}
TEXT = "the quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 30


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Networks with every atom, in float64, by name."""
    text = tmp_path_factory.mktemp("text") / "fox.txt"
    text.write_text(TEXT)
    settings = {"precision": "float64", "batch_size": 32, "optimiser": "agd"}
    return {
        "fcn": {**settings, "depth": 3, "width": 10, "bias": True},
        "resnet18": {**settings, "model": "resnet18", "width": 4, "batch_size": 16, "bias": True, "affine": True},
        "gpt": {
            **settings, "data": "text", "data_dir": str(text), "context": 8, "model": "gpt", "depth": 2, "width": 12,
            "bias": True, "affine": True,
        },
        "adam": {**settings, "depth": 3, "width": 10, "optimiser": "adam", "accumulate": 2},
    }  # fmt: skip


@pytest.fixture(scope="module")
def alone(cases):
    return {name: measure(Config(**settings), Place(), STEPS) for name, settings in cases.items()}


def together(cases, processes, folder, shards):
    """The results of the cases on several processes, for DDP and for FSDP2."""
    arguments = [
        f"{name}-{shard}={json.dumps({**settings, 'shard': shard})}"
        for name, settings in cases.items()
        for shard in shards
    ]
    for status, errors in launch(processes, RANKS, "measure", folder, STEPS, *arguments):
        assert status == 0, errors
    return [{name: torch.load(folder / f"{name}-{shard}.pt", weights_only=True) for name in cases} for shard in shards]


def assert_same(found, expected):
    for name, case in expected.items():
        for what, value in case.items():
            torch.testing.assert_close(
                found[name][what],
                value,
                rtol=1e-6,
                atol=1e-12,
                equal_nan=True,
                msg=lambda m, w=(name, what): f"{w}: {m}",
            )


def test_two_processes_give_the_learning_rates_and_weights_of_one(cases, alone, tmp_path):
    for found in together(cases, 2, tmp_path, [False, True]):
        assert_same(found, alone)


def test_four_processes_give_the_learning_rates_and_weights_of_one(cases, alone, tmp_path):
    (found,) = together({"gpt": cases["gpt"]}, 4, tmp_path, [True])  # the case with the most atoms
    assert_same(found, {"gpt": alone["gpt"]})


def test_a_checkpoint_of_four_processes_resumes_on_one_and_on_two(tmp_path):
    settings = Config(
        depth=3, width=10, epochs=2, batch_size=320, precision="float64", optimiser="adam", shard=True,
        checkpoint_seconds=0.0,
    )  # fmt: skip
    whole = Run.create(settings, tmp_path / "whole")
    train(whole)
    four = Run.create(settings, tmp_path / "four")
    # here the processes agree only at the end of an epoch, so crash in the second one
    statuses = [status for status, _ in launch(4, RANKS, "train", four.path, 6, 0)]
    assert statuses == [7, 7, 7, 7]
    assert [path.name for path in four.checkpoints.iterdir()] == ["step-000000004"]
    two = Run(shutil.copytree(four.path, tmp_path / "two"))
    train(four)
    for status, errors in launch(2, RANKS, "train", two.path, 0, 0):
        assert status == 0, errors
    expected = load_file(whole.path / "weights.safetensors")
    for run in (four, two):
        found = load_file(run.path / "weights.safetensors")
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-12)
        for line, other in zip(run.metrics(), whole.metrics(), strict=True):
            assert line["objective"] == pytest.approx(other["objective"], rel=1e-6)
            assert line["test_accuracy"] == pytest.approx(other["test_accuracy"])


def test_a_damaged_checkpoint_is_refused_by_every_process(tmp_path):
    run = Run.create(Config(depth=2, width=8, epochs=2, batch_size=320), tmp_path / "run")
    with pytest.raises(InterruptedError):
        train(run, [Crash(6)])
    file = run.checkpoints / "step-000000004" / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    for status, errors in launch(2, RANKS, "train", run.path, 0, 0):
        assert status == 1
        assert f"Damaged: {file.parent}: __0_0.distcp is damaged" in errors


def test_a_process_that_dies_ends_the_others_with_a_clear_message(tmp_path):
    run = Run.create(Config(depth=2, width=8, epochs=50), tmp_path / "run")
    (survivor, errors), (killed, _) = launch(2, RANKS, "train", run.path, 0, 5)
    assert killed == -signal.SIGKILL
    assert survivor == 1
    assert "ConnectionError: another process of this run died or was stopped" in errors


@pytest.mark.slow
def test_torchrun_restarts_a_killed_process_from_the_last_checkpoint(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", "--monitor-interval", "0.1", "-m", "autogd", "train", "--json"]
    command += ["--out", "run", "--depth", "2", "--width", "8", "--epochs", "12", "--checkpoint-seconds", "0"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRONMENT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        wait_until(lambda: list(tmp_path.glob("run/checkpoints/step-*")), process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)
        output, errors = finish(process)
    assert process.returncode == 0, errors
    assert json.loads(output)["epochs"] == 12
    assert [line["epoch"] for line in Run(tmp_path / "run").metrics()] == list(range(1, 13))
