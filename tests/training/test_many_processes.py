import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from parity import measure

from autogd.training import Config
from autogd.training.distributed import Place

pytestmark = pytest.mark.distributed
STEPS = 20
TEXT = "the quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 30


def launch(script, processes, *arguments, timeout=120, environment=None):
    """Start a script as torchrun would, in so many processes, and wait for all; the outputs in rank order."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []
    for rank in range(processes):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1"}
        place |= {"MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test", "OMP_NUM_THREADS": 1, **(environment or {})}
        settings = {**os.environ, **{name: str(value) for name, value in place.items()}}
        command = [sys.executable, *map(str, script), *map(str, arguments)]
        started.append(
            subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    try:
        outputs = [process.communicate(timeout=timeout) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [(process.returncode, *output) for process, output in zip(started, outputs, strict=True)]


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


def together(cases, processes, folder, **changes):
    arguments = [f"{name}={json.dumps({**settings, **changes})}" for name, settings in cases.items()]
    for status, _, errors in launch([Path(__file__).with_name("parity.py")], processes, folder, STEPS, *arguments):
        assert status == 0, errors
    return {name: torch.load(folder / f"{name}.pt", weights_only=True) for name in cases}


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


@pytest.mark.parametrize(
    ("processes", "shard"), [(2, False), (2, True), (4, True)], ids=["2 DDP", "2 FSDP2", "4 FSDP2"]
)
def test_many_processes_give_the_learning_rates_and_weights_of_one(processes, shard, cases, alone, tmp_path):
    assert_same(together(cases, processes, tmp_path, shard=shard), alone)
