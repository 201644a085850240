"""The scalars of the rule for minibatches: `autogd.optim.measured`, line by line, where the mathematics is told."""

import jax
import jax.numpy as jnp

from autogd.jax.parts import smallest
from autogd.jax.theorem import learning_rate
from autogd.optim.averaging import AVERAGING
from autogd.optim.measured import LENGTHEN, OPENING, OUTLIER, SHORTEN, SMOOTHING

__all__ = ["averaging_share", "next_rate", "reach_of", "trust"]

Memory = dict[str, jax.Array]


def reach_of(rate: jax.Array) -> jax.Array:
    """u(η) = (e^η − 1)e^η, the slope that a step of size η takes away, in units of c.

    >>> float(reach_of(jnp.array(0.0)))
    0.0
    """
    return jnp.expm1(rate) * jnp.exp(rate)


def averaging_share(steps: jax.Array) -> jax.Array:
    """The share of the weights after that many steps in their average.

    >>> float(averaging_share(jnp.array(1.0)))
    1.0
    """
    return (AVERAGING + 1) / (steps + AVERAGING)


def next_rate(memory: Memory, fresh: jax.Array) -> Memory:
    """The memory after a fresh batch's slope along the last step's direction, with the η for the next.

    >>> from autogd.optim.measured import MEMORY
    >>> zero, one = jnp.zeros(()), jnp.ones(())
    >>> start = {name: zero for name in MEMORY} | {"rate": one, "last_same": one}
    >>> bool(next_rate(start, fresh=one / 2)["rate"] > 1), bool(next_rate(start, fresh=-one)["rate"] < 1)
    (True, True)
    """
    keep, take = SMOOTHING, 1 - SMOOTHING
    new = dict(memory)
    known = memory["weight"] > 0
    usual = jnp.abs(jnp.where(known, memory["same"] / memory["weight"], memory["last_same"]))
    limit = OUTLIER * usual
    new["fresh"] = keep * memory["fresh"] + take * jnp.clip(fresh, -limit, limit)
    new["same"] = keep * memory["same"] + take * jnp.minimum(memory["last_same"], limit)
    new["weight"] = keep * memory["weight"] + take
    u = reach_of(memory["rate"])
    new["reach"] = keep * memory["reach"] + take * u
    slope, same, taken = (new[name] / new["weight"] for name in ("fresh", "same", "reach"))
    # what a step removed of the slope, for each unit of u
    c = jnp.maximum((same - slope) / taken, smallest(taken.dtype))
    G = slope + c * taken
    used = (fresh < (1 - 1 / OPENING) * memory["last_same"]) | (memory["rate"] > 1)
    new["found"] = jnp.where(used, 1, memory["found"])
    longest = jnp.where(new["found"] > 0, LENGTHEN * u, OPENING * u)
    wanted = jnp.clip(jnp.nan_to_num(G / c, nan=0.0, posinf=jnp.inf), SHORTEN * u, longest)
    # a step that did far more harm than steps do good is answered at once, whatever the mean says
    wanted = jnp.where(fresh < -limit, SHORTEN * u, wanted)
    new["rate"] = learning_rate(wanted)
    return new


def trust(memory: Memory, size: jax.Array, finite: jax.Array) -> tuple[Memory, jax.Array]:
    """By what to multiply a batch's gradient so that it counts for at most two typical ones, and the memory after it.

    >>> from autogd.optim.measured import MEMORY
    >>> start = {name: jnp.zeros(()) for name in MEMORY} | {"typical": jnp.ones(()), "steps": jnp.ones(())}
    >>> [round(float(trust(start, jnp.array(size), jnp.array(True))[1]), 6) for size in (1.5, 200.0)]
    [1.0, 0.01]
    """
    typical = jnp.where(memory["steps"] > 0, memory["typical"], size)
    counted = jnp.minimum(size, OUTLIER * typical)
    factor = jnp.where(size > 0, counted / size, 1)
    learnt = jnp.where(finite, typical + (1 - SMOOTHING) * (counted - typical), memory["typical"])
    return {**memory, "typical": learnt}, jnp.where(finite, factor, 0)
