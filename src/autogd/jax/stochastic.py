"""StochasticAGD as an `optax.GradientTransformation`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from autogd.jax.agd import labelled
from autogd.jax.labels import Label, Labelled, default_label
from autogd.jax.measured import next_rate, trust
from autogd.jax.parts import accumulation_dtype, frobenius, join, matrices, polar, scaled
from autogd.jax.theorem import learning_rate, measure
from autogd.optim.groups import check_number
from autogd.optim.measured import MEMORY
from autogd.optim.stochastic import MOMENTUM

__all__ = ["StochasticAGDState", "stochastic_agd"]


class StochasticAGDState(NamedTuple):
    """Momentum and direction of every array, the rule's scalars, and what a step tells."""

    momentum: Any
    direction: Any
    memory: jax.Array
    learning_rate: jax.Array
    skipped_steps: jax.Array


def stochastic_agd(*, label: Label = default_label, gain: float = 1.0) -> optax.GradientTransformationExtraArgs:
    """AGD for minibatches: directions from momentum, η from slopes that fresh batches measure.

    It takes the steps that `autogd.StochasticAGD` takes, and `update` needs no params.

    Args:
        label: which array is which atom, by its path and shape.
        gain: multiplies every step; but the rule sees what its steps do, and in time makes up for it.

    >>> params = {"Dense_0": {"kernel": jnp.ones((4, 2)) / 2}}
    >>> optimiser = stochastic_agd()
    >>> state = optimiser.init(params)
    >>> loss = lambda p: jnp.square(jnp.ones((8, 4)) @ p["Dense_0"]["kernel"] - 3).mean()
    >>> for _ in range(3):
    ...     updates, state = optimiser.update(jax.grad(loss)(params), state)
    ...     params = optax.apply_updates(params, updates)
    >>> bool(state.learning_rate > 0)
    True
    """
    check_number("gain", gain)

    def init(params: optax.Params) -> StochasticAGDState:
        dtype = accumulation_dtype(*(leaf.array for leaf in labelled(params, label)))
        zeros = jax.tree.map(jnp.zeros_like, params)
        start = jnp.zeros(len(MEMORY), dtype)
        return StochasticAGDState(zeros, zeros, start, jnp.zeros((), dtype), jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: StochasticAGDState, params: optax.Params | None = None, **_: Any
    ) -> tuple[optax.Updates, StochasticAGDState]:
        leaves = labelled(updates, label)
        measured = measure(leaves)
        finite, G = measured.finite, measured.gradient_summary
        memory = dict(zip(MEMORY, state.memory, strict=True))
        first = memory["steps"] == 0
        memory, factor = trust(memory, G, finite)
        grads = [jnp.where(finite, leaf.array * factor.astype(leaf.array.dtype), 0) for leaf in leaves]
        after = next_rate(memory, _slope(jax.tree.leaves(state.direction), grads, G.dtype))
        memory = {name: jnp.where(finite & ~first, after[name], memory[name]) for name in MEMORY}
        # nothing is measured before the first step: it is Theorem 2's
        memory["rate"] = jnp.where(first, learning_rate(G), memory["rate"])

        momentum, direction = [], []
        for leaf, grad, held, heard in zip(leaves, grads, jax.tree.leaves(state.momentum), measured.heard, strict=True):
            held = held + (1 - MOMENTUM) * (grad.astype(held.dtype) - held)
            ahead = held + (1 - MOMENTUM) * (grad.astype(held.dtype) - held)
            size = jnp.where(heard, leaf.atom.weight * leaf.atom.scale / measured.depth, 0)
            momentum.append(held)
            direction.append(_direction(ahead, leaf, size.astype(G.dtype)))
        memory["last_same"] = _slope(direction, grads, G.dtype)
        rate = jnp.where(finite, memory["rate"], 0)
        memory["steps"] = memory["steps"] + finite
        tree = jax.tree.structure(updates)
        steps = [jnp.where(finite, d * (-gain * rate).astype(d.dtype), 0) for d in direction]
        after_step = StochasticAGDState(
            jax.tree.unflatten(tree, momentum),
            jax.tree.unflatten(tree, direction),
            jnp.stack([memory[name] for name in MEMORY]),
            rate,
            state.skipped_steps + ~finite,
        )
        return jax.tree.unflatten(tree, steps), after_step

    return optax.GradientTransformationExtraArgs(init, update)


def _slope(direction: list[jax.Array], grads: list[jax.Array], dtype: jnp.dtype) -> jax.Array:
    """How fast the batch's loss falls along the direction."""
    slopes = [(d.astype(dtype) * g.astype(dtype)).sum() for d, g in zip(direction, grads, strict=True)]
    return jnp.stack(slopes).sum()


def _direction(ahead: jax.Array, leaf: Labelled, size: jax.Array) -> jax.Array:
    """Every part at operator norm `size`: the polar factor of a matrix, the normalised vector of a vector."""
    atom = leaf.atom
    if atom.fan_in == 1 or atom.fan_out == 1:
        norms = frobenius(ahead, atom)
        return scaled(ahead, jnp.where(norms > 0, size / norms, 0), atom)
    parts = polar(matrices(ahead, atom).astype(accumulation_dtype(ahead))) * size[:, None, None]
    return join(parts, atom, ahead.shape).astype(ahead.dtype)
