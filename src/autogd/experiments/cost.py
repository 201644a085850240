"""The cost of experiments in core-hours: planned before a run starts, measured while it runs."""

import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from autogd import models
from autogd.geometry.atom import Atom
from autogd.geometry.direction import unit_direction
from autogd.reading.catalogue import read_roles
from autogd.training import Config, Run, Watch
from autogd.training.records import write_whole

__all__ = ["Cost", "Effort", "Meter", "cost", "effort", "left", "spent"]

# shape of a sample, classes, samples for training and for testing
SETS = {
    "digits": ((1, 8, 8), 10, 1437, 360),
    "cifar10": ((3, 32, 32), 10, 50_000, 10_000),
    "cifar100": ((3, 32, 32), 100, 50_000, 10_000),
    "imagenet": ((3, 224, 224), 1000, 1_281_167, 50_000),
}
CORE_RATE = 5.5e10  # operations a second of one core with AVX2 in float32, as measured
CORE_STEP = 2.5e-3  # fixed seconds of a core per step: batch and update
RATE = 1e13  # operations a second of a data-centre GPU in float32, a low estimate
STEP = 5e-3  # fixed seconds per step
WRITE_EVERY = 60.0  # processor seconds between two writes of a meter; a killed run loses at most these


@dataclass(frozen=True)
class Cost:
    """Operations, steps, and the hours that they take on one GPU or one core."""

    operations: float
    steps: int

    @property
    def gpu_hours(self) -> float:
        """Assumes ten trillion operations a second and five milliseconds a step."""
        return (self.operations / RATE + self.steps * STEP) / 3600

    @property
    def core_hours(self) -> float:
        """On one core of a CPU; the rates were measured on an AMD EPYC with two cores.

        >>> round(cost([Config(data="cifar10", depth=8, width=256, epochs=100, optimiser="agd")]).core_hours, 2)
        0.22
        """
        return (self.operations / CORE_RATE + self.steps * CORE_STEP) / 3600

    def __str__(self) -> str:
        return (
            f"{self.operations:.1e} operations in {self.steps:,} steps: about {self.gpu_hours:,.1f} GPU-hours, "
            f"at {RATE / 1e12:.0f} Tflop/s and {1000 * STEP:.0f} ms a step"
        )


def cost(configs: Iterable[Config]) -> Cost:
    """The total cost of some runs: forward and backward passes, and the polar factors of StochasticAGD.

    The steps of other optimisers are cheap compared with the passes. The cost of a polar factor grows with the cube of
    the width, and does not depend on the batch size.

    >>> cost([Config(depth=2, width=10, epochs=1, batch_size=1437)]).steps
    1
    """
    operations, steps = 0.0, 0
    for config in configs:
        _, _, train, test = SETS[config.data]
        if config.limit:
            train, test = min(train, config.limit), min(test, config.limit)
        network = (config.data, config.model or "fcn", config.depth, config.width)
        count = config.epochs * math.ceil(train / config.batch_size)
        # a backward pass costs two forward passes
        operations += _forward(*network) * config.epochs * (3 * train + test)
        if config.optimiser == "agd-stochastic":
            operations += _polar(*network) * count
        steps += count
    return Cost(operations, steps)


@cache
def _forward(data: str, model: str, depth: int | None, width: int | None) -> int:
    """Operations of a sample's forward pass."""
    shape, classes, _, _ = SETS[data]
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as passes:
        models.build(model, shape, classes, depth=depth, width=width)(torch.zeros(2, *shape))
    return passes.get_total_flops() // 2


@cache
def _polar(data: str, model: str, depth: int | None, width: int | None) -> int:
    """Operations of the polar factors of all weights."""
    shape, classes, _, _ = SETS[data]
    with torch.device("meta"):
        roles = read_roles(models.build(model, shape, classes, depth=depth, width=width))
    return sum(_direction(role.parameter.shape, role.atom) for role in roles)


@cache
def _direction(shape: torch.Size, atom: Atom) -> int:
    """Operations of one weight's polar factors; cached, since most layers have the same shape."""
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as polar:
        unit_direction(torch.zeros(shape), atom, "spectral")
    return polar.get_total_flops()


class Meter(Watch):
    """Counts the processor seconds of a run, and continues the count if the run is resumed.

    >>> import tempfile
    >>> from autogd.training import Config, train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run.create(Config(depth=2, width=8, epochs=1), Path(folder) / "run")
    ...     _ = train(run, [Meter()])
    ...     sorted(spent(run))
    ['planned_core_hours', 'spent_core_hours']
    """

    def start(self, run: Run, step: int, steps: int) -> None:
        """Read what was planned and spent so far."""
        self.run, self.started, self.written = run, time.process_time(), 0.0
        before = spent(run)
        self.before = before.get("spent_core_hours", 0.0)
        self.planned = before.get("planned_core_hours", cost([run.config()]).core_hours)

    def epoch(self, record: dict[str, Any]) -> None:
        """Write at most once a minute of processor time."""
        if time.process_time() - self.started - self.written > WRITE_EVERY:
            self._write()

    def end(self) -> None:
        """Write the core-hours so far."""
        self._write()

    def _write(self) -> None:
        self.written = time.process_time() - self.started
        found = {"planned_core_hours": self.planned, "spent_core_hours": self.before + self.written / 3600}
        rounded = {name: float(f"{hours:.3g}") for name, hours in found.items()}
        write_whole(_place(self.run), json.dumps(rounded) + "\n")


def spent(run: Run) -> dict[str, float]:
    """Planned and spent core-hours of a run; empty if they were not counted.

    >>> spent(Run(Path("nowhere")))
    {}
    """
    place = _place(run)
    return json.loads(place.read_text()) if place.is_file() else {}


def _place(run: Run) -> Path:
    return run.path / "cost.json"


@dataclass(frozen=True)
class Effort:
    """The runs of a figure, and their core-hours.

    Args:
        runs: number of runs.
        ended: number of runs that have ended.
        planned: core-hours planned for all runs.
        planned_of_ended: core-hours planned for the ended runs.
        spent: core-hours spent so far.
    """

    runs: int
    ended: int
    planned: float
    planned_of_ended: float
    spent: float


def effort(figure: str, trials: Mapping[str, Config], folder: Path) -> Effort:
    """The effort of a figure; a run that belongs to another figure is not counted.

    >>> effort("net", {"net/small": Config(epochs=1), "other/small": Config()}, Path("nowhere")).runs
    1
    """
    own = {name: config for name, config in trials.items() if name.startswith(f"{figure}/")}
    ended = [name for name in own if Run(folder / name).summary() is not None]
    return Effort(
        runs=len(own),
        ended=len(ended),
        planned=cost(own.values()).core_hours,
        planned_of_ended=cost(own[name] for name in ended).core_hours,
        spent=sum(spent(Run(folder / name)).get("spent_core_hours", 0.0) for name in own),
    )


def left(config: Config, run: Run) -> float:
    """Core-hours that a run still needs, for the epochs that are not recorded.

    >>> left(Config(), Run(Path("nowhere"))) == cost([Config()]).core_hours
    True
    """
    return cost([config]).core_hours * (1 - len(run.metrics()) / config.epochs)
