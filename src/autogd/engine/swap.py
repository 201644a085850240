"""The weights to evaluate and to ship, swapped in and out of the model."""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autogd.engine.distributed.shards import local
from autogd.engine.distributed.wrappers import reshard
from autogd.engine.hooks import Reminder

__all__ = ["AFTER_EVAL", "SwapsWeights", "put"]

AFTER_EVAL = ", saved after eval()"  # marks a state that has the weights in training


class SwapsWeights(Optimizer):
    """A torch optimiser whose state may have an average of the weights, which the model can hold instead."""

    _modules: weakref.WeakSet[nn.Module]
    _reminder: Reminder
    _swapped = False  # whether the model holds the averaged weights
    _kept: dict[Tensor, Tensor] | None = None  # between eval() and train(): the weights in training
    _awaits_train = False  # a state was loaded that was saved between the two

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the model holds the weights to evaluate and to ship; on the way out, exactly what it held before.

        Without averaging these are the weights themselves. Under FSDP2 pass the Module, so that stale unsharded weights
        are freed.
        """
        self._reminder.dismiss()
        if self._kept is not None:  # after eval() the averages are in place, and stay
            yield
            return
        if self._swapped:
            raise RuntimeError("averaged() inside averaged(): the model holds its averaged weights already")
        averages = self._averages()
        kept = _copies(averages)
        self._swapped = bool(averages)
        try:
            put(averages, self._modules)
            yield
        finally:
            self._swapped = False
            put(kept, self._modules)

    def eval(self) -> None:
        """Put the averaged weights into the model, until `train()`: for loops that call `eval()` and `train()`.

        >>> from autogd import StochasticAGD
        >>> optimiser = StochasticAGD(nn.Linear(2, 1))
        >>> optimiser.eval()
        >>> optimiser.train()
        """
        self._reminder.dismiss()
        averages = self._averages()
        if averages and not self._swapped and not self._awaits_train:
            self._kept = _copies(averages)
            put(averages, self._modules)
            self._swapped = True

    def train(self) -> None:
        """Put the weights in training back, also those of a state that was saved after `eval()`."""
        if self._awaits_train:
            self._awaits_train = False
            put({p: state.pop("training") for p, state in self.state.items() if "training" in state}, self._modules)
        if self._kept is not None:
            put(self._kept, self._modules)
            self._kept, self._swapped = None, False

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs beside the weights; after `eval()`, the weights in training are in it too."""
        if self._kept is None:
            self._refuse_if_swapped("state_dict()")
            return super().state_dict()
        saved = super().state_dict()
        indices = [index for group in saved["param_groups"] for index in group["params"]]
        for index, parameter in zip(indices, self._every(), strict=True):
            if parameter in self._kept:
                saved["state"][index] = {**saved["state"][index], "training": self._kept[parameter]}
        for group in saved["param_groups"]:
            group["made_by"] += AFTER_EVAL
        return saved

    def _every(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _averages(self) -> dict[Tensor, Tensor]:
        return {p: state["average"] for p, state in self.state.items() if "average" in state}

    def _refuse_if_swapped(self, what: str) -> None:
        """Refuse to mix the averaged weights with the state of the weights in training."""
        if self._swapped or self._awaits_train:
            where, mend = "inside averaged()", "leave the block first"
            if self._kept is not None or self._awaits_train:
                where, mend = "after eval()", "call optimiser.train() first"
            raise RuntimeError(f"{what} {where}: the model holds its averaged weights; {mend}")


def _copies(parameters: Iterable[Tensor]) -> dict[Tensor, Tensor]:
    # a DTensor stays one: the copies may go into a checkpoint
    return {parameter: parameter.detach().clone() for parameter in parameters}


@torch.no_grad()
def put(values: Mapping[Tensor, Tensor], modules: Iterable[nn.Module] = ()) -> None:
    """Copy every value into its parameter.

    Args:
        values: one for each parameter.
        modules: those whose parameters FSDP2 may have all-gathered.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> put({weight: torch.ones(2)})
    >>> weight.data
    tensor([1., 1.])
    """
    reshard(modules)
    for parameter, value in values.items():
        local(parameter).copy_(local(value))
    reshard(modules)
