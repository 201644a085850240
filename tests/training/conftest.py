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
