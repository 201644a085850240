"""StochasticAGD as an `optax.GradientTransformation`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from autogd.geometry.atoms import Atom
from autogd.jax.agd import labelled
from autogd.jax.labels import Label, default_label
from autogd.jax.measured import averaging_share, next_rate, trust
from autogd.jax.parts import accumulation_dtype, frobenius, join, matrices, scaled
from autogd.jax.polar import polar
from autogd.jax.theorem import learning_rate, measure
from autogd.optim.groups import check_number
from autogd.optim.measured import MEMORY
from autogd.optim.momentum import MOMENTUM

__all__ = ["StochasticAGDState", "averaged", "stochastic_agd"]


class StochasticAGDState(NamedTuple):
    """What the rule carries from step to step, and what a step tells."""

    momentum: Any
    direction: Any
    ahead: Any  # by what the averaged weights differ from the trained ones: so an update needs neither
    memory: jax.Array
    learning_rate: jax.Array
    skipped_steps: jax.Array


def stochastic_agd(*, label: Label = default_label, gain: float = 1.0) -> optax.GradientTransformationExtraArgs:
    """AGD for minibatches: directions from momentum, η from slopes that fresh batches measure, weights averaged.

    It takes the steps that `autogd.StochasticAGD` takes; `averaged(params, state)` gives the weights to evaluate and to
    ship. As there, momentum and direction are held in half the weight's bytes.

    Args:
        label: which array is which atom, by its path and shape.
        gain: multiplies every step; 1 is the measured one, and there is nothing to schedule.

    >>> params = {"Dense_0": {"kernel": jnp.ones((4, 2)) / 2}}
    >>> optimiser = stochastic_agd()
    >>> state = optimiser.init(params)
    >>> loss = lambda p: jnp.square(jnp.ones((8, 4)) @ p["Dense_0"]["kernel"] - 3).mean()
    >>> for _ in range(3):
    ...     updates, state = optimiser.update(jax.grad(loss)(params), state)
    ...     params = optax.apply_updates(params, updates)
    >>> bool(loss(averaged(params, state)) < 4)
    True
    """
    check_number("gain", gain)

    def init(params: optax.Params) -> StochasticAGDState:
        dtype = accumulation_dtype(*(leaf.array for leaf in labelled(params, label)))
        half = jax.tree.map(lambda p: jnp.zeros(p.shape, _half(p)), params)
        ahead = jax.tree.map(lambda p: jnp.zeros(p.shape, accumulation_dtype(p)), params)
        start, zero = jnp.zeros(len(MEMORY), dtype), jnp.zeros((), dtype)
        return StochasticAGDState(half, half, ahead, start, zero, jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: StochasticAGDState, params: optax.Params | None = None, **_: Any
    ) -> tuple[optax.Updates, StochasticAGDState]:
        leaves = labelled(updates, label)
        measured = measure(leaves)
        finite, G, dtype = measured.finite, measured.gradient_summary, measured.gradient_summary.dtype
        # a gradient that is not finite changes nothing, and zero times it would not be zero
        grads = [jnp.where(finite, leaf.array, 0) for leaf in leaves]
        memory = dict(zip(MEMORY, state.memory, strict=True))
        first = memory["steps"] == 0
        memory, factor = trust(memory, G, finite)
        fresh = sum(
            (_dot(d, g) for d, g in zip(jax.tree.leaves(state.direction), grads, strict=True)), jnp.zeros((), dtype)
        )
        after = next_rate(memory, fresh * factor)
        memory = {name: jnp.where(finite & ~first, after[name], memory[name]) for name in MEMORY}
        # nothing is measured before the first step: it is Theorem 2's
        memory["rate"] = jnp.where(first, learning_rate(G), memory["rate"])
        rate = jnp.where(finite, memory["rate"], 0)
        step = rate * gain
        if gain < 1:  # of a step that was shortened, a slope that is left over says nothing of η
            memory["found"] = jnp.ones_like(memory["found"])
        memory["steps"] = memory["steps"] + (finite & (G > 0))
        share = jnp.where(step == 0, 0, averaging_share(memory["steps"]))
        keep = jnp.where(finite, MOMENTUM, 1)

        steps, momentum, direction, ahead, slope = [], [], [], [], jnp.zeros((), dtype)
        for leaf, grad, held, apart, heard in zip(
            leaves, grads, jax.tree.leaves(state.momentum), jax.tree.leaves(state.ahead), measured.heard, strict=True
        ):
            wide = accumulation_dtype(leaf.array)
            new = grad.astype(wide) * (factor * (1 - MOMENTUM)).astype(wide)
            moved = new + keep.astype(wide) * held.astype(wide)
            size = jnp.where(heard | ~finite, leaf.atom.weight * leaf.atom.scale / measured.depth, 0)
            turned = _direction(moved * keep.astype(wide) + new, leaf.atom, size.astype(wide))
            slope = slope + _dot(turned, grad)
            steps.append((turned * -step.astype(wide)).astype(leaf.array.dtype))
            momentum.append(moved.astype(held.dtype))
            direction.append(turned.astype(held.dtype))
            # x ← x + share·(w − x), for x less w, with w moved by the step
            ahead.append((1 - share.astype(wide)) * (apart - steps[-1].astype(wide)))
        memory["last_same"] = jnp.where(finite, slope * factor, memory["last_same"])
        finished, *trees = (
            jax.tree.unflatten(jax.tree.structure(updates), arrays) for arrays in (steps, momentum, direction, ahead)
        )
        scalars = jnp.stack([memory[name] for name in MEMORY])
        told = StochasticAGDState(trees[0], trees[1], trees[2], scalars, rate, state.skipped_steps + ~finite)
        return finished, told

    return optax.GradientTransformationExtraArgs(init, update)


def averaged(params: optax.Params, state: StochasticAGDState) -> optax.Params:
    """The weights to evaluate and to ship: the average over the last part of the run.

    >>> params = {"w": jnp.eye(2)}
    >>> bool((averaged(params, stochastic_agd().init(params))["w"] == params["w"]).all())
    True
    """
    return jax.tree.map(lambda weight, apart: (weight + apart).astype(weight.dtype), params, state.ahead)


def _direction(ahead: jax.Array, atom: Atom, size: jax.Array) -> jax.Array:
    """Every part at operator norm `size`: the polar factor of a matrix, the normalised vector of a vector."""
    if atom.fan_in == 1 or atom.fan_out == 1:
        norms = frobenius(ahead, atom)
        return scaled(ahead, jnp.where(norms > 0, size / norms, 0), atom)
    return join(polar(matrices(ahead, atom)) * size[:, None, None], atom, ahead.shape)


def _dot(direction: jax.Array, grad: jax.Array) -> jax.Array:
    wide = accumulation_dtype(grad)
    return (direction.astype(wide) * grad.astype(wide)).sum()


def _half(array: jax.Array) -> jnp.dtype:
    return jnp.dtype(jnp.float32 if array.dtype == jnp.float64 else jnp.bfloat16)
