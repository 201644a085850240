"""How large is a gradient: one number for every part of an atom."""

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom

__all__ = ["accumulation_dtype", "frobenius", "operator_norm"]


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which norms of tensors of `dtype` are summed: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def frobenius(grad: Tensor, atom: Atom) -> Tensor:
    """The Frobenius norm of every part, in the shape of the atom's grid.

    >>> from autogd.geometry.atoms import matrix
    >>> weight = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> float(frobenius(weight, matrix(weight)))
    5.0
    """
    return torch.linalg.vector_norm(atom.cut(grad), dim=atom.inner, dtype=accumulation_dtype(grad.dtype))


def operator_norm(tensor: Tensor, atom: Atom) -> Tensor:
    """The largest singular value of every part, exactly, one number a part.

    >>> from autogd.geometry.atoms import matrix
    >>> weight = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> round(float(operator_norm(weight, matrix(weight))), 6)
    4.0
    """
    parts = atom.matrices(tensor.detach()).to(accumulation_dtype(tensor.dtype))
    if atom.fan_out == 1 or atom.fan_in == 1:
        return torch.linalg.vector_norm(parts, dim=(1, 2))
    # the square of the smaller side is enough, and far cheaper than a singular value decomposition
    gram = parts @ parts.mT if atom.fan_out <= atom.fan_in else parts.mT @ parts
    return torch.linalg.eigvalsh(gram)[:, -1].clamp(min=0).sqrt()
