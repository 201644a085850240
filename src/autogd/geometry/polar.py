r"""The polar factor UVᵀ of a matrix (UVᴴ of a complex one) by multiplications alone.

Each of four steps maps every singular value x ↦ a·x + b·x³ + c·x⁵, an odd polynomial. Its coefficients minimise the
largest error on the interval that the step before it leaves: minimax steps, composed greedily, as by Amsel and others
in "The Polar Express" (arXiv 2505.16932). Four steps suffice for two reasons. The first interval is short: a matrix is
divided by :math:`\|(XX^T)^2\|_F^{1/4}`, the 8-norm of its singular values, which is at least the largest and at most
n^(1/8) times it; the first step needs that square anyway. And an error of 0.14 is small enough for a direction:
singular values of at least 1/265 of the 8-norm come out within 0.14 of one, smaller ones in proportion.

On an accelerator float32 matrices are multiplied in float16, which is many times faster. Between their peaks the best
polynomials come close to zero, and rounding would turn such a small value into noise. So in half precision the smallest
value of every step is at least a tenth of its largest, with 1% of room above: singular values from 1/50 on come out
within 0.15 of one, from 1/200 on within 0.33. `benchmarks/polar.py` prints errors and times.

A matrix at least twice as wide as tall is multiplied through its gram, which is smaller. In half precision there is one
restart, after the second step: multiply the matrix, and take its gram again. At 1 : 4 that is 0.72 of the operations.
The restart needs the digits of float16: in bfloat16, which has three bits less, some values came out as large as 1.5.
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
RESTARTS = (2,)


class Columns(Protocol):
    """The other columns of a wide matrix, on other ranks: they complete norms and grams."""

    def norm(self, norms: Tensor, order: float) -> Tensor:
        """The norms of whole matrices, given those of the columns here."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all columns, given that over the columns here."""


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
        products: the type to multiply in; None is float16 for float32 on an accelerator, else the matrices' own.
        elsewhere: the other columns, if `matrices` has only some of the columns of wide matrices.

    >>> close = orthogonalise(torch.diag(torch.tensor([4.0, 1.0])).unsqueeze(0))[0]
    >>> bool((close - torch.eye(2)).abs().max() < 0.15)
    True
    """
    fast = matrices.device.type != "cpu" and matrices.dtype == torch.float32
    dtype = products or (torch.float16 if fast else matrices.dtype)
    half = torch.finfo(dtype).bits == 16
    tall = elsewhere is HERE and matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mH if tall else matrices
    # divide by a power of two first, so that the squares of very small or large numbers neither vanish nor overflow
    largest = elsewhere.norm(torch.linalg.vector_norm(x, torch.inf, dim=(-2, -1), keepdim=True), torch.inf)
    lowest = math.frexp(torch.finfo(x.dtype).tiny)[1]
    x = x * torch.ldexp(torch.ones_like(largest), -torch.frexp(largest).exponent.clamp(min=lowest))
    # by powers of two again, so that a matrix that was sent in bfloat16 gives the same result
    size = elsewhere.norm(torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True), 2)
    room = _room(x.shape[-2]) if half else 0
    x = x.mul_(torch.ldexp(torch.ones_like(size), room - torch.frexp(size).exponent))
    x = (x.to(torch.bfloat16) if half else x).to(dtype)
    steps = ROUNDED if half else EXACT
    wide = elsewhere is not HERE or x.shape[-1] >= 2 * x.shape[-2]
    x = _through_gram(x, steps, RESTARTS if half else (), elsewhere) if wide else _directly(x, steps)
    return (x.mH if tall else x).to(matrices.dtype)


def _room(side: int) -> int:
    """The power of two that bounds the Frobenius norm in float16.

    The least numbers of the gram must not vanish, and its square, of norm 16^room at most, must not overflow.
    """
    return min(round(math.log2(side) / 4), 3)


def _opening(x: Tensor, b: float, c: float, elsewhere: Columns = HERE) -> tuple[Tensor, Tensor, Tensor]:
    """Divide x by its 8-norm, in place; return it, its gram, and b·gram + c·gram²."""
    gram = elsewhere.sum(x @ x.mH)
    square = gram @ gram
    # the Frobenius norm is now at least a half, or zero, and zero must stay zero
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
    x: Tensor, steps: tuple[tuple[float, float, float], ...], restarts: tuple[int, ...], elsewhere: Columns = HERE
) -> Tensor:
    """Every step multiplies a wide x from the left by a polynomial of its gram: multiply the polynomials, then x once.

    After the steps that `restarts` counts, multiply x and take its gram again. A gram that is computed from the one
    before it is rounded: its small eigenvalues are wrong, or negative, and later steps would amplify them.
    """
    x, gram, factor = _opening(x, *steps[0][1:], elsewhere)
    factor.diagonal(dim1=-2, dim2=-1).add_(steps[0][0])
    step, other = factor, torch.empty_like(gram)
    for at, (a, b, c) in enumerate(steps[1:], start=1):
        if at in restarts:
            x = factor @ x
            gram = elsewhere.sum(torch.bmm(x, x.mH))
        else:
            gram = torch.bmm(torch.bmm(step, gram, out=other), step)
        step = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        step.diagonal(dim1=-2, dim2=-1).add_(a)
        factor = step if at in restarts else step @ factor
    return factor @ x
