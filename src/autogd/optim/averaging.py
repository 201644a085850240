r"""The average of AGD's weights: the share of a new point, and gradients taken near the average."""

from typing import Any

import torch
from torch import Tensor

from autogd.engine.backend import Average
from autogd.engine.groups import multiplier

__all__ = ["BETA", "beside_average", "newest_weight"]

BETA = 0.9  # the weight of the average in the point at which gradients are taken


def newest_weight(group: dict[str, Any], eta: Tensor) -> Tensor:
    """c = s²/Σs² with s = η·lr·gain: the weight of a group's newest point in the mean; the group keeps the sum."""
    square = (eta * (multiplier(group) * group["gain"])).square()
    group["squares"] = group["squares"].to(square) + square if "squares" in group else square
    return torch.where(group["squares"] > 0, square / group["squares"], 0)


def beside_average(c: Tensor) -> Average:
    r"""AGD with gradients near the average: three points, two of them stored.

    z takes the steps; x is the mean of all z, each weighted by the square of its step; y = (1 − β)z + βx is what the
    model holds, where gradients are taken (Defazio and others, arXiv 2405.15682). AGD's bound limits how far a gradient
    moves the model. If z moves by s, y moves by (1 − β + βc)s. So z takes AGD's step δ divided by that fraction, and a
    gradient moves y by δ. With D = y − x,

    .. math:: y \leftarrow y + \frac{\beta c}{1 - \beta} D + \delta, \qquad
       x \leftarrow x + \frac{c}{1 - \beta} D + \frac{c}{1 - \beta + \beta c} \delta,

    so z is not stored. The fraction falls from 1 to 1 − β, which warms up the steps of z.

    >>> [round(float(each), 3) for each in beside_average(torch.tensor(0.1))]
    [0.9, 1.0, 0.526]
    """
    # in the first step, c = 1 and the average is the new point
    along, beside = torch.where(c < 1, BETA / (1 - BETA) * c, 0), torch.where(c < 1, c / (1 - BETA), 1)
    return Average(along, beside, c / (1 - BETA + BETA * c))
