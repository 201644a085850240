r"""How much of a new point goes into the average of the weights."""

from typing import Any

import torch
from torch import Tensor

from autogd.engine.backend import Average

__all__ = ["BETA", "beside_average", "newest_weight"]

BETA = 0.9  # how much of the point at which gradients are taken is the average


def newest_weight(group: dict[str, Any], eta: Tensor) -> Tensor:
    """c = η²/Ση², the weight of a group's newest point in the mean; 0 if there was no step. The sum is kept there."""
    square = (eta * (group["lr"] * group["gain"])).square()
    group["squares"] = group["squares"].to(square) + square if "squares" in group else square
    return torch.where(group["squares"] > 0, square / group["squares"], 0)


def beside_average(c: Tensor) -> Average:
    r"""How AGD moves if gradients are taken near the average: three points, of which two are held.

    z takes the steps; x is the mean of all z, each weighted by the square of its step; y = (1 − β)z + βx is what the
    model holds, where gradients are taken (Defazio and others, arXiv 2405.15682). AGD's bound limits how far a gradient
    moves the model. Of a step of z, y moves the share 1 − β + βc. So z takes AGD's step δ divided by that share, and a
    gradient moves y by δ. With D = y − x,

    .. math:: y \leftarrow y + \frac{\beta c}{1 - \beta} D + \delta, \qquad
       x \leftarrow x + \frac{c}{1 - \beta} D + \frac{c}{1 - \beta + \beta c} \delta,

    so z need not be held. In the first step the share is 1 and falls towards 1 − β: a warm-up that is derived.

    >>> [round(float(each), 3) for each in beside_average(torch.tensor(0.1))]
    [0.9, 1.0, 0.526]
    """
    # in the first step the average is the newest point itself, wherever it was
    along, beside = torch.where(c < 1, BETA / (1 - BETA) * c, 0), torch.where(c < 1, c / (1 - BETA), 1)
    return Average(along, beside, c / (1 - BETA + BETA * c))
