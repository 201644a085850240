r"""The unit direction of steepest ascent, which depends on the norm that measures a step; the rule has the minus.

`frobenius` is the paper's: under Assumption 2 the Frobenius and operator norms of a gradient are equal, so the
direction is the gradient over its Frobenius norm. `spectral` drops the assumption and takes the best of all directions
of operator norm one, the polar factor UVᵀ; the slope along it is the nuclear norm. For vectors the two are equal.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from autogd.geometry.atom import Atom
from autogd.geometry.complex import from_rows, to_rows
from autogd.geometry.norms import accumulation_dtype
from autogd.geometry.polar import orthogonalise

__all__ = ["GEOMETRIES", "Geometry", "direction_for", "normalise", "unit_direction"]

Geometry = Literal["frobenius", "spectral"]
GEOMETRIES: tuple[Geometry, ...] = ("frobenius", "spectral")
"""How a step can be measured."""


def direction_for(atom: Atom, geometry: Geometry) -> Callable[[Tensor], Tensor]:
    """The function that brings every matrix of a batch to norm one: `normalise` or `orthogonalise`."""
    vector = atom.fan_in == 1 or atom.fan_out == 1
    if vector or geometry == "frobenius":
        return normalise
    return (lambda matrices: to_rows(orthogonalise(from_rows(matrices)))) if atom.complex else orthogonalise


def normalise(matrices: Tensor) -> Tensor:
    """Divide every matrix of a batch by its Frobenius norm; a zero matrix stays zero.

    >>> normalise(torch.tensor([[[3.0, 4.0]], [[0.0, 0.0]]]))
    tensor([[[0.6000, 0.8000]],
    <BLANKLINE>
            [[0.0000, 0.0000]]])
    """
    norms = torch.linalg.vector_norm(matrices, dim=(-2, -1), keepdim=True)
    return matrices / torch.where(norms > 0, norms, 1)


def unit_direction(tensor: Tensor, atom: Atom, geometry: Geometry) -> Tensor:
    """The tensor with every part at norm one: the Frobenius or the operator norm, as `geometry` says.

    >>> from autogd.geometry.atom import matrix
    >>> weight = torch.diag(torch.tensor([3.0, 4.0]))
    >>> unit_direction(weight, matrix(weight), "frobenius")
    tensor([[0.6000, 0.0000],
            [0.0000, 0.8000]])
    """
    parts = atom.matrices(tensor.to(accumulation_dtype(tensor.dtype)))
    return atom.join(direction_for(atom, geometry)(parts)).reshape(tensor.shape)
