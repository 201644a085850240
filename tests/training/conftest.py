import pytest

from autogd.training import Config, Run, Watch, train


class Crash(Watch):
    """Ends the process's training at a step, as a power cut would: nothing is saved on the way out."""

    def __init__(self, step):
        self.at = step

    def step(self, step):
        if step == self.at:
            raise InterruptedError("crash")


@pytest.fixture
def small():
    """A run of 12 steps, 4 an epoch, that saves after every step."""

    def config(**changes):
        settings = {"depth": 2, "width": 8, "epochs": 3, "batch_size": 320, "checkpoint_seconds": 0.0}
        return Config(**{**settings, **changes})

    return config


@pytest.fixture
def trained(tmp_path):
    """Train a config in a folder of its own, and crash and resume it on the way if asked to."""
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
