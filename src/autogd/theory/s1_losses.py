r"""Convex losses, each with an upper bound on its Bregman divergence as a function of the size of Δf.

The derivation needs nothing else of a loss. The bound's argument is the size of one sample's Δf: the root-mean-square
‖Δf‖₂/√d_L or the largest entry ‖Δf‖_∞, depending on the loss. Most bounds are *capped quadratics*: c s²/2 up to a
width, then linear, because the slope of the loss is bounded.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from autogd.losses import square_loss

__all__ = [
    "LOSSES",
    "CappedQuadratic",
    "Loss",
    "cross_entropy",
    "find_loss",
    "huber",
    "logistic",
    "poisson",
    "smooth_hinge",
    "square",
]


@dataclass(frozen=True)
class CappedQuadratic:
    """c s²/2 for s up to `width`, and its tangent beyond.

    >>> CappedQuadratic(1.0, width=2.0)(torch.tensor([1.0, 3.0]))
    tensor([0.5000, 4.0000])
    """

    curvature: float
    width: float = math.inf

    def __call__(self, size: Tensor) -> Tensor:
        """The bound at the given sizes, elementwise."""
        inner = size.clamp(max=self.width)
        return self.curvature * inner * (size - 0.5 * inner)


@dataclass(frozen=True)
class Loss:
    """A convex loss, averaged over the batch, and a bound on its Bregman divergence.

    Args:
        name: of the loss.
        value: from (output, target) to the mean loss.
        bound: from the size of Δf to an upper bound on the divergence; increasing and convex.
        size: how `bound` measures Δf: its root-mean-square or its largest entry.

    >>> absolute_ish = Loss("log-cosh", lambda f, y: (f - y).cosh().log().mean(), CappedQuadratic(1.0))
    >>> float(absolute_ish.bound(torch.tensor(2.0)))
    2.0
    """

    name: str
    value: Callable[[Tensor, Tensor], Tensor]
    bound: Callable[[Tensor], Tensor]
    size: Literal["root-mean-square", "largest entry"] = "root-mean-square"

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean loss."""
        return self.value(output, target)

    def measure(self, delta: Tensor) -> Tensor:
        """The size of every sample's Δf, as `bound` expects it."""
        flat = delta.flatten(1)
        if self.size == "largest entry":
            return flat.abs().amax(1)
        return flat.square().mean(1).sqrt()


square = Loss("square", square_loss, CappedQuadratic(1.0))
"""Lemma 1: the divergence is ‖Δf‖²/(2 d_L), so the bound is an equality."""


def cross_entropy(outputs: int | None = None) -> Loss:
    r"""Lemma 2: at most ½‖Δf‖_∞²; with the number of outputs given, at most (d_L/4) of the mean square of Δf.

    Both hold for every Δf, without the paper's O(Δf³): the second derivative along Δf is the variance of its entries
    under softmax(f + tΔf), and a variance is at most a quarter of the squared range, which is at most ‖Δf‖_∞², and at
    most ½‖Δf‖₂². Without `outputs`, `majorise` reads the largest entry as the root-mean-square: the paper's "spread
    out" Δf, a heuristic. With it nothing is assumed, and steps are smaller.

    >>> float(cross_entropy().bound(torch.tensor(2.0)))
    2.0
    """
    if outputs is None:
        return Loss("cross-entropy", nn.functional.cross_entropy, CappedQuadratic(1.0), size="largest entry")
    return Loss("cross-entropy", nn.functional.cross_entropy, CappedQuadratic(outputs / 2))


def huber(threshold: float) -> Loss:
    r"""Huber loss h_δ, the mean over outputs: at most h_(2δ) of the root-mean-square of Δf.

    A slope that changes at rate one over an interval of length 2δ gives ∫(s − t)dt over at most that interval, which
    is h_(2δ)(s). As h_(2δ)(√u) is concave in u, the mean over outputs is at most h_(2δ) of the root of the mean.

    >>> float(huber(0.5).bound(torch.tensor(3.0)))
    2.5
    """
    _positive("threshold", threshold)

    def value(output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.huber_loss(output, target, delta=threshold)

    return Loss(f"huber({threshold:g})", value, CappedQuadratic(1.0, width=2 * threshold))


def logistic() -> Loss:
    """log(1 + exp(−y f)) with y = ±1, the mean over outputs: its second derivative is at most a quarter.

    >>> float(logistic().bound(torch.tensor(2.0)))
    0.5
    """

    def value(output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.softplus(-target * output).mean()

    return Loss("logistic", value, CappedQuadratic(0.25))


def poisson(largest: float = 0.0) -> Loss:
    r"""exp(f) − y f, the mean over outputs: at most e^m (e^s − 1 − s) while f ≤ m, s the largest entry of Δf.

    Args:
        largest: m, the stated domain: no output before the step is above it.

    >>> round(float(poisson().bound(torch.tensor(1.0))), 4)
    0.7183
    """

    def value(output: Tensor, target: Tensor) -> Tensor:
        return (output.exp() - target * output).mean()

    def bound(size: Tensor) -> Tensor:
        return math.exp(largest) * (torch.expm1(size) - size)

    return Loss("poisson", value, bound, size="largest entry")


def smooth_hinge(width: float = 1.0) -> Loss:
    r"""The hinge max(0, 1 − y f), y = ±1, its kink rounded over `width`, the mean over outputs: at most h_w(s)/w.

    >>> float(smooth_hinge(0.5).bound(torch.tensor(1.0)))
    0.75
    """
    _positive("width", width)

    def value(output: Tensor, target: Tensor) -> Tensor:
        short = (1 - target * output).clamp(min=0)
        inner = short.clamp(max=width)
        return (inner * (short - 0.5 * inner)).mean() / width

    return Loss(f"smooth hinge({width:g})", value, CappedQuadratic(1 / width, width=width))


LOSSES: dict[str, Callable[[], Loss]] = {
    "square": lambda: square,
    "cross-entropy": cross_entropy,
    "huber": lambda: huber(1.0),
    "logistic": logistic,
    "poisson": poisson,
    "smooth-hinge": smooth_hinge,
}
"""The losses by name, at their usual settings."""


def find_loss(name: str) -> Loss:
    """The loss of that name.

    >>> find_loss("square").name
    'square'
    """
    if name not in LOSSES:
        raise ValueError(f"loss: {name!r} is not known; use one of {', '.join(LOSSES)}, or a Loss of your own")
    return LOSSES[name]()


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}: expected a finite number > 0, found {value}")
