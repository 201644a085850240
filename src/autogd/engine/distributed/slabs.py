"""Slabs: a matrix that is too large for one owner stays cut along its longer side, and only its gram is summed.

The polar factor of a wide X is a polynomial of the gram XXᵀ times X. The gram is the sum of those of the slabs, columns
of X that different ranks hold. So every rank multiplies its own slab, and a square of the shorter side is all that
travels. Every rank evaluates the polynomial itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autogd.geometry import polar

__all__ = ["Slabs"]


@dataclass(frozen=True)
class Slabs:
    """The ranks over which a matrix is cut along its longer side.

    Args:
        groups: their process groups, one a mesh axis that cuts it.
        tall: whether the longer side is the first.
        orthogonalise: the polar factor.
    """

    groups: tuple[Any, ...]
    tall: bool
    orthogonalise: Callable[..., Tensor] | None = None

    def direction(self, piece: Tensor) -> Tensor:
        """This rank's slab of the polar factor, given its slab of the matrix."""
        x = piece.mT if self.tall else piece
        columns = x.shape[1]
        # a rank that has nothing sums with the others all the same
        x = (x if columns else x.new_zeros(x.shape[0], 1)).unsqueeze(0)
        x = (self.orthogonalise or polar.orthogonalise)(x, elsewhere=self)[0, :, :columns]
        return x.mT if self.tall else x

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the slabs, taken in float32 at least."""
        total = values.to(torch.promote_types(values.dtype, torch.float32), copy=True)
        for group in self.groups:
            dist.all_reduce(total, group=group)
        return total.to(values.dtype)

    def norm(self, norms: Tensor, order: float) -> Tensor:
        """The norm of the whole matrix, given that of the slab here; `order` is 2 or infinity."""
        if order == 2:
            return self.sum(norms.square()).sqrt()
        largest = norms.clone()
        for group in self.groups:
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        return largest
