"""Set every atom to its target size."""

import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp

from autogd.geometry.atom import Atom
from autogd.jax.labels import Label, default_label, read_leaves
from autogd.jax.parts import accumulation_dtype, join

__all__ = ["initialise"]


def initialise(params: Any, key: jax.Array, label: Label = default_label) -> Any:
    """The same pytree with every array at the size of Prescription 1; skip it when fine-tuning.

    Args:
        params: of the model.
        key: the random key; an array's numbers depend only on it and on the array's path.
        label: from an array's path and shape to its atom.

    >>> params = initialise({"Dense_0": {"kernel": jnp.zeros((8, 2))}}, jax.random.key(0))
    >>> w = params["Dense_0"]["kernel"]
    >>> bool(jnp.allclose(w.T @ w, jnp.eye(2) / 4, atol=1e-6))
    True
    """
    fresh = [
        _start(leaf.array, leaf.atom, jax.random.fold_in(key, zlib.crc32(leaf.path.encode())))
        for leaf in read_leaves(params, label)
    ]
    return jax.tree.unflatten(jax.tree.structure(params), fresh)


def _start(array: jax.Array, atom: Atom, key: jax.Array) -> jax.Array:
    if atom.start == "as it is":
        return array
    if atom.start == "zeros":
        return jnp.zeros_like(array)
    if atom.start == "ones":
        return jnp.full_like(array, atom.scale / math.sqrt(array.size))  # one, or a row's length
    parts = _semi_orthogonal(atom, accumulation_dtype(array), key) * atom.scale
    return join(parts, atom, array.shape).astype(array.dtype)


def _semi_orthogonal(atom: Atom, dtype: jnp.dtype, key: jax.Array) -> jax.Array:
    tall, short = max(atom.fan_out, atom.fan_in), min(atom.fan_out, atom.fan_in)
    normal = jax.random.normal(key, (atom.parts, tall, short), dtype)
    q, r = jnp.linalg.qr(normal)
    # QR fixes the signs by convention; taking R's diagonal back out makes Q uniform
    q = q * jnp.where(jnp.diagonal(r, axis1=-2, axis2=-1) < 0, -1, 1)[:, None, :].astype(dtype)
    return q if atom.fan_out >= atom.fan_in else q.mT
