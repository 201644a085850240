"""The arrays of a step as vectors with one number per part, for `autogd.optim.rule`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import jax
import jax.numpy as jnp
import torch

from autogd.geometry.norms import LEAST, rounding
from autogd.jax.labels import Labelled
from autogd.jax.parts import accumulation_dtype, frobenius

__all__ = ["ArrayParts", "norms_of", "parts_of", "split"]


@dataclass(eq=False)
class ArrayParts:
    """The fields of `autogd.optim.rule.Parts`."""

    depth: float
    depth_shares: jax.Array
    reach: jax.Array
    speaks_for: jax.Array
    noise: jax.Array
    mate: jax.Array | None
    mate_noise: jax.Array
    totals: Callable[[jax.Array], jax.Array] | None


def parts_of(leaves: Sequence[Labelled]) -> ArrayParts:
    """The constants of all parts, in the order of the leaves."""
    dtype = accumulation_dtype(*(leaf.array for leaf in leaves))
    counts = [leaf.atom.parts for leaf in leaves]
    offsets = [0, *accumulate(counts)]
    owner = jnp.repeat(jnp.arange(len(leaves)), jnp.array(counts), total_repeat_length=offsets[-1])
    mate, mate_noise = list(range(offsets[-1])), [0.0] * offsets[-1]
    for i, leaf in enumerate(leaves):
        if leaf.mate is None:
            continue
        noise = rounding(_torch_dtype(leaf.array), beside_own_weight=True)
        for part in range(counts[i]):
            # packed biases match packed weights; for a kernel of many taps use the first
            mate[offsets[i] + part] = offsets[leaf.mate] + (part if counts[leaf.mate] == counts[i] else 0)
            mate_noise[offsets[i] + part] = noise

    def per_part(values: list[float]) -> jax.Array:
        return jnp.array(values, dtype)[owner]

    atoms = [leaf.atom for leaf in leaves]
    return ArrayParts(
        depth=sum(atom.depth for atom in atoms),
        depth_shares=jnp.array([atom.depth_share for atom in atoms], dtype),
        reach=per_part([atom.depth_share * atom.scale for atom in atoms]),
        speaks_for=per_part([atom.parts / atom.depth_share for atom in atoms]),
        noise=per_part([rounding(_torch_dtype(leaf.array)) if _is_lone_bias(leaf) else LEAST for leaf in leaves]),
        mate=jnp.array(mate) if any(mate_noise) else None,
        mate_noise=jnp.array(mate_noise, dtype),
        totals=lambda values: jax.ops.segment_sum(values, owner, len(leaves)),
    )


def _is_lone_bias(leaf: Labelled) -> bool:
    return leaf.atom.kind == "bias" and leaf.mate is None


def norms_of(arrays: Sequence[jax.Array], leaves: Sequence[Labelled]) -> jax.Array:
    """The Frobenius norm of every part of every array, as one vector."""
    dtype = accumulation_dtype(*(leaf.array for leaf in leaves))
    each = zip(arrays, leaves, strict=True)
    return jnp.concatenate([frobenius(array.astype(dtype), leaf.atom) for array, leaf in each])


def split(values: jax.Array, leaves: Sequence[Labelled]) -> list[jax.Array]:
    """One number per part, split into one vector per array."""
    return jnp.split(values, list(accumulate(leaf.atom.parts for leaf in leaves))[:-1])


def _torch_dtype(array: jax.Array) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, array.dtype.name)
    return dtype
