"""The rational polar factor of the native backend, by torch's operations.

The native backend brings singular values close to one by two inverses, other backends by a polynomial. Both are within
0.14 of one, but they differ. On the CPU, ranks that own matrices use this form, so that many processes take the same
steps as one. The tests hold the C to it.
"""

import torch
from torch import Tensor

from autogd.engine.native import POLES, WHOLE
from autogd.geometry.polar import HERE, Columns

__all__ = ["orthogonalise"]


def orthogonalise(matrices: Tensor, elsewhere: Columns = HERE) -> Tensor:
    """The factor UVᵀ of every matrix of a batch; a zero matrix stays zero. `elsewhere` is that of `geometry.polar`.

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
