"""The size of a tensor: one number for every part of an atom."""

import torch
from torch import Tensor

from autogd.geometry.atom import Atom
from autogd.geometry.complex import from_rows

__all__ = ["LEAST", "accumulation_dtype", "frobenius", "operator_norm", "rounding"]

# A gradient below this share of the largest tensor's is rounding, in any type. Example: a batch norm of two samples.
LEAST = 64 * torch.finfo(torch.float64).eps


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which norms of tensors of `dtype` are summed: float32, or float64 for float64 and complex128."""
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


def frobenius(tensor: Tensor, atom: Atom, dtype: torch.dtype | None = None) -> Tensor:
    """The Frobenius norm of every part, as a vector; a sparse gradient's parts are its rows.

    >>> from autogd.geometry.atom import matrix
    >>> weight = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> frobenius(weight, matrix(weight))
    tensor([5.])
    """
    dtype = dtype or accumulation_dtype(tensor.dtype)
    if tensor.is_sparse:
        rows = torch.linalg.vector_norm(tensor._values(), dim=1, dtype=dtype)
        return rows.new_zeros(atom.parts).index_copy_(0, tensor._indices()[0], rows)
    return torch.linalg.vector_norm(atom.cut(tensor), dim=atom.inner, dtype=dtype).flatten()


def operator_norm(tensor: Tensor, atom: Atom) -> Tensor:
    """The largest singular value of every part, exactly, one number per part.

    >>> from autogd.geometry.atom import matrix
    >>> weight = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> round(float(operator_norm(weight, matrix(weight))), 6)
    4.0
    """
    parts = atom.matrices(tensor.detach()).to(accumulation_dtype(tensor.dtype))
    parts = from_rows(parts) if atom.complex else parts
    if atom.fan_out == 1 or atom.fan_in == 1:
        return torch.linalg.vector_norm(parts, dim=(1, 2))
    # the gram of the smaller side is far cheaper than a singular value decomposition
    gram = parts @ parts.mH if atom.fan_out <= atom.fan_in else parts.mH @ parts
    return torch.linalg.eigvalsh(gram)[:, -1].clamp(min=0).sqrt()


def rounding(dtype: torch.dtype, *, beside_own_weight: bool = False) -> float:
    """How large rounding can make a bias's gradient that should be zero, relative to another dual norm.

    Relative to its own layer's weight: 64 eps, 2 eps in half precision (`benchmarks/noise_floor.py rounding` saw up to
    11 eps in float32 and float64). A bias whose weight has no gradient is compared with the largest tensor: 64 eps, and
    a sixteenth of eps in half precision, since gradients that count may be that small there.

    >>> rounding(torch.float32) == 64 * torch.finfo(torch.float32).eps
    True
    """
    half = torch.finfo(dtype).bits == 16
    return (64 if not half else 2 if beside_own_weight else 1 / 16) * torch.finfo(dtype).eps
