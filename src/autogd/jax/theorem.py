"""Theorem 2 on a list of labelled gradients: which parts count, G, and η."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import torch

from autogd.jax.labels import Labelled
from autogd.jax.parts import accumulation_dtype, frobenius
from autogd.optim.plan import rounding

__all__ = ["Measured", "audible", "learning_rate", "measure"]


class Measured(NamedTuple):
    """What a step knows of its gradients: for every array, the norms of its parts and which of them count."""

    norms: list[jax.Array]
    heard: list[jax.Array]
    finite: jax.Array
    gradient_summary: jax.Array
    depth: float


def measure(leaves: Sequence[Labelled]) -> Measured:
    """The norm of every part's gradient, and G = (1/L) Σ √(d_k/d_(k-1)) ‖∇_k‖_F over those that count."""
    dtype = accumulation_dtype(*(leaf.array for leaf in leaves))
    norms = [frobenius(leaf.array, leaf.atom).astype(dtype) for leaf in leaves]
    duals = [leaf.atom.weight * leaf.atom.scale * norm for leaf, norm in zip(leaves, norms, strict=True)]
    heard, finite = audible(duals, leaves)
    depth = sum(leaf.atom.depth for leaf in leaves)
    G = sum((jnp.where(h, d, 0).sum() for h, d in zip(heard, duals, strict=True)), jnp.zeros((), dtype)) / depth
    return Measured(norms, heard, finite, G, depth)


def audible(duals: Sequence[jax.Array], leaves: Sequence[Labelled]) -> tuple[list[jax.Array], jax.Array]:
    """Which parts' gradients stand out from rounding, and whether all are finite: `autogd.optim.plan.audible`.

    A part whose gradient is zero, or smaller than rounding can produce beside the largest array's, or a bias's beside
    its own weight's, counts as zero: to normalise it would turn noise into a full-size step.
    """
    totals = [dual.sum() for dual in duals]
    largest = jnp.stack([t / leaf.atom.weight for t, leaf in zip(totals, leaves, strict=True)]).max()
    # every part of an array has its weight and its siblings: times their number, a part speaks for the whole array
    whole = [dual * (leaf.atom.parts / leaf.atom.weight) for dual, leaf in zip(duals, leaves, strict=True)]
    heard = []
    for mine, leaf in zip(whole, leaves, strict=True):
        dtype = getattr(torch, leaf.array.dtype.name)
        loud = mine > rounding(dtype) * largest
        if leaf.mate is not None:
            # packed biases go with packed weights; beside a kernel of many taps, the first stands for all
            theirs = whole[leaf.mate] if whole[leaf.mate].shape == mine.shape else whole[leaf.mate][0]
            loud &= mine > rounding(dtype, beside_own_weight=True) * theirs
        heard.append(loud)
    return heard, jnp.isfinite(jnp.stack(totals).sum())


def learning_rate(G: jax.Array) -> jax.Array:
    """Theorem 2: eta = log((1 + sqrt(1 + 4G)) / 2), in a form that keeps its digits when G is small.

    >>> round(float(learning_rate(jnp.array(2.0))), 4)
    0.6931
    """
    return jnp.log1p(2 * G / (1 + jnp.sqrt(1 + 4 * G)))
