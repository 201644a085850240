"""StochasticAGD as an `optax.GradientTransformation`."""

import re
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from autogd.engine.groups import check_number
from autogd.geometry.atom import LAYERS, Atom
from autogd.geometry.atoms import VECTOR, bias_share
from autogd.jax.agd import labelled
from autogd.jax.labels import Label, Labelled, default_label
from autogd.jax.parts import (
    accumulation_dtype,
    frobenius,
    join,
    matrices,
    norms_of,
    orthogonalise,
    parts_of,
    scaled,
    split,
)
from autogd.optim.bound import ExponentialMajorisation
from autogd.optim.rate import MOMENTUM, RateState, averaging_share, learning_rate, momentum_size, next_state
from autogd.optim.rule import hold_factor, summarise

__all__ = ["StochasticAGDState", "averaged", "stochastic_agd"]


class StochasticAGDState(NamedTuple):
    """What the rule carries from step to step, and telemetry of the last step."""

    momentum: Any
    ahead: Any  # the averaged weights minus the trained ones
    rate: RateState
    learning_rate: jax.Array
    skipped_steps: jax.Array


def stochastic_agd(*, label: Label = default_label, gain: float = 1.0) -> optax.GradientTransformationExtraArgs:
    """AGD for minibatches: directions from momentum, η from the number of steps, sizes held, weights averaged.

    It takes the steps that `autogd.StochasticAGD` takes; `averaged(params, state)` gives the weights to evaluate and to
    ship. As there, momentum takes half the weight's bytes. A pytree has no order of layers. So the readout, which is
    not held, is the matrix that `label` calls free (`dataclasses.replace(atom, free=True)`), or else the last by name,
    with numbers counted as numbers. Layers compound only if there are no gains, that is, no norm layers.

    Args:
        label: which array is which atom, by its path and shape.
        gain: multiplies every step.

    >>> params = {"Dense_0": {"kernel": jnp.ones((4, 2)) / 2}}
    >>> optimiser = stochastic_agd()
    >>> state = optimiser.init(params)
    >>> loss = lambda p: jnp.square(jnp.ones((8, 4)) @ p["Dense_0"]["kernel"] - 3).mean()
    >>> for _ in range(3):
    ...     updates, state = optimiser.update(jax.grad(loss)(params), state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> bool(loss(averaged(params, state)) < 4)
    True
    """
    check_number("gain", gain)

    def init(params: optax.Params) -> StochasticAGDState:
        dtype = accumulation_dtype(*(leaf.array for leaf in labelled(params, label)))
        half = jax.tree.map(lambda p: jnp.zeros(p.shape, _half(p)), params)
        ahead = jax.tree.map(lambda p: jnp.zeros(p.shape, accumulation_dtype(p)), params)
        zero = jnp.zeros((), dtype)
        return StochasticAGDState(half, ahead, RateState(*[zero] * 6), zero, jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: StochasticAGDState, params: optax.Params | None = None, **_: Any
    ) -> tuple[optax.Updates, StochasticAGDState]:
        if params is None:
            raise ValueError("stochastic_agd: it holds weights at their size: update(grads, state, params)")
        leaves = _share_biases(_free_readout(labelled(updates, label)))
        parts = parts_of(leaves)
        G, _, active, finite, _ = summarise(norms_of([leaf.array for leaf in leaves], leaves), parts, jnp)
        counts = finite & (G > 0)
        # a gradient that is not finite changes nothing, and zero times it would not be zero
        grads = [jnp.where(counts, leaf.array, 0) for leaf in leaves]
        momenta, weights = jax.tree.leaves(state.momentum), jax.tree.leaves(params)
        rate, factor = next_state(state.rate, G, counts, jnp)
        size = (parts.reach * norms_of(momenta, leaves)).sum() / parts.depth
        size = momentum_size(size, state.rate.steps, jnp)
        normed = any(leaf.atom.kind == "gain" for leaf in leaves)
        chain = 0.0 if normed else sum(leaf.atom.depth_share for leaf in leaves)
        bound = partial(ExponentialMajorisation().learning_rate, xp=jnp)
        eta = learning_rate(jnp.maximum(rate.steps, 1), size, rate.alike, parts.depth, chain, bound, jnp)
        eta = jnp.where(counts, eta, 0)
        moves = eta * gain * parts.depth_shares / parts.depth
        share = jnp.where(eta * gain == 0, 0, averaging_share(rate.steps))
        coefficients = jnp.where(active, parts.reach, 0) * (eta * gain / parts.depth)

        steps, momentum, ahead = [], [], []
        states = zip(momenta, jax.tree.leaves(state.ahead), strict=True)
        each = zip(leaves, grads, weights, states, split(coefficients, leaves), moves, strict=True)
        for leaf, grad, weight, (kept, lead), size, move in each:
            wide = accumulation_dtype(leaf.array)
            keep = jnp.where(counts, MOMENTUM, 1).astype(wide)
            new = grad.astype(wide) * (factor * (1 - MOMENTUM)).astype(wide)
            renewed = new + keep * kept.astype(wide)
            direction = _direction(renewed * keep + new, leaf.atom, size.astype(wide))
            old = weight.astype(wide)
            norms = jnp.sqrt(jnp.square(frobenius(old, leaf.atom)).reshape(leaf.atom.maps, -1).sum(1))
            hold = hold_factor(norms, leaf.atom.held_at, move.astype(wide), jnp)
            hold = jnp.where(size > 0, jnp.repeat(hold, leaf.atom.parts // leaf.atom.maps), 1)
            steps.append((scaled(old, hold, leaf.atom) - direction - old).astype(leaf.array.dtype))
            momentum.append(renewed.astype(kept.dtype))
            # x ← x + share·(w − x), for x − w, after the step has moved w
            ahead.append((1 - share.astype(wide)) * (lead - steps[-1].astype(wide)))
        finished, *trees = (
            jax.tree.unflatten(jax.tree.structure(updates), arrays) for arrays in (steps, momentum, ahead)
        )
        told = StochasticAGDState(trees[0], trees[1], rate, eta, state.skipped_steps + ~finite)
        return finished, told

    return optax.GradientTransformationExtraArgs(init, update)


def averaged(params: optax.Params, state: StochasticAGDState) -> optax.Params:
    """The weights to evaluate and to ship: the average over the last part of the run.

    >>> params = {"w": jnp.eye(2)}
    >>> bool((averaged(params, stochastic_agd().init(params))["w"] == params["w"]).all())
    True
    """
    return jax.tree.map(lambda weight, lead: (weight + lead).astype(weight.dtype), params, state.ahead)


def _direction(momentum: jax.Array, atom: Atom, size: jax.Array) -> jax.Array:
    """Every part at operator norm `size`: the polar factor of a matrix, a vector over its norm."""
    if atom.fan_in == 1 or atom.fan_out == 1:
        norms = frobenius(momentum, atom)
        return scaled(momentum, jnp.where(norms > 0, size / norms, 0), atom)
    return join(orthogonalise(matrices(momentum, atom)) * size[:, None, None], atom, momentum.shape)


def _free_readout(leaves: list[Labelled]) -> list[Labelled]:
    hidden = [leaf for leaf in leaves if leaf.atom.kind in LAYERS and not leaf.atom.free]
    if not hidden or any(leaf.atom.free and leaf.atom.fan_out > 1 for leaf in leaves):
        return leaves
    last = max(hidden, key=lambda leaf: [int(w) if w.isdigit() else w for w in re.split(r"(\d+)", leaf.path)])
    return [replace(leaf, atom=replace(leaf.atom, free=True)) if leaf is last else leaf for leaf in leaves]


def _share_biases(leaves: list[Labelled]) -> list[Labelled]:
    """Each bias with the share of the depth that its layer gives it."""
    shares = {
        leaf.path: bias_share(leaves[leaf.own_weight].array.size, leaf.array.size)
        for leaf in leaves
        if leaf.own_weight is not None
        and leaves[leaf.own_weight].atom.kind in LAYERS
        and leaf.atom.depth_share == VECTOR
    }
    return [replace(x, atom=replace(x.atom, depth_share=shares.get(x.path, x.atom.depth_share))) for x in leaves]


def _half(array: jax.Array) -> jnp.dtype:
    return jnp.dtype(jnp.float64 if array.dtype == jnp.float64 else jnp.bfloat16)
