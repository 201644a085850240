"""What an experiment costs, before it starts: floating-point operations, counted on a network that has no memory."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from autogd import models
from autogd.geometry.directions import unit_direction
from autogd.geometry.roles import read_roles
from autogd.training.config import Config

__all__ = ["Cost", "cost"]

# shape of a sample, classes, samples for training and for testing
SETS = {
    "digits": ((1, 8, 8), 10, 1437, 360),
    "cifar10": ((3, 32, 32), 10, 50_000, 10_000),
    "cifar100": ((3, 32, 32), 100, 50_000, 10_000),
    "imagenet": ((3, 224, 224), 1000, 1_281_167, 50_000),
}
RATE = 1e13  # operations a second that a data-centre GPU sustains in float32, taken low
STEP = 5e-3  # seconds that a step takes however small it is


@dataclass(frozen=True)
class Cost:
    """Operations, steps, and the hours of one GPU that they come to."""

    operations: float
    steps: int

    @property
    def gpu_hours(self) -> float:
        """At ten trillion operations a second and five milliseconds a step."""
        return (self.operations / RATE + self.steps * STEP) / 3600

    def __str__(self) -> str:
        return (
            f"{self.operations:.1e} operations in {self.steps:,} steps: about {self.gpu_hours:,.1f} GPU-hours, "
            f"at {RATE / 1e12:.0f} Tflop/s and {1000 * STEP:.0f} ms a step"
        )


def cost(configs: Iterable[Config]) -> Cost:
    """The cost of all of some runs together: forward and backward passes, and the polar factors of StochasticAGD.

    Every other step is small beside the passes; a polar factor grows with the cube of the width, whatever the batch.

    >>> cost([Config(depth=2, width=10, epochs=1, batch_size=1437)]).steps
    1
    """
    operations, steps = 0.0, 0
    forward: dict[tuple[object, ...], tuple[int, int]] = {}
    for config in configs:
        shape, classes, train, test = SETS[config.data]
        if config.limit:
            train, test = min(train, config.limit), min(test, config.limit)
        key = (config.data, config.model, config.depth, config.width)
        if key not in forward:
            forward[key] = _forward(config, shape, classes)
        passes, polar = forward[key]
        count = config.epochs * math.ceil(train / config.batch_size)
        # a backward pass takes twice the forward's
        operations += passes * config.epochs * (3 * train + test)
        operations += polar * count * (config.optimiser == "agd-stochastic")
        steps += count
    return Cost(operations, steps)


def _forward(config: Config, shape: tuple[int, ...], classes: int) -> tuple[int, int]:
    """Operations of a sample's forward pass, and of the polar factors of all weights."""
    with torch.device("meta"), torch.no_grad():
        model = models.build(config.model or "fcn", shape, classes, depth=config.depth, width=config.width)
        with FlopCounterMode(display=False) as passes:
            model(torch.zeros(2, *shape))
        with FlopCounterMode(display=False) as polar:
            for role in read_roles(model):
                unit_direction(role.parameter, role.atom, "spectral")
    return passes.get_total_flops() // 2, polar.get_total_flops()
