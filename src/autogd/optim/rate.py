r"""The learning rate on minibatches: a law of the number of steps, and a limit on the influence of one batch.

With L for the depth and D for the longest chain of layers without a norm layer among them,

.. math:: \eta_t = \log\Big(1 + \frac{L \mu}{\sqrt t}\Big),
   \qquad \mu = \min\Big(\frac{\sqrt 2}{D}, \max\big(\tfrac1{40}, q_t \min(\tfrac14, 2 M_t)\big)\Big),
   \qquad q_t = s_t + (1 - s_t) e^{\frac{29}{12} (1 - 1/a_t^6)}.

A layer moves by about μ/√t of its size, and by less in the first steps. The quarter and √t keep a random walk of the
weights below their own size. √2/D keeps the change of the output below its distance from an independent target. M is
the size of the momentum in units of a typical gradient: √(0.1/1.9) = 0.23 for gradients of pure noise. If M is below
1/8, gradients vanish or cancel each other, and steps shorten in proportion to M. s is the share of the momentum that is
no noise, as M tells. a says how alike in size the gradients of batches are: 1 if all have one size. The power
of e estimates the share of batches that still have a gradient: it is small if most are fitted already and a few have a
large one. `docs/derivation.md` has the reasons. PyTorch and JAX share this file.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

__all__ = ["MOMENTUM", "RateState", "averaging_share", "learning_rate", "momentum_size", "next_state"]

MOMENTUM = 0.9
STEP = 1 / 4  # the largest μ
NOISE = (1 - MOMENTUM) / (1 + MOMENTUM)  # the square of M if all gradients are independent
TURNOVER = math.sqrt(2)  # the distance between an output and an independent target, each of norm √d, is √2 √d
SHORTEST = STEP / 10  # the least μ: the rate must be able to recover from short steps
TINY = float(torch.finfo(torch.float32).tiny)
MOST = 1 / (1 - MOMENTUM)  # cap on G / typical: a batch counts for at most as many batches as the momentum remembers
AVERAGING = 6  # the average weighs the weights of step s as s⁶: about the last seventh of a run of any length
TYPICAL = 3  # the typical size weighs the gradient of step s as s³, until it remembers as long as the momentum
MEMORY = 50  # steps that the mean a is taken over, at most


class RateState(NamedTuple):
    """What the rate carries from step to step.

    Args:
        typical: the root mean square of the gradients' sizes over about ten steps.
        last, before, earlier: the sizes of the last three gradients.
        alike: a, the mean over about fifty gradients of 2xy/(x² + y²), for x its size and y the nearest of the three.
    """

    steps: Any
    typical: Any
    last: Any
    before: Any
    earlier: Any
    alike: Any


def averaging_share(steps: Any, power: int = AVERAGING) -> Any:
    """The newest step's share in a mean that weighs step s as s to the power.

    >>> [round(averaging_share(t), 3) for t in (1, 10, 100)]
    [1.0, 0.438, 0.066]
    """
    return (power + 1) / (steps + power)


def next_state(state: RateState, G: Any, counts: Any, xp: Any = torch) -> tuple[RateState, Any]:
    """The state after a batch, and the factor of its gradient: one over the typical size, or less.

    Args:
        state, G: before the batch; and the summary of its gradient.
        counts: whether the batch counts: its gradient is finite and not zero.
        xp: `torch` or `jax.numpy`.

    >>> state = RateState(*torch.tensor([99.0, 2.0, 2.0, 2.0, 2.0, 1.0]))
    >>> [round(float(next_state(state, torch.tensor(G), torch.tensor(True))[1]), 3) for G in (2.0, 1e6)]
    [0.5, 0.0]
    """
    G = xp.where(counts, G, 1)
    typical = xp.where(state.steps > 0, state.typical, G)
    steps = state.steps + counts
    # the root of a mean of squares, relative to the last one: the squares of large numbers would overflow
    ratio = xp.clip(G / typical, max=MOST)
    newest = averaging_share(steps, TYPICAL)
    learnt = typical * xp.sqrt(1 + xp.clip(newest, min=1 - MOMENTUM) * (ratio * ratio - 1))
    learnt = xp.clip(learnt, min=TINY)
    first, *others = (2 / (G / y + y / G) for y in (state.last, state.before, state.earlier))
    nearest = xp.where(state.steps > 2, xp.maximum(xp.maximum(*others), first), 1)
    alike = xp.where(state.steps > 0, state.alike, 1)
    alike = alike + xp.clip(newest, min=1 / MEMORY) * (nearest - alike)
    new = (learnt, G, state.last, state.before, alike)
    after = RateState(steps, *(xp.where(counts, a, b) for a, b in zip(new, state[1:], strict=True)))
    return after, xp.where(counts, ratio * (typical / learnt) / G, 0)


def momentum_size(size: Any, steps: Any, xp: Any = torch) -> Any:
    """The size of the momentum, corrected for its start from zero; 1 before the first step.

    >>> round(float(momentum_size(torch.tensor(0.1), torch.tensor(1.0))), 3)
    1.0
    """
    return xp.where(steps > 0, size / (1 - MOMENTUM ** xp.clip(steps, min=1)), 1)


def learning_rate(
    steps: Any, size: Any, alike: Any, depth: float, chain: float, bound: Callable[[Any], Any], xp: Any = torch
) -> Any:
    """The law: eta = log(1 + L mu / sqrt(t)) for Lemma 5, and for another bound its step at the same G.

    With x = Lμ/√t, Lemma 5's bound takes the step log(1 + x) at a gradient summary of G = x + x². So the law gives a
    gradient summary, and any bound turns it into a step.

    Args:
        steps: t, this one included.
        size: M, the size of the momentum before this batch, in units of a typical gradient.
        alike: a, how alike in size the gradients of batches are.
        depth, chain: L; and D, the longest chain of layers that compound; 0 if none do.
        bound: from a gradient summary to a step: a majorisation's `learning_rate`.
        xp: `torch` or `jax.numpy`.

    >>> from autogd.optim.bound import ExponentialMajorisation
    >>> bound = ExponentialMajorisation().learning_rate
    >>> t, M, a = torch.tensor([4.0, 1.0, 1.0])
    >>> round(float(learning_rate(t, M, a, depth=4, chain=4, bound=bound)), 4)
    0.4055
    """
    signal = xp.clip((size * size - NOISE) / (1 - NOISE), min=0, max=1)  # s
    share = signal + (1 - signal) * xp.exp(29 / 12 * (1 - alike**-6))  # q
    mu = xp.clip(share * xp.clip(2 * size, max=STEP), min=SHORTEST)
    mu = xp.clip(mu, max=TURNOVER / chain) if chain else mu
    x = depth * mu / xp.sqrt(steps)
    return bound(x + x * x)
