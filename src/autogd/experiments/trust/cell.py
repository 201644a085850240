"""What all cells share: runs and outcomes, how a network is initialised, and how it takes a step."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from autogd import baselines
from autogd.experiments.quality.race import take_step
from autogd.reading.initialise import initialise_
from autogd.training import seeds

__all__ = ["Cell", "Outcome", "Run", "Score", "Setting", "Start", "descend", "started"]

Start = Literal["torch", "dimensional"]


@dataclass(frozen=True)
class Run:
    """One optimiser at one setting and seed on one cell."""

    cell: str
    optimiser: str
    lr: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Setting:
    """The optimiser, rate and seed that a cell trains with."""

    optimiser: str
    lr: float | None = None
    seed: int = 0
    data_dir: str | None = None

    def build(self, model: nn.Module) -> baselines.Optimiser:
        """The optimiser for one network."""
        return baselines.build(self.optimiser, model, self.lr)


@dataclass(frozen=True)
class Score:
    """The score of a run.

    Args:
        loss: on held-out samples, lower is better; infinite if the run was lost.
        logit: the largest absolute held-out output; None if outputs are not logits.
    """

    loss: float
    logit: float | None = None


@dataclass(frozen=True)
class Outcome:
    """A run's score, its budget and its processor seconds."""

    run: Run
    steps: int
    loss: float
    logit: float | None
    seconds: float


@dataclass(frozen=True)
class Cell:
    """A small problem with one difficulty.

    Args:
        name: the cell's name.
        family: the kind of difficulty.
        content: a description in one line.
        steps: the budget.
        train: trains and evaluates; raises FloatingPointError if the training loss is not finite.
        twin: the name of the same cell without the disturbance.
    """

    name: str
    family: str
    content: str
    steps: int
    train: Callable[[Setting], Score]
    twin: str | None = None


def started(
    make: Callable[[], nn.Module], setting: Setting, place: str, start: Start | None = None, size: float = 1.0
) -> nn.Module:
    """An initialised network.

    Args:
        place: a name; equal seeds and places give equal weights.
        start: the initialisation; by default the one that `baselines` has for the optimiser.
        size: multiplies all parameters.

    >>> model = started(lambda: nn.Linear(4, 4, bias=False), Setting("adam"), "here", "dimensional", size=10.0)
    >>> bool(torch.linalg.matrix_norm(model.weight, 2) > 9.9)
    True
    """
    seeds.plant(torch.device("cpu"), setting.seed, "trust", place, "start")
    model = make()
    if (start or baselines.entry(setting.optimiser).start) == "dimensional":
        initialise_(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(size)
    return model


def descend(model: nn.Module, optimiser: baselines.Optimiser, loss: Callable[[], Tensor]) -> None:
    """Take one step; raise if the loss is not finite.

    >>> model = nn.Linear(1, 1)
    >>> descend(model, torch.optim.SGD(model.parameters()), lambda: model(torch.ones(1, 1)).sum() * torch.inf)
    Traceback (most recent call last):
    FloatingPointError: the training loss is not finite
    """
    if not math.isfinite(take_step(model, optimiser, loss)):
        raise FloatingPointError("the training loss is not finite")
