"""Automatic gradient descent as an `optax.GradientTransformation`."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from autogd.engine.groups import check_number
from autogd.jax.labels import Label, Labelled, default_label, read_leaves
from autogd.jax.parts import accumulation_dtype, norms_of, parts_of, scaled, split
from autogd.optim.bound import ExponentialMajorisation
from autogd.optim.rule import decay_factor, limit_factor, theorem_2

__all__ = ["AGDState", "agd", "labelled"]


class AGDState(NamedTuple):
    """Telemetry of the last step; the algorithm itself has no state."""

    learning_rate: jax.Array
    gradient_summary: jax.Array
    skipped_steps: jax.Array


def agd(
    *, label: Label = default_label, gain: float = 1.0, weight_decay: float = 0.0
) -> optax.GradientTransformationExtraArgs:
    r"""The optimiser of the paper: no learning rate, no schedule, no state except telemetry.

    .. math::
        G = \frac1L \sum_k \sqrt{d_k/d_{k-1}} \, \|\nabla_k\|_F, \qquad
        \eta = \log\frac{1 + \sqrt{1 + 4G}}2, \qquad
        \Delta W_k = -\frac{\eta}{L} \sqrt{d_k/d_{k-1}} \, \frac{\nabla_k}{\|\nabla_k\|_F}

    It takes the same steps as `autogd.AGD`. A gradient that is not finite never reaches a weight: the update is zero,
    and `skipped_steps` counts it.

    Args:
        label: from an array's path and shape to its atom.
        gain: multiplies every step; 1 is the derived step.
        weight_decay: λ shrinks a weight by λ times its relative step; `update` needs `params` only for this.

    >>> params = {"Dense_0": {"kernel": jnp.ones((4, 2)) / 2, "bias": jnp.zeros(2)}}
    >>> optimiser = agd()
    >>> state = optimiser.init(params)
    >>> loss = lambda p: jnp.square(jnp.ones((8, 4)) @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"] - 3).mean()
    >>> updates, state = optimiser.update(jax.grad(loss)(params), state)
    >>> bool(loss(optax.apply_updates(params, updates)) < loss(params)), bool(state.learning_rate > 0)
    (True, True)
    """
    check_number("gain", gain)
    check_number("weight_decay", weight_decay, zero_too=True)

    def init(params: optax.Params) -> AGDState:
        leaves = labelled(params, label)
        zero = jnp.zeros((), accumulation_dtype(*(leaf.array for leaf in leaves)))
        return AGDState(zero, zero, jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None, **_: Any
    ) -> tuple[optax.Updates, AGDState]:
        if weight_decay and params is None:
            raise ValueError("weight_decay: it shrinks the weights, so update needs them: update(grads, state, params)")
        leaves = labelled(updates, label)
        parts = parts_of(leaves)
        bound = partial(ExponentialMajorisation().learning_rate, xp=jnp)
        eta, coefficients, summary = theorem_2(norms_of([leaf.array for leaf in leaves], leaves), parts, bound, jnp)
        eta = jnp.where(summary.finite, eta, 0)
        steps = []
        for leaf, some in zip(leaves, split(gain * coefficients, leaves), strict=True):
            step = scaled(leaf.array, some, leaf.atom)
            # zero times a gradient that is not finite is not zero
            steps.append(jnp.where(summary.finite, step, jnp.zeros_like(step)))
        if weight_decay:
            moves = eta * gain * parts.depth_shares / parts.depth
            keeps, shares = decay_factor(moves, weight_decay, jnp), limit_factor(moves, weight_decay, jnp)
            for i, weight in enumerate(jax.tree.leaves(params)):
                keep, share = keeps[i].astype(weight.dtype), shares[i].astype(weight.dtype)
                steps[i] = keep * weight + share * steps[i] - weight
        told = AGDState(eta, summary.G, state.skipped_steps + ~summary.finite)
        return jax.tree.unflatten(jax.tree.structure(updates), steps), told

    return optax.GradientTransformationExtraArgs(init, update)


def labelled(tree: Any, label: Label) -> list[Labelled]:
    """The arrays of a pytree with their atoms; a tree without any is an error."""
    leaves = read_leaves(tree, label)
    if not leaves:
        raise ValueError("agd: the pytree has no arrays; there is nothing to train")
    return leaves
