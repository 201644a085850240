"""Momentum, and Nesterov's view of it: a tensor by pieces, without copies of the whole."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autogd.geometry.norms import accumulation_dtype
from autogd.optim.bundles import PIECES, ROOM

__all__ = ["look_ahead"]


def look_ahead(momentum: Tensor, grad: Tensor, factor: Tensor, take: float | Tensor) -> Tensor:
    """Update the momentum of stacked tensors, and give Nesterov's view of it: a step further along the same gradient.

    >>> momentum = torch.zeros(1, 2)
    >>> look_ahead(momentum, torch.ones(1, 2), torch.tensor(1.0), take=0.5), momentum
    (tensor([[0.7500, 0.7500]]), tensor([[0.5000, 0.5000]]))
    """
    dtype = accumulation_dtype(grad.dtype)
    ahead = torch.empty_like(grad, dtype=dtype)
    for some, kept, slope in _stretches(ahead, momentum, grad):
        fresh = slope.to(dtype) * factor
        # two types in one operation would be far slower
        some.copy_(kept).lerp_(fresh, take)
        kept.copy_(some)
        some.lerp_(fresh, take)
    return ahead


def _stretches(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Some rows of all of them at a time, which a processor's cache holds."""
    first = tensors[0]
    dim = min(1, first.dim() - 1)  # the first counts the tensors that are stacked
    rows = max(1, first.shape[dim] * max(ROOM, first.numel() // PIECES) // max(1, first.numel()))
    return zip(*(tensor.split(rows, dim) for tensor in tensors), strict=True)
