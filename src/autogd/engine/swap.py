"""The weights to evaluate and to ship, swapped in and out of the model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from autogd.engine.distributed.dtensor import local

__all__ = ["put", "swapped"]


@contextmanager
def swapped(others: Mapping[Tensor, Tensor], modules: Sequence[nn.Module] = ()) -> Iterator[None]:
    """Inside, every parameter holds the other tensor's numbers; on the way out, exactly what it held before.

    Args:
        others: for each parameter, what it is to hold.
        modules: those that FSDP2 may have gathered the parameters of.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> with swapped({weight: torch.ones(2)}):
    ...     print(weight.data)
    tensor([1., 1.])
    >>> weight.data
    tensor([0., 0.])
    """
    kept = {parameter: local(parameter).detach().clone() for parameter in others}
    try:
        put(others, modules)
        yield
    finally:
        put(kept, modules)


@torch.no_grad()
def put(values: Mapping[Tensor, Tensor], modules: Sequence[nn.Module] = ()) -> None:
    """Have every parameter hold the other tensor's numbers.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> put({weight: torch.ones(2)})
    >>> weight.data
    tensor([1., 1.])
    """
    _reshard(modules)
    for parameter, value in values.items():
        local(parameter).copy_(local(value))
    _reshard(modules)


def _reshard(modules: Sequence[nn.Module]) -> None:
    """Free what FSDP2 has gathered: it would be used again, and holds what the weights were before."""
    for module in modules:
        for each in module.modules():
            if hasattr(each, "set_reshard_after_forward"):  # an FSDPModule, told without importing its package
                each.reshard()  # type: ignore[operator]
