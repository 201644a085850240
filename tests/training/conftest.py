"""Small runs that crash and are resumed; checkpoints that are changed as an attacker would."""

import hashlib
import json

import pytest

from autogd.training import Config, Run, Watch, train


class Crash(Watch):
    """Ends training at a step, like a power cut: nothing is saved."""

    def __init__(self, step):
        self.at = step

    def step(self, step):
        if step == self.at:
            raise InterruptedError("crash")


@pytest.fixture
def small():
    """A run of 12 steps, 4 per epoch, that saves after every step."""

    def config(**changes):
        settings = {"depth": 2, "width": 8, "epochs": 3, "batch_size": 320, "checkpoint_seconds": 0.0}
        return Config(**{**settings, **changes})

    return config


@pytest.fixture
def trained(tmp_path):
    """Train a config in its own folder; crash and resume it on request."""
    count = 0

    def go(config, crash_at=()):
        nonlocal count
        count += 1
        run = Run.create(config, tmp_path / f"run-{count}")
        for step in crash_at:
            with pytest.raises(InterruptedError):
                train(run, [Crash(step)])
        train(run)
        return run

    return go


def reseal(checkpoint, change=lambda body: None):
    """Update the checksums of the files, then change the manifest, then update its own checksum."""
    path = checkpoint / "manifest.json"
    body = json.loads(path.read_text())
    del body["sha256"]
    for name, listed in body["files"].items():
        content = (checkpoint / name).read_bytes()
        listed.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    change(body)
    own = hashlib.sha256((json.dumps(body) + "\n").encode()).hexdigest()
    path.write_text(json.dumps({**body, "sha256": own}) + "\n")


def contents(folder):
    """Every file below a folder, and its content."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
