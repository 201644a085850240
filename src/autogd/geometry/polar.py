r"""The polar factor UVᵀ of a matrix (UVᴴ of a complex one) by multiplications alone.

Each of four steps maps every singular value x ↦ a·x + b·x³ + c·x⁵, an odd polynomial, with the coefficients of least
largest error on the interval where the steps before it left them: minimax steps composed greedily, as Amsel and others
do in "The Polar Express" (arXiv 2505.16932). Two things make them few. The first interval is short: a matrix is divided
by :math:`\|(XX^T)^2\|_F^{1/4}`, the 8-norm of its singular values, which lies between the largest and n^(1/8) times it,
and the first step has that square anyway. And they end at an error of 0.14, which is as close as a direction needs:
singular values from 1/265 of the 8-norm on come out within 0.14 of one, smaller ones smaller in proportion.

On an accelerator float32 matrices are multiplied in bfloat16, at many times the speed. The best polynomials come as
close to zero, between their peaks, as to two, and rounding would leave chance of such a value. So in half precision
every step's least value is at least a tenth of its largest, with 1% of room above: singular values from 1/50 on come
out within 0.15 of one, from 1/200 on within 0.33. `benchmarks/polar.py` prints errors and times.

A matrix at least twice as wide as tall goes through its gram, which is smaller. In half precision the last two steps
do, after two with a gram of their own; at 1 : 4 that has 0.86 of the operations. With one restart, after the second
step, it would be 0.72, but single values then came out at 0.63 and at 1.56.
"""

import math
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["EXACT", "HERE", "ROUNDED", "Columns", "orthogonalise"]

# a, b and c of every step
EXACT = (
    (8.350735, -24.635874, 18.253652),
    (3.992759, -2.975826, 0.565457),
    (3.365907, -2.523794, 0.514049),
    (2.343450, -1.707047, 0.422939),
)
ROUNDED = (
    (7.499615, -18.214896, 12.518266),
    (3.633934, -2.286717, 0.407172),
    (3.228661, -2.241969, 0.440521),
    (2.319540, -1.656229, 0.402346),
)


class Columns(Protocol):
    """Where further columns of a wide matrix are: norms and grams are completed by theirs."""

    def norm(self, norms: Tensor, order: float) -> Tensor:
        """The norms of whole matrices, given those of the columns here."""
        ...

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all columns, given that over the columns here."""
        ...


class _Here:
    """All columns are here."""

    def norm(self, norms: Tensor, order: float) -> Tensor:
        return norms

    def sum(self, values: Tensor) -> Tensor:
        return values


HERE = _Here()
"""No column is elsewhere."""


def orthogonalise(matrices: Tensor, products: torch.dtype | None = None, elsewhere: Columns = HERE) -> Tensor:
    """The polar factor UVᵀ of every matrix of a batch: the same singular vectors, singular values close to one.

    Args:
        matrices: a batch, in float32, float64 or complex; a zero matrix stays zero.
        products: the type to multiply in; None is bfloat16 for float32 on an accelerator, else the matrices' own.
        elsewhere: where the other columns are, if `matrices` has some of the columns of wide ones.

    >>> close = orthogonalise(torch.diag(torch.tensor([4.0, 1.0])).unsqueeze(0))[0]
    >>> bool((close - torch.eye(2)).abs().max() < 0.15)
    True
    """
    fast = matrices.device.type != "cpu" and matrices.dtype == torch.float32
    dtype = products or (torch.bfloat16 if fast else matrices.dtype)
    half = torch.finfo(dtype).bits == 16
    tall = elsewhere is HERE and matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mH if tall else matrices
    # divide by a power of two first, so that the squares of very small or large numbers neither vanish nor overflow
    largest = elsewhere.norm(torch.linalg.vector_norm(x, torch.inf, dim=(-2, -1), keepdim=True), torch.inf)
    lowest = math.frexp(torch.finfo(x.dtype).tiny)[1]
    x = x * torch.ldexp(torch.ones_like(largest), -torch.frexp(largest).exponent.clamp(min=lowest))
    size = elsewhere.norm(torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True), 2)
    x = x.div_(size.clamp_(min=torch.finfo(x.dtype).tiny)).to(dtype)
    steps = ROUNDED if half else EXACT
    wide = elsewhere is not HERE or x.shape[-1] >= 2 * x.shape[-2]
    x = (_through_gram(x, steps, 2 if half else 0, elsewhere) if wide else _directly(x, steps)).to(matrices.dtype)
    return x.mH if tall else x


def _opening(x: Tensor, b: float, c: float, elsewhere: Columns = HERE) -> tuple[Tensor, Tensor, Tensor]:
    """Divide x by its 8-norm, in place; give it, its gram, and b·gram + c·gram²."""
    gram = elsewhere.sum(x @ x.mH)
    square = gram @ gram
    # the Frobenius norm is one by now, or zero, which must stay so
    wide = torch.promote_types(x.dtype, torch.float32)
    size = torch.linalg.vector_norm(square, dim=(-2, -1), keepdim=True, dtype=wide).sqrt()
    size.clamp_(min=torch.finfo(wide).eps)
    x.div_(size.sqrt())
    gram.div_(size)
    return x, gram, torch.add(square.mul_(c / size.square()), gram, alpha=b)


def _directly(x: Tensor, steps: tuple[tuple[float, float, float], ...]) -> Tensor:
    """x ← a·x + (b·xxᵀ + c·(xxᵀ)²)x at every step."""
    (a, b, c), *others = steps
    x, gram, factor = _opening(x, b, c)
    other = torch.baddbmm(x, factor, x, beta=a)
    for a, b, c in others:
        x, other = other, x
        torch.bmm(x, x.mH, out=gram)
        torch.baddbmm(gram, gram, gram, beta=b, alpha=c, out=factor)
        torch.baddbmm(x, factor, x, beta=a, out=other)
    return other


def _through_gram(
    x: Tensor, steps: tuple[tuple[float, float, float], ...], alone: int, elsewhere: Columns = HERE
) -> Tensor:
    """Every step multiplies a wide x from the left by a polynomial of its gram: gather those, and multiply x once.

    After each of the first `alone` steps x is multiplied, and its gram taken anew: rounded, a gram that is worked out
    from the one before has eigenvalues off, or below zero, while there are small ones; later steps would blow them up.
    """
    x, gram, step = _opening(x, *steps[0][1:], elsewhere)
    factor, other = step, torch.empty_like(gram)
    for at, (a, b, c) in enumerate(steps):
        if at:
            if at <= alone:
                x = factor @ x
                gram = elsewhere.sum(torch.bmm(x, x.mH))
            else:
                gram = torch.bmm(torch.bmm(step, gram, out=other), step)
            step = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        step.diagonal(dim1=-2, dim2=-1).add_(a)
        factor = step if at <= alone else step @ factor
    return factor @ x
