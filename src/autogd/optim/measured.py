r"""Measure what Lemma 5 assumes: the slope that a fresh batch sees, and the constant of the bound.

Along a direction of unit size, write the majorisation with a constant of its own,

.. math:: \mathcal{L} - \eta G + c \cdot \tfrac12 (e^\eta - 1)^2,

whose minimiser is η = log((1 + √(1 + 4G/c))/2). After a step of size η along a direction, its slope that is left is
G − c·u(η) with u(η) = (e^η − 1)e^η; a fresh batch measures that as S. So G = S + c·u, and c is what a step took away of
the slope that its own batch saw. The noise of the batch inflates that slope, and so c; but c only sets how fast η
follows S, not where it settles, which is at S = 0: the step that uses up the slope it was taken for.
"""

import torch
from torch import Tensor

from autogd.optim.majorisation import ExponentialMajorisation

__all__ = ["MEMORY", "next_rate", "reach_of", "trust"]

# the scalars that a rule carries from step to step, as one vector; slopes are sums that `weight` makes means of
MEMORY = (
    "rate",
    "fresh",
    "same",
    "reach",
    "weight",
    "log_constant",
    "constant_weight",
    "steps",
    "last_same",
    "typical",
)
SMOOTHING = 0.9  # slopes are means over about the last ten steps
# One noisy measurement may shorten the next step's u to a half, and lengthen it by a tenth: a step that is too long
# does harm at once, one that is too short is mended by the next ones, and none is ever zero.
SHORTEN, LENGTHEN = 0.5, 1.1
OUTLIER = 2.0  # a batch counts for at most this many typical ones


def reach_of(rate: Tensor) -> Tensor:
    """u(η) = (e^η − 1)e^η, the slope that a step of size η takes away, in units of c.

    >>> float(reach_of(torch.tensor(0.0)))
    0.0
    """
    return torch.expm1(rate) * torch.exp(rate)


def next_rate(memory: dict[str, Tensor], fresh: Tensor) -> dict[str, Tensor]:
    """The memory after a fresh batch's slope along the last step's direction, with the η for the next.

    >>> zero, one = torch.zeros(()), torch.ones(())
    >>> start = {name: zero for name in MEMORY} | {"rate": one, "last_same": one}
    >>> bool(next_rate(start, fresh=one / 2)["rate"] > 1), bool(next_rate(start, fresh=-one)["rate"] < 1)
    (True, True)
    """
    keep, take = SMOOTHING, 1 - SMOOTHING
    new = dict(memory)
    known = memory["weight"] > 0
    limit = OUTLIER * torch.where(known, memory["same"] / memory["weight"], memory["last_same"]).abs()
    new["fresh"] = keep * memory["fresh"] + take * fresh.clamp(-limit, limit)
    new["same"] = keep * memory["same"] + take * memory["last_same"].clamp(max=limit)
    new["weight"] = keep * memory["weight"] + take
    u = reach_of(memory["rate"])
    new["reach"] = keep * memory["reach"] + take * u
    slope, same, mean_u = (new[name] / new["weight"] for name in ("fresh", "same", "reach"))
    # what a step removed of the slope, for each unit of u
    c = ((same - slope) / mean_u).clamp(min=torch.finfo(u.dtype).tiny)
    G = slope + c * mean_u
    u = torch.nan_to_num(G / c, nan=0.0, posinf=torch.inf).clamp(min=SHORTEN * u, max=LENGTHEN * u)
    new["rate"] = ExponentialMajorisation().learning_rate(u)
    return new


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
    return {**memory, "typical": learnt}, factor
