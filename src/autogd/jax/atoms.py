"""The catalogue of atoms for JAX's layouts; derivations, depth shares and sizes are those of `autogd.atoms`.

Flax and Haiku store inputs before outputs: a matrix is (in, out), a convolution's kernel (taps…, in, out). Libraries
with torch's layout (Equinox) have the outputs first: pass `outputs="first"`.
"""

import math
from dataclasses import replace
from typing import Any, Literal

import torch

from autogd.geometry import atoms
from autogd.geometry.atom import Start
from autogd.geometry.atoms import Atom, beside

__all__ = ["Atom", "Outputs", "beside", "bias", "embedding", "gain", "kernel", "matrix", "scalars", "token"]

Outputs = Literal["first", "last"]
"""The position of the output dimensions in an array's shape."""


def matrix(array: Any, *, inputs: int = 1, stack: int = 1, outputs: Outputs = "last") -> Atom:
    """A linear map, or `stack` of them packed along the output dimension.

    Args:
        array: anything with a shape.
        inputs: number of dimensions that index the inputs; the rest index the outputs. In Flax's attention, query, key
            and value are (in, heads, d), and the output is (heads, d, out), with `inputs=2`.
        stack: number of matrices packed in the outputs: 3 for query, key and value in one array.
        outputs: whether the dimensions of the outputs come first or last.

    >>> import jax.numpy as jnp
    >>> matrix(jnp.zeros((16, 4))).scale
    0.5
    >>> matrix(jnp.zeros((16, 2, 8))).scale, matrix(jnp.zeros((2, 8, 4)), inputs=2).scale
    (1.0, 0.5)
    """
    shape = array.shape
    if not 0 < inputs < len(shape):
        raise ValueError(f"a matrix needs at least one input and one output dimension, found the shape {tuple(shape)}")
    split = len(shape) - inputs if outputs == "first" else inputs
    flat = torch.empty(math.prod(shape[:split]), math.prod(shape[split:]), device="meta")
    return atoms.matrix(flat, stack=stack, transposed=outputs == "last")


def kernel(array: Any, *, groups: int = 1, outputs: Outputs = "last") -> Atom:
    """A convolution: one matrix per tap of the kernel, and per group.

    The shape does not show groups: (3, 3, 1, 8) may be 8 filters on one channel, or one on each of 8 (`groups=8`).

    >>> import jax.numpy as jnp
    >>> atom = kernel(jnp.zeros((3, 3, 4, 16)))
    >>> atom.parts, round(atom.scale, 6)
    (9, 0.666667)
    """
    if len(array.shape) < 3:
        raise ValueError(f"a kernel has taps, inputs and outputs, found the shape {tuple(array.shape)}")
    layer = torch.nn.Module()
    layer.groups = groups  # type: ignore[assignment]
    if outputs == "first":
        return atoms.kernel(_like(array), layer)
    *taps, fan_in, fan_out = array.shape
    atom = atoms.kernel(torch.empty(fan_out, fan_in, *taps, device="meta"), layer)
    n = len(taps)
    if groups == 1:
        return replace(atom, shape=tuple(array.shape), rows=(n + 1,), columns=(n,))
    return replace(atom, shape=(*taps, fan_in, groups, fan_out // groups), rows=(n + 2,), columns=(n,))


def embedding(array: Any) -> Atom:
    """A table of n vectors: one d × 1 matrix per row.

    >>> import jax.numpy as jnp
    >>> embedding(jnp.zeros((10, 4))).parts
    10
    """
    if len(array.shape) != 2:
        raise ValueError(f"an embedding has rows and columns, found the shape {tuple(array.shape)}")
    return atoms.embedding(_like(array))


def token(array: Any) -> Atom:
    """Learned vectors, along the last dimension, that join the activations: class tokens, a table of positions.

    >>> import jax.numpy as jnp
    >>> token(jnp.zeros((1, 7, 4))).parts
    7
    """
    return atoms.token(_like(array))


def bias(array: Any, *, stack: int = 1) -> Atom:
    """A d × 1 matrix that acts on the constant input 1, or `stack` of them packed.

    >>> import jax.numpy as jnp
    >>> bias(jnp.zeros(16)).scale
    4.0
    """
    return atoms.bias(_like(array), stack=stack)


def gain(array: Any, *, start: Start = "ones") -> Atom:
    """A diagonal matrix: the scale of a norm layer.

    >>> import jax.numpy as jnp
    >>> gain(jnp.ones(16)).scale
    4.0
    """
    return atoms.gain(_like(array), start=start)


def scalars(array: Any) -> Atom:
    """Numbers without a known role.

    >>> import jax.numpy as jnp
    >>> scalars(jnp.asarray(2.6)).scale
    1.0
    """
    return atoms.scalars(_like(array))


def _like(array: Any) -> torch.Tensor:
    """An empty tensor of the array's shape, for rules that need only the shape."""
    return torch.empty(tuple(array.shape), device="meta")
