r"""The polar factor UVᵀ of a matrix by multiplications alone.

Each step maps every singular value x ↦ a·x + b·x³ + c·x⁵, an odd polynomial, with the coefficients of least largest
error on the interval where the steps before it left them: minimax steps composed greedily, as Amsel and others do in
"The Polar Express" (arXiv 2505.16932). Two things make them few. The first interval is short: a matrix is divided by
:math:`\|(XX^T)^2\|_F^{1/4}`, the 8-norm of its singular values, which lies between the largest and n^(1/8) times it,
where the Frobenius norm may be √n times it; and the first step has that square anyway. And it ends at an error of 0.14,
which is as close as a direction needs. Each step more reaches 4.2 times further down:

| steps | within 0.14 of one, from this share of the 8-norm on |
| --- | --- |
| 3 | 1/63 |
| 4 | 1/265 |
| 5 | 1/1128 |

Smaller singular values come out smaller in proportion. `benchmarks/polar.py` prints errors and times. On a processor
two inverses bring them as close. In C they are faster at any size (`autogd.optim.native_turning`), by torch's
operations from a side of 256 on; so there it is they that are taken: `autogd.geometry.zolotarev`.

On an accelerator float32 matrices are multiplied in bfloat16, at many times the speed. The best polynomials come as
close to zero, between their peaks, as to two: what rounding leaves of such a value is chance. So there every step's
least value is at least a tenth of its largest, with 1% of room above, at the price of a fifth of the reach: four steps
take singular values from 1/50 on to within 0.14 of one, and from 1/200 on to within 0.33 (`benchmarks/polar.py`).
"""

import math

import torch
from torch import Tensor

from autogd.geometry.zolotarev import by_inversion

__all__ = ["FIRST", "STEPS", "THEN", "polar"]

STEPS = 4
# a, b and c of the first step, by the number of steps, and of the steps that follow: the last ones, so many as are left
FIRST = {
    3: (7.859818, -22.699912, 16.714472),
    4: (8.350735, -24.635874, 18.253652),
    5: (8.475306, -25.127733, 18.644915),
}
THEN = (
    (4.191122, -3.114458, 0.581263),
    (3.992759, -2.975826, 0.565457),
    (3.365907, -2.523794, 0.514049),
    (2.343450, -1.707047, 0.422939),
)
# the same for half precision
ROUNDED_FIRST = {
    3: (7.139116, -17.339323, 11.916525),
    4: (7.499615, -18.214896, 12.518266),
    5: (7.599236, -18.456853, 12.684551),
}
ROUNDED_THEN = (
    (3.767368, -2.308935, 0.400419),
    (3.633934, -2.286717, 0.407172),
    (3.228661, -2.241969, 0.440521),
    (2.319540, -1.656229, 0.402346),
)
ROOM = 1 << 18  # numbers worked on at a time on the CPU, where larger batches are no faster and take more memory


def polar(
    matrices: Tensor, steps: int | None = None, *, out: Tensor | None = None, products: torch.dtype | None = None
) -> Tensor:
    """The factor UVᵀ of every matrix of a batch: the same singular vectors, all singular values close to one.

    Args:
        matrices: a batch, in float32 or float64; a zero matrix stays zero.
        steps: 3, 4 or 5; each reaches 4.2 times smaller singular values than the one before. None is 4, or,
            on the CPU, what takes those singular values as near to one and is faster: two inverses.
        out: where the factors are put; it may be `matrices` itself.
        products: the type to multiply in; None is bfloat16 for float32 on an accelerator, else the matrices' own.

    >>> close = polar(torch.diag(torch.tensor([4.0, 1.0])).unsqueeze(0))[0]
    >>> bool((close - torch.eye(2)).abs().max() < 0.15)
    True
    """
    out = torch.empty_like(matrices) if out is None else out
    tall = matrices.shape[-2] > matrices.shape[-1]
    each = max(1, ROOM // max(1, matrices[0].numel())) if matrices.device.type == "cpu" and len(matrices) else -1
    dtype = products or _products(matrices)
    half = torch.finfo(dtype).bits == 16
    inverses = steps is None and matrices.device.type == "cpu" and not half
    first, then = (ROUNDED_FIRST, ROUNDED_THEN) if half else (FIRST, THEN)
    chosen = [first[steps or STEPS], *then[5 - (steps or STEPS) :]]
    lowest = math.frexp(torch.finfo(matrices.dtype).tiny)[1]
    for some, into in zip(matrices.split(each), out.split(each), strict=True) if each > 0 else [(matrices, out)]:
        # the smaller side is squared
        x = some.mT if tall else some
        # first by a power of two, so that squares of very small numbers do not vanish, nor those of large ones overflow
        largest = torch.linalg.vector_norm(x, torch.inf, dim=(-2, -1), keepdim=True)
        power = torch.ldexp(torch.ones_like(largest), -torch.frexp(largest).exponent.clamp(min=lowest))
        x = x.mul_(power) if out is matrices else x * power
        size = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
        x = x.div_(size.clamp_(min=torch.finfo(x.dtype).tiny)).to(dtype)
        # rounded, a gram that is not taken from x anew may have eigenvalues below zero, which the steps would blow up
        wide = x.shape[-1] >= 2 * x.shape[-2] and not half
        x = by_inversion(x) if inverses else _through_gram(x, chosen) if wide else _directly(x, chosen)
        into.copy_(x.mT if tall else x)
    return out


def _products(matrices: Tensor) -> torch.dtype:
    fast = matrices.device.type != "cpu" and matrices.dtype == torch.float32
    return torch.bfloat16 if fast else matrices.dtype


def _opening(x: Tensor, coefficients: tuple[float, float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Divides x by its 8-norm, in place; gives the gram of that, and b·gram + c·gram²."""
    _, b, c = coefficients
    gram = x @ x.mT
    square = gram @ gram
    # the Frobenius norm is one by now, or zero, which must stay so
    wide = torch.promote_types(x.dtype, torch.float32)
    size = torch.linalg.vector_norm(square, dim=(-2, -1), keepdim=True, dtype=wide).sqrt()
    size.clamp_(min=torch.finfo(wide).eps)
    x.div_(size.sqrt())
    gram.div_(size)
    return x, gram, torch.add(square.mul_(c / size.square()), gram, alpha=b)


def _directly(x: Tensor, steps: list[tuple[float, float, float]]) -> Tensor:
    """x ← a·x + (b·xxᵀ + c·(xxᵀ)²)x at every step."""
    x, gram, factor = _opening(x, steps[0])
    other = torch.baddbmm(x, factor, x, beta=steps[0][0])
    for a, b, c in steps[1:]:
        x, other = other, x
        torch.bmm(x, x.mT, out=gram)
        torch.baddbmm(gram, gram, gram, beta=b, alpha=c, out=factor)
        torch.baddbmm(x, factor, x, beta=a, out=other)
    return other


def _through_gram(x: Tensor, steps: list[tuple[float, float, float]]) -> Tensor:
    """Every step multiplies a wide x from the left by a polynomial of its gram: gather those, and multiply x once."""
    x, gram, step = _opening(x, steps[0])
    step.diagonal(dim1=-2, dim2=-1).add_(steps[0][0])
    factor, other = step, torch.empty_like(gram)
    for a, b, c in steps[1:]:
        gram = torch.bmm(torch.bmm(step, gram, out=other), step)
        step = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        step.diagonal(dim1=-2, dim2=-1).add_(a)
        factor = step @ factor
    return factor @ x
