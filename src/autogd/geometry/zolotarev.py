r"""The polar factor UVᵀ of a matrix by two inverses: on a processor, faster than twelve multiplications.

Among odd rational functions of degree five over four, Zolotarev's is the one that stays closest to one on an interval
[ℓ, 1]. In partial fractions it acts on the singular values x of X as

.. math:: f(x) = x \left( w + \frac{a_1}{x^2 + p_1} + \frac{a_2}{x^2 + p_2} \right), \qquad
   f(X) = \left( w I + a_1 (XX^T + p_1 I)^{-1} + a_2 (XX^T + p_2 I)^{-1} \right) X,

as Nakatsukasa and Freund use it (SIAM Review 58(3), 2016), there until nothing is left of the error. Here one such step
is all: ℓ = 1/392 leaves 0.14, as the polynomials of `autogd.geometry.polar` do from 1/265 on with twelve
multiplications. It takes two inverses, each half as much work as a multiplication, and three multiplications, one of
them for the 8-norm of the singular values, by which X is divided as it is there. The inverses are taken from Cholesky
factors, which float32 has the digits for: to eliminate halves by their own inverses is faster, and fails.
"""

import torch
from torch import Tensor

__all__ = ["POLES", "WHOLE", "by_inversion"]

WHOLE = 0.932231  # w
POLES = ((0.01090493, 2.770019e-5), (0.1982113, 0.01117049))  # a and p; p is far above what rounding does to XXᵀ


def by_inversion(x: Tensor) -> Tensor:
    """The factor of every matrix of a batch, each of Frobenius norm one and no higher than wide; zero stays zero.

    >>> close = by_inversion(torch.diag(torch.tensor([0.8, 0.6])).unsqueeze(0))[0]
    >>> bool((close - torch.eye(2)).abs().max() < 0.15)
    True
    """
    gram = x @ x.mT
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
        # a matrix that rounding has left without a factor keeps its own direction
        total.add_(inverse.masked_fill_((failed != 0)[:, None, None], 0), alpha=weight)
    return total.div_(size.sqrt()) @ x
