"""An atom's parts in JAX: their norms, and conversion between an array and a batch of matrices."""

import math

import jax
import jax.numpy as jnp
import torch

from autogd.geometry.atom import Atom

__all__ = ["accumulation_dtype", "frobenius", "join", "matrices", "scaled", "smallest"]


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
