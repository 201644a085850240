"""An atom's parts in JAX: their norms and constants, and an array as a batch of matrices, with its polar factor."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import jax
import jax.numpy as jnp
import torch

from autogd.engine.plan import constants_of
from autogd.geometry.atom import Atom
from autogd.geometry.polar import EXACT
from autogd.jax.labels import Labelled

__all__ = [
    "ArrayParts", "accumulation_dtype", "frobenius", "join", "matrices", "norms_of", "orthogonalise", "parts_of",
    "scaled", "smallest", "split",
]  # fmt: skip


def accumulation_dtype(*arrays: jax.Array) -> jnp.dtype:
    """The type in which norms are summed: float64 if any array has it, otherwise float32.

    >>> accumulation_dtype(jnp.zeros(2, jnp.bfloat16))
    dtype('float32')
    """
    wide = any(array.dtype == jnp.float64 for array in arrays)
    return jnp.dtype(jnp.float64 if wide else jnp.float32)


def smallest(dtype: jnp.dtype) -> float:
    """The smallest normal number of a type, to avoid 0/0.

    >>> smallest(jnp.dtype(jnp.float32)) > 0
    True
    """
    return float(torch.finfo(getattr(torch, dtype.name)).tiny)


def frobenius(array: jax.Array, atom: Atom) -> jax.Array:
    """The Frobenius norm of every part, as a vector.

    >>> from autogd.jax.atoms import matrix
    >>> print(frobenius(jnp.array([[3.0, 0.0], [0.0, 4.0]]), matrix(jnp.zeros((2, 2)))))
    [5.]
    """
    wide = array.reshape(atom.shape).astype(accumulation_dtype(array))
    return jnp.sqrt(jnp.square(wide).sum(atom.inner)).reshape(atom.parts)


def scaled(array: jax.Array, factors: jax.Array, atom: Atom) -> jax.Array:
    """The array with every part multiplied by its factor, in the array's own shape and type.

    >>> from autogd.jax.atoms import embedding
    >>> print(scaled(jnp.ones((2, 1)), jnp.array([1.0, 2.0]), embedding(jnp.zeros((2, 1)))).ravel())
    [1. 2.]
    """
    shape = [1 if i in atom.inner else n for i, n in enumerate(atom.shape)]
    product = array.reshape(atom.shape).astype(factors.dtype) * factors.reshape(shape)
    return product.reshape(array.shape).astype(array.dtype)


def matrices(array: jax.Array, atom: Atom) -> jax.Array:
    """The parts as a batch, parts × fan_out × fan_in.

    >>> from autogd.jax.atoms import kernel
    >>> kernels = jnp.zeros((3, 3, 4, 8))
    >>> matrices(kernels, kernel(kernels)).shape
    (9, 8, 4)
    """
    permuted = array.reshape(atom.shape).transpose(_order(atom))
    return permuted.reshape(atom.parts, atom.fan_out, atom.fan_in)


def join(batch: jax.Array, atom: Atom, shape: tuple[int, ...]) -> jax.Array:
    """The inverse of `matrices`: a batch in the array's own shape.

    >>> from autogd.jax.atoms import kernel
    >>> kernels = jnp.arange(24.0).reshape(2, 3, 4)
    >>> atom = kernel(kernels)
    >>> bool((join(matrices(kernels, atom), atom, kernels.shape) == kernels).all())
    True
    """
    order = _order(atom)
    back = sorted(range(len(order)), key=order.__getitem__)
    assert math.prod(batch.shape) == math.prod(shape)
    return batch.reshape([atom.shape[i] for i in order]).transpose(back).reshape(shape)


def _order(atom: Atom) -> tuple[int, ...]:
    return (*atom.grid, *atom.rows, *atom.columns)


@dataclass(eq=False)
class ArrayParts:
    """The fields of `autogd.optim.rule.Parts`."""

    depth: float
    depth_shares: jax.Array
    reach: jax.Array
    part_to_tensor: jax.Array
    noise_floor: jax.Array
    own_weight: jax.Array | None
    own_weight_floor: jax.Array
    totals: Callable[[jax.Array], jax.Array] | None
    others: None = None


def parts_of(leaves: Sequence[Labelled]) -> ArrayParts:
    """The constants of all parts, in the order of the leaves."""
    dtype = accumulation_dtype(*(leaf.array for leaf in leaves))
    counts = [leaf.atom.parts for leaf in leaves]
    owner = jnp.repeat(jnp.arange(len(leaves)), jnp.array(counts), total_repeat_length=sum(counts))
    dtypes: list[torch.dtype] = [getattr(torch, leaf.array.dtype.name) for leaf in leaves]
    weight_of = {i: leaf.own_weight for i, leaf in enumerate(leaves) if leaf.own_weight is not None}
    constants = constants_of([leaf.atom for leaf in leaves], dtypes, weight_of)

    def per_part(values: list[float]) -> jax.Array:
        return jnp.array(values, dtype)[owner]

    return ArrayParts(
        depth=constants.depth,
        depth_shares=jnp.array(constants.depth_shares, dtype),
        reach=per_part(constants.reach),
        part_to_tensor=per_part(constants.part_to_tensor),
        noise_floor=per_part(constants.noise_floor),
        own_weight=None if constants.own_weight is None else jnp.array(constants.own_weight),
        own_weight_floor=per_part(constants.own_weight_floor),
        totals=lambda values: jax.ops.segment_sum(values, owner, len(leaves)),
    )


def norms_of(arrays: Sequence[jax.Array], leaves: Sequence[Labelled]) -> jax.Array:
    """The Frobenius norm of every part of every array, as one vector."""
    dtype = accumulation_dtype(*(leaf.array for leaf in leaves))
    each = zip(arrays, leaves, strict=True)
    return jnp.concatenate([frobenius(array.astype(dtype), leaf.atom) for array, leaf in each])


def split(values: jax.Array, leaves: Sequence[Labelled]) -> list[jax.Array]:
    """One number per part, split into one vector per array."""
    return jnp.split(values, list(accumulate(leaf.atom.parts for leaf in leaves))[:-1])


def orthogonalise(batch: jax.Array) -> jax.Array:
    """The factor UVᵀ of every matrix of a batch: the same singular vectors, all singular values close to one.

    >>> close = orthogonalise(jnp.diag(jnp.array([4.0, 1.0]))[None])[0]
    >>> bool(jnp.abs(close - jnp.eye(2)).max() < 0.15)
    True
    """
    tall = batch.shape[-2] > batch.shape[-1]
    x = batch.mT if tall else batch  # the Gram matrix of the smaller side
    # divide by the largest number first, so that squares of very small numbers do not vanish
    x = x / jnp.maximum(jnp.abs(x).max((-2, -1), keepdims=True, initial=0), smallest(x.dtype))
    x = x / jnp.maximum(_norms(x), smallest(x.dtype))
    # an accelerator's default precision is too low for the polynomials
    with jax.default_matmul_precision("highest"):
        gram = x @ x.mT
        # the 8-norm of the singular values; a zero matrix stays zero
        x = x / jnp.maximum(_norms(gram @ gram) ** 0.25, smallest(x.dtype))
        for a, b, c in EXACT:
            gram = x @ x.mT
            x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def _norms(batch: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.square(batch).sum((-2, -1), keepdims=True))
