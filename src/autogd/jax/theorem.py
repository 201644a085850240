"""The arrays of a step as vectors with one number per part, for `autogd.optim.rule`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import jax
import jax.numpy as jnp
import torch

from autogd.engine.plan import constants_of
from autogd.jax.labels import Labelled
from autogd.jax.parts import accumulation_dtype, frobenius

__all__ = ["ArrayParts", "norms_of", "parts_of", "split"]


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
