"""Estimate an experiment's cost before it starts: floating-point operations, counted on torch's meta device."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from autogd import models
from autogd.geometry.atom import Atom
from autogd.geometry.direction import unit_direction
from autogd.reading.catalogue import read_roles
from autogd.training.config import Config

__all__ = ["Cost", "cost"]

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

    Other optimisers' steps are cheap compared with the passes. A polar factor grows with the cube of the width,
    whatever the batch.

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
