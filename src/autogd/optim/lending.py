"""What optimisers have in common that keep an average of the weights and lend it to the model."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from autogd.geometry.norms import accumulation_dtype
from autogd.optim.agd import AGD
from autogd.optim.averaging import exchanged
from autogd.optim.plan import Plan

__all__ = ["Lending"]


class Lending(AGD):
    """An AGD whose state has an average of every parameter."""

    def __init__(self, params: Any, **settings: Any) -> None:
        self._lent = False  # whether the model holds the averaged weights
        self._modules: list[weakref.ref[nn.Module]] = []
        self._ready: Plan | None = None  # the plan for whose tensors there is room in the state
        super().__init__(params, **settings)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, or a whole Module as `params`; L and G then run over all groups."""
        if isinstance(param_group["params"], nn.Module):
            self._modules.append(weakref.ref(param_group["params"]))
        super().add_param_group(param_group)

    def _alive(self) -> list[nn.Module]:
        return [module for reference in self._modules if (module := reference()) is not None]

    def _refuse_while_lent(self) -> None:
        if self._lent:
            raise RuntimeError("step() inside averaged(): the model holds its averaged weights; leave the block first")

    def _hold(self, parameter: Tensor, types: dict[str, torch.dtype]) -> dict[str, Tensor]:
        """Room in the state, under these names and in these types; an average begins with what there is."""
        state = self.state[parameter]
        for name, dtype in (types | {"average": accumulation_dtype(parameter.dtype)}).items():
            if name not in state:
                held = torch.zeros_like(parameter, dtype=dtype, memory_format=torch.preserve_format)
                state[name] = held.copy_(parameter) if name == "average" else held
            elif state[name].dtype != dtype or state[name].device != parameter.device:
                state[name] = state[name].to(parameter.device, dtype)  # loaded, or the model was moved
        return state

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the model holds the weights to evaluate and to ship; on the way out, exactly what it held before.

        Under FSDP2 give the optimiser the Module: weights that a forward pass has left gathered are of before then.
        """
        if self._lent:
            raise RuntimeError("averaged() inside averaged(): the model holds its averaged weights already")
        averages = {p: state["average"] for p, state in self.state.items() if "average" in state}
        self._lent = True
        try:
            with exchanged(averages, self._alive()):
                yield
        finally:
            self._lent = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._lent = False
        self._ready = None
        self.__dict__.setdefault("_modules", [])  # a copy, or one read from a file, holds parameters alone
