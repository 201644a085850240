"""The polar factor UVᵀ of a matrix: `autogd.geometry.polar` and `autogd.geometry.zolotarev` have the mathematics."""

import jax
import jax.numpy as jnp

from autogd.geometry.polar import FIRST, STEPS, THEN
from autogd.geometry.zolotarev import POLES, WHOLE
from autogd.jax.parts import smallest

__all__ = ["polar"]


def polar(batch: jax.Array) -> jax.Array:
    """The factor UVᵀ of every matrix of a batch: the same singular vectors, all singular values close to one.

    >>> close = polar(jnp.diag(jnp.array([4.0, 1.0]))[None])[0]
    >>> bool(jnp.abs(close - jnp.eye(2)).max() < 0.15)
    True
    """
    tall = batch.shape[-2] > batch.shape[-1]
    x = batch.mT if tall else batch  # the smaller side is squared
    # first by the largest number: squares of very small ones would vanish
    x = x / jnp.maximum(jnp.abs(x).max((-2, -1), keepdims=True, initial=0), smallest(x.dtype))
    x = x / jnp.maximum(_norms(x), smallest(x.dtype))
    # an accelerator's default would multiply in fewer digits than the polynomials need
    with jax.default_matmul_precision("highest"):
        gram = x @ x.mT
        # the 8-norm of the singular values; a zero matrix stays zero
        x = x / jnp.maximum(_norms(gram @ gram) ** 0.25, smallest(x.dtype))
        x = jax.lax.platform_dependent(x, cpu=_by_inversion, default=_by_multiplication)
    return x.mT if tall else x


def _by_multiplication(x: jax.Array) -> jax.Array:
    for a, b, c in (FIRST[STEPS], *THEN[5 - STEPS :]):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def _by_inversion(x: jax.Array) -> jax.Array:
    one = jnp.eye(x.shape[-2], dtype=x.dtype)
    gram, total = x @ x.mT, WHOLE * jnp.broadcast_to(one, (*x.shape[:-1], x.shape[-2]))
    for weight, pole in POLES:
        root = jnp.linalg.cholesky(gram + pole * one)
        inverse = jax.scipy.linalg.cho_solve((root, True), jnp.broadcast_to(one, root.shape))
        # a matrix that rounding has left without a factor keeps its own direction
        total += weight * jnp.where(jnp.isfinite(inverse).all((-2, -1), keepdims=True), inverse, 0)
    return total @ x


def _norms(batch: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.square(batch).sum((-2, -1), keepdims=True))
