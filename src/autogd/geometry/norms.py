"""How large is a gradient: one number for every part of an atom."""

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.geometry.polar import polar
from autogd.geometry.squares import accumulation_dtype, squares

__all__ = ["accumulation_dtype", "frobenius", "operator_norm", "polar", "squares"]


def frobenius(grad: Tensor, atom: Atom) -> Tensor:
    """The Frobenius norm of every part, as a vector; a sparse gradient's parts are its rows.

    >>> from autogd.geometry.atoms import matrix
    >>> weight = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> frobenius(weight, matrix(weight))
    tensor([5.])
    """
    return squares(grad, atom).sqrt()


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
