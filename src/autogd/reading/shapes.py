"""The likeliest atom of a parameter, if only its shape is known."""

import math
from dataclasses import replace

from torch import Tensor

from autogd.geometry.atoms import Atom, kernel, matrix, scalars, token

__all__ = ["lone", "provisional", "vectors_by_shape"]


def lone(parameter: Tensor) -> Atom:
    """The likeliest atom of a lone tensor."""
    if parameter.dim() <= 1:
        return scalars(parameter)
    if parameter.dim() == 2:
        return matrix(parameter)
    if parameter.dim() <= 5:
        return kernel(parameter)
    return token(parameter)


def vectors_by_shape(parameter: Tensor) -> Atom | None:
    """The atom of a vector, or of vectors, in a module of unknown type; None if the shape may be a linear map's.

    >>> import torch
    >>> [vectors_by_shape(torch.zeros(shape)).kind for shape in ((4,), (1, 7, 4))]
    ['scalars', 'token']
    """
    if parameter.dim() <= 1:
        return scalars(parameter)
    return token(parameter) if parameter.dim() >= 3 and parameter.shape[0] == 1 else None


def provisional(parameter: Tensor) -> Atom:
    """The likeliest atom of a parameter in a module of unknown type, until a forward pass is read."""
    vectors = vectors_by_shape(parameter)
    if vectors is not None:
        return vectors
    if parameter.dim() == 2:
        return replace(matrix(parameter), start="as it is")
    *_, fan_out, fan_in = parameter.shape
    last = parameter.dim() - 1
    scale = math.sqrt(fan_out / max(fan_in, 1))
    return Atom("matrix", tuple(parameter.shape), (last - 1,), (last,), scale, "as it is")
