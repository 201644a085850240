"""The polar factor on many processes: the rational form, and matrices that stay cut."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autogd.engine.native import POLES, WHOLE
from autogd.geometry import polar
from autogd.geometry.polar import HERE, Columns

__all__ = ["Slabs", "orthogonalise"]


def orthogonalise(matrices: Tensor, elsewhere: Columns = HERE) -> Tensor:
    """The factor UVᵀ of every matrix of a batch, by the rational function of the native backend in torch's operations.

    Other backends use a polynomial. Both come within 0.14 of one, but they differ. On the CPU, ranks that own matrices
    use this form, so that many processes take the same steps as one. The tests hold the C to it. A zero matrix stays
    zero; `elsewhere` is that of `autogd.geometry.polar`.

    >>> close = orthogonalise(torch.diag(torch.tensor([4.0, 1.0])).unsqueeze(0))[0]
    >>> bool((close - torch.eye(2)).abs().max() < 0.15)
    True
    """
    tall = elsewhere is HERE and matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    tiny = torch.finfo(x.dtype).tiny
    x = x / elsewhere.norm(torch.linalg.vector_norm(x, torch.inf, dim=(-2, -1), keepdim=True), torch.inf).clamp(
        min=tiny
    )
    x = x / elsewhere.norm(torch.linalg.matrix_norm(x, keepdim=True), 2).clamp(min=tiny)
    gram = elsewhere.sum(x @ x.mT)
    total = gram @ gram
    size = torch.linalg.vector_norm(total, dim=(-2, -1), keepdim=True).sqrt_().clamp(min=torch.finfo(x.dtype).eps)
    gram.div_(size)
    total.zero_()
    total.diagonal(dim1=-2, dim2=-1).fill_(WHOLE)
    before = 0.0
    for weight, pole in POLES:
        gram.diagonal(dim1=-2, dim2=-1).add_(pole - before)
        before = pole
        factor, failed = torch.linalg.cholesky_ex(gram)
        inverse = torch.cholesky_inverse(factor)
        # if rounding leaves a matrix without a factor, keep its own direction
        total.add_(inverse.masked_fill_((failed != 0)[:, None, None], 0), alpha=weight)
    x = total.div_(size.sqrt()) @ x
    return x.mT if tall else x


@dataclass(frozen=True)
class Slabs:
    """A matrix that is too large for one owner stays cut along its longer side; only its gram is summed.

    The polar factor of a wide X is a polynomial of the gram XXᵀ times X. Each rank holds a slab, some columns of X, and
    XXᵀ is the sum of the grams of the slabs. So each rank evaluates the polynomial and multiplies its own slab, and
    only a square of the shorter side is sent.

    Args:
        groups: the process groups, one for each mesh axis that cuts the matrix.
        tall: whether the longer side is the first.
        orthogonalise: another polar factor than that of `autogd.geometry.polar`.
    """

    groups: tuple[Any, ...]
    tall: bool
    orthogonalise: Callable[..., Tensor] | None = None

    def direction(self, piece: Tensor) -> Tensor:
        """This rank's slab of the polar factor, given its slab of the matrix."""
        x = piece.mT if self.tall else piece
        columns = x.shape[1]
        # a rank without columns takes part in the sums too
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
        """The norms of whole matrices, given those of the slabs here; `order` is 2 or infinity."""
        if order == 2:
            return self.sum(norms.square()).sqrt()
        largest = norms.clone()
        for group in self.groups:
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        return largest
