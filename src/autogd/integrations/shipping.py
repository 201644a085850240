"""Swap the averaged weights in, for a block or until training resumes.

`optimiser.averaged()` keeps the averaged weights in the model for one block. Frameworks have hooks instead of blocks,
and leave a trained model behind. All integrations use these functions for that.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["averaged", "bare", "rates_taken", "recall", "ship"]


def bare(optimiser: Any) -> Any:
    """The optimiser inside the wrappers of Accelerate and Lightning.

    >>> from autogd import AGD
    >>> optimiser = AGD(torch.nn.Linear(2, 1))
    >>> bare(optimiser) is optimiser
    True
    """
    while hasattr(optimiser, "optimizer"):
        optimiser = optimiser.optimizer
    return optimiser


@contextmanager
def averaged(optimisers: Iterable[Any]) -> Iterator[None]:
    """Inside the block the models hold their averaged weights; optimisers without an average are skipped.

    >>> from autogd import AGD
    >>> with averaged([AGD(torch.nn.Linear(2, 1))]):
    ...     pass
    """
    with ExitStack() as stack:
        for optimiser in map(bare, optimisers):
            if hasattr(optimiser, "averaged"):
                stack.enter_context(optimiser.averaged())
        yield


@torch.no_grad()
def ship(optimisers: Iterable[Any]) -> list[Tensor]:
    """Swap the averaged weights in until `recall`; returns the weights in training, which `recall` takes.

    >>> from autogd import AGD
    >>> optimiser = AGD(torch.nn.Linear(2, 1))
    >>> recall([optimiser], ship([optimiser]))
    """
    optimisers = list(optimisers)
    parameters = _parameters(optimisers)
    with averaged(optimisers):
        shipped = [parameter.detach().clone() for parameter in parameters]
    for parameter, weight in zip(parameters, shipped, strict=True):
        training = parameter.detach().clone()
        parameter.copy_(weight)
        weight.copy_(training)
    return shipped


@torch.no_grad()
def recall(optimisers: Iterable[Any], weights: list[Tensor]) -> None:
    """Swap the weights that `ship` returned back into the models.

    >>> from autogd import AGD
    >>> optimiser = AGD(torch.nn.Linear(2, 1))
    >>> recall([optimiser], ship([optimiser]))
    """
    for parameter, weight in zip(_parameters(optimisers), weights, strict=True):
        parameter.copy_(weight)


def rates_taken(optimiser: Any) -> list[Tensor | float]:
    """The rate of each group's last step: η times the group's multipliers, which a scheduler may change.

    For an optimiser that derives no rate, the group's `lr`.

    >>> from autogd import AGD
    >>> model = torch.nn.Linear(2, 1)
    >>> optimiser = AGD(model, gain=0.5)
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> optimiser.step()
    >>> bool(rates_taken(optimiser)[0] == optimiser.learning_rate / 2)
    True
    """
    optimiser = bare(optimiser)
    derived = getattr(optimiser, "learning_rate", 1.0)
    return [derived * group["lr"] * group.get("gain", 1.0) for group in optimiser.param_groups]


def _parameters(optimisers: Iterable[Any]) -> list[Tensor]:
    return [p for optimiser in map(bare, optimisers) for group in optimiser.param_groups for p in group["params"]]
