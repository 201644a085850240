"""How far AGD and StochasticAGD lower the loss of every architecture in the zoo, beside Adam at three rates."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from autogd.experiments.zoo import specimen
from autogd.optim import AGD, StochasticAGD
from autogd.reading import initialise_

__all__ = ["RATES", "RUNS", "Drop", "descend", "drops"]

RATES = (1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Drop:
    """How far a loss fell after 30 steps and after all steps, and how many of the first 30 steps lowered it."""

    architecture: str
    optimiser: str
    start: float
    after_30: float
    after_all: float
    lowered: int


def descend(loss: Callable[[], Tensor], optimiser: torch.optim.Optimizer, steps: int) -> list[float]:
    """The loss before every step on one fixed batch, and after the last.

    >>> p = nn.Parameter(torch.ones(()))
    >>> descend(lambda: p * p, torch.optim.SGD([p], lr=0.25), 1)
    [1.0, 0.25]
    """
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss()
        value.backward()
        losses.append(float(value.detach()))
        optimiser.step()
    with torch.no_grad():
        return [*losses, float(loss())]


def _adam(rate: float, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), rate)


def _adam_from_ours(rate: float, model: nn.Module) -> torch.optim.Optimizer:
    return _adam(rate, initialise_(model))


RUNS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "AGD": AGD,
    "AGD, initialise_": lambda model: AGD(initialise_(model)),
    "StochasticAGD": StochasticAGD,
    "StochasticAGD, initialise_": lambda model: StochasticAGD(initialise_(model)),
    **{f"Adam {rate:g}": partial(_adam, rate) for rate in RATES},
    **{f"Adam {rate:g}, initialise_": partial(_adam_from_ours, rate) for rate in RATES},
}
"""The runs on every architecture, from its own weights and from `initialise_`."""


def drops(architecture: str, steps: int = 30, seed: int = 0) -> Iterator[Drop]:
    """All runs on one architecture; the loss is that of the weights in training, not of the average."""
    for name, make in RUNS.items():
        subject = specimen(architecture, seed)
        optimiser = make(subject.model)
        losses = descend(subject.loss, optimiser, steps)
        lowered = sum(b < a for a, b in pairwise(losses[:31]))
        yield Drop(architecture, name, losses[0], losses[0] - losses[min(30, steps)], losses[0] - losses[-1], lowered)
