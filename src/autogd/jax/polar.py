"""The polar factor UVᵀ of a matrix: `autogd.geometry.polar` has the mathematics."""

import jax
import jax.numpy as jnp

from autogd.geometry.polar import EXACT
from autogd.jax.parts import smallest

__all__ = ["orthogonalise"]


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
