r"""Measure what Lemma 5 assumes: the slope that a fresh batch sees, and the constant of the bound.

Along a direction of unit size, write the majorisation with a constant of its own,

.. math:: \mathcal{L} - \eta G + c \cdot \tfrac12 (e^\eta - 1)^2,

whose minimiser is η = log((1 + √(1 + 4G/c))/2). After a step of size η along a direction, its slope that is left is
G − c·u(η) with u(η) = (e^η − 1)e^η; a fresh batch measures that as S. So G = S + c·u, and c is what a step took away of
the slope that its own batch saw. The noise of the batch inflates that slope, and so c; but c only sets how fast η
follows S, not where it settles, which is at S = 0: the step that uses up the slope it was taken for. Whoever wants c
without the noise has the same batch evaluated again: `StochasticAGD.step_and_measure`.
"""

import torch
from torch import Tensor

from autogd.optim.majorisation import ExponentialMajorisation

__all__ = ["MEMORY", "next_rate", "reach_of", "renewed", "trust"]

# The scalars that the rule carries from step to step, as one vector: η; sums that `weight` makes means of, of the slope
# that fresh batches saw, of the slope that the steps' own batches saw, and of u; the number of steps; the last step's
# own slope; how large a batch's gradient usually is; whether η has been found. u is of η alone, not times what a user
# multiplies it with: the batch's noise makes c too large by a factor that one slope cannot tell, so from shorter steps
# the rule would conclude to far shorter ones, and from longer to ever longer ones.
MEMORY = ("rate", "fresh", "same", "reach", "weight", "steps", "last_same", "typical", "found")
SMOOTHING = 0.9  # slopes are means over about the last ten steps, as the momentum is
# Once η is found, one measurement may halve the next step's u or lengthen it by a tenth; so η never is zero for good.
SHORTEN, LENGTHEN = 0.5, 1.1
# The first η may be far too small, where weights are. A step that leaves more than 7/8 of its slope could have been 8
# times as long, says the bound: so is the next. This ends for good with the first that does not, or with an η over one.
OPENING = 8.0
OUTLIER = 2.0  # a batch counts for at most this many typical ones


def reach_of(rate: Tensor) -> Tensor:
    """u(η) = (e^η − 1)e^η, the slope that a step of size η takes away, in units of c.

    >>> float(reach_of(torch.tensor(0.0)))
    0.0
    """
    return torch.expm1(rate) * torch.exp(rate)


def next_rate(memory: dict[str, Tensor], fresh: Tensor, constant: Tensor | None = None) -> dict[str, Tensor]:
    """The memory after a fresh batch's slope along the last step's direction, with the η for the next.

    Args:
        memory: the scalars before.
        fresh: the slope that is left.
        constant: c, where it was measured otherwise; nan where it was not.

    >>> zero, one = torch.zeros(()), torch.ones(())
    >>> start = {name: zero for name in MEMORY} | {"rate": one, "last_same": one}
    >>> bool(next_rate(start, fresh=one / 2)["rate"] > 1), bool(next_rate(start, fresh=-one)["rate"] < 1)
    (True, True)
    """
    keep, take = SMOOTHING, 1 - SMOOTHING
    new = dict(memory)
    known = memory["weight"] > 0
    usual = torch.where(known, memory["same"] / memory["weight"], memory["last_same"]).abs()
    limit = OUTLIER * usual
    new["fresh"] = keep * memory["fresh"] + take * fresh.clamp(-limit, limit)
    new["same"] = keep * memory["same"] + take * memory["last_same"].clamp(max=limit)
    new["weight"] = keep * memory["weight"] + take
    u = reach_of(memory["rate"])
    new["reach"] = keep * memory["reach"] + take * u
    slope, same, taken = (new[name] / new["weight"] for name in ("fresh", "same", "reach"))
    # what a step removed of the slope, for each unit of u
    c = (same - slope) / taken
    if constant is not None:
        c = torch.where(constant.isnan(), c, constant)
    c = c.clamp(min=torch.finfo(taken.dtype).tiny)
    G = slope + c * taken
    used = (fresh < (1 - 1 / OPENING) * memory["last_same"]) | (memory["rate"] > 1)
    new["found"] = torch.where(used, 1, memory["found"])
    longest = torch.where(new["found"] > 0, LENGTHEN * u, OPENING * u)
    wanted = torch.nan_to_num(G / c, nan=0.0, posinf=torch.inf).clamp(min=SHORTEN * u, max=longest)
    # a step that did far more harm than steps do good is answered at once, whatever the mean says
    wanted = torch.where(fresh < -limit, SHORTEN * u, wanted)
    new["rate"] = ExponentialMajorisation().learning_rate(wanted)
    return new


def renewed(constant: Tensor, measured: Tensor) -> Tensor:
    """The constant after one more measurement of it: a mean over about the last ten, but it rises at once.

    What is not finite is as bad as can be: it shortens the next step, and is not carried on; nan is no constant yet.

    >>> [round(float(renewed(torch.tensor(1.0), torch.tensor(c))), 3) for c in (3.0, 0.5, float("-inf"))]
    [3.0, 0.95, inf]
    """
    measured = torch.nan_to_num(measured, nan=torch.inf, posinf=torch.inf, neginf=torch.inf)
    mean = torch.where(constant.isfinite(), torch.lerp(constant, measured, 1 - SMOOTHING), measured)
    return torch.maximum(measured, mean)


def trust(memory: dict[str, Tensor], size: Tensor, finite: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """By what to multiply a batch's gradient so that it counts for at most two typical ones, and the memory after it.

    >>> start = {name: torch.zeros(()) for name in MEMORY} | {"typical": torch.ones(()), "steps": torch.ones(())}
    >>> [round(float(trust(start, torch.tensor(size), torch.tensor(True))[1]), 6) for size in (1.5, 200.0)]
    [1.0, 0.01]
    """
    typical = torch.where(memory["steps"] > 0, memory["typical"], size)
    counted = torch.minimum(size, OUTLIER * typical)
    factor = torch.where(size > 0, counted / size, 1)
    learnt = torch.where(finite, torch.lerp(typical, counted, 1 - SMOOTHING), memory["typical"])
    return {**memory, "typical": learnt}, torch.where(finite, factor, 0)
