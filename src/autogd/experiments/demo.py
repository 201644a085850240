"""A 32-layer network: AGD and StochasticAGD train it, Adam and SGD at their defaults do not."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from autogd.data import Split, Task, load
from autogd.losses import one_hot, square_loss
from autogd.models import FCN
from autogd.optim import AGD, StochasticAGD
from autogd.reading import initialise_

__all__ = ["CONTENDERS", "DEPTH", "EPOCHS", "WIDTH", "Epoch", "race"]

DEPTH, WIDTH, EPOCHS, BATCH = 32, 128, 50, 128
CONTENDERS = ("StochasticAGD", "AGD", "Adam", "SGD")


@dataclass(frozen=True)
class Epoch:
    """One epoch of one optimiser; accuracies are between 0 and 1, and `learning_rate` is η for AGD."""

    optimiser: str
    epoch: int
    train_accuracy: float
    test_accuracy: float
    objective: float
    learning_rate: float


def race(optimiser: str, epochs: int = EPOCHS, seed: int = 0) -> Iterator[Epoch]:
    """Train the network with one contender and report every epoch.

    AGD and StochasticAGD start from `initialise_`, the rivals from PyTorch's initialisation, as in the paper.

    >>> [epoch.epoch for epoch in race("AGD", epochs=1)]
    [1]
    """
    torch.manual_seed(seed)
    task = load("digits")
    model = FCN(DEPTH, WIDTH, d_in=64, d_out=task.classes)
    stepper = _contender(optimiser, model)
    for epoch in range(1, epochs + 1):
        total = torch.zeros(())
        for indices in torch.randperm(len(task.train)).split(BATCH):
            inputs, labels = task.train.batch(indices)
            stepper.zero_grad()
            loss = square_loss(model(task.prepare(inputs)), one_hot(labels, task.classes))
            loss.backward()
            stepper.step()
            total += loss.detach() * len(indices)
        rate = stepper.learning_rate if isinstance(stepper, AGD) else stepper.param_groups[0]["lr"]
        with stepper.averaged() if isinstance(stepper, AGD) else nullcontext():
            train, test = _accuracy(model, task, task.train), _accuracy(model, task, task.test)
        yield Epoch(optimiser, epoch, train, test, float(total) / len(task.train), float(rate))


def _contender(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "StochasticAGD":
        return StochasticAGD(initialise_(model))
    if name == "AGD":
        return AGD(initialise_(model))
    if name == "Adam":
        return torch.optim.Adam(model.parameters(), lr=1e-3)
    if name == "SGD":
        return torch.optim.SGD(model.parameters(), lr=0.1)
    raise ValueError(f"{name}: not known; choose from {', '.join(CONTENDERS)}")


@torch.no_grad()
def _accuracy(model: nn.Module, task: Task, split: Split) -> float:
    inputs, labels = split.batch(torch.arange(len(split)))
    output: Tensor = model(task.prepare(inputs))
    return float((output.argmax(1) == labels).float().mean())
