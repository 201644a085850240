r"""The Bregman divergence of a loss: how far it lies above its tangent.

.. math:: D(f, \Delta f) = l(f + \Delta f, y) - l(f, y) - \nabla_f l(f, y)^\top \Delta f
"""

import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

__all__ = [
    "NotConvexWarning",
    "bregman",
    "bregman_of_cross_entropy",
    "bregman_of_square",
    "check_convexity",
    "directional",
    "per_sample",
]

LossFunction = Callable[[Tensor, Tensor], Tensor]
_Pulled = tuple[Tensor, Callable[[Any], Any]]


class NotConvexWarning(UserWarning):
    """A loss lies below one of its tangents: it is not convex in the output."""


def bregman(loss: LossFunction, output: Tensor, delta: Tensor, target: Tensor) -> Tensor:
    """The divergence of any differentiable loss, by automatic differentiation, with the reduction of the loss.

    A loss that averages over the batch gives the average; one that returns a number per sample gives one per sample.
    For a convex loss it is never negative; `check_convexity` tests whether a loss is convex.

    >>> from autogd.losses import square_loss
    >>> float(bregman(square_loss, torch.zeros(1, 2), torch.tensor([[1.0, 3.0]]), torch.ones(1, 2)))
    2.5
    """
    if output.shape != delta.shape:
        raise ValueError(f"bregman: output is {tuple(output.shape)} and delta {tuple(delta.shape)}; they must agree")
    before, slope = directional(lambda f: loss(f, target), output, delta)
    return loss(output + delta, target) - before - slope


def directional(function: Callable[[Any], Tensor], at: Any, along: Any) -> tuple[Tensor, Tensor]:
    """A function's value and its derivative along a direction, by two reverse passes.

    The reverse pass is linear in its argument, so its own reverse pass is the derivative. (Forward mode would do, but
    it triggers deprecation warnings inside torch.)

    >>> directional(lambda x: x**2, torch.tensor(3.0), torch.tensor(1.0))
    (tensor(9.), tensor(6.))
    """
    value, pull = cast(_Pulled, torch.func.vjp(function, at))
    _, push = cast(_Pulled, torch.func.vjp(lambda v: pull(v)[0], torch.zeros_like(value)))
    return value, push(along)[0]


def per_sample(loss: LossFunction, output: Tensor, delta: Tensor, target: Tensor) -> Tensor:
    """The divergence of every single sample, for a loss that averages over the batch.

    >>> from autogd.losses import square_loss
    >>> per_sample(square_loss, torch.zeros(2, 1), torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1))
    tensor([0.5000, 2.0000])
    """

    def one(f: Tensor, d: Tensor, y: Tensor) -> Tensor:
        return bregman(loss, f.unsqueeze(0), d.unsqueeze(0), y.unsqueeze(0))

    return torch.func.vmap(one)(output, delta, target)


def bregman_of_square(delta: Tensor) -> Tensor:
    """Lemma 1: ‖Δf‖²/(2 d_L) for every sample, whatever the output and the target.

    >>> bregman_of_square(torch.tensor([[1.0, 3.0]]))
    tensor([2.5000])
    """
    return 0.5 * delta.flatten(1).square().mean(1)


def bregman_of_cross_entropy(output: Tensor, delta: Tensor) -> Tensor:
    """Lemma 2: KL(softmax f ‖ softmax(f + Δf)) for every sample, whatever the target.

    >>> bregman_of_cross_entropy(torch.zeros(1, 2), torch.tensor([[5.0, 5.0]])).abs() < 1e-6
    tensor([True])
    """
    before, after = output.log_softmax(1), (output + delta).log_softmax(1)
    return (before.exp() * (before - after)).sum(1)


def check_convexity(
    loss: LossFunction, output: Tensor, target: Tensor, *, draws: int = 64, reach: float = 4.0, seed: int = 0
) -> bool:
    """Whether no random step has a negative divergence; warns with the worst one otherwise.

    Steps are drawn around and between the given outputs. Their length is up to `reach` times the outputs'
    root-mean-square (at least 1). True is evidence, not proof.

    >>> check_convexity(lambda f, y: (f - y).square().mean(), torch.zeros(3, 2), torch.ones(3, 2))
    True
    """
    generator = torch.Generator().manual_seed(seed)
    scale = reach * float(output.double().square().mean().sqrt().clamp(min=1.0))
    worst, place, tolerance = 0.0, -1, 0.0
    for draw in range(draws):
        start, delta = torch.randn(2, *output.shape, generator=generator, dtype=torch.float64) * scale
        # half of the draws are short steps: a long one can step over a dent
        delta = delta * (0.05 if draw % 2 else 1.0)
        f = (output.detach() + start.to(output) * torch.rand((), generator=generator).item()).detach()
        divergence = float(bregman(loss, f, delta.to(f), target).sum())
        rounding = 64 * torch.finfo(f.dtype).eps * (1 + float(loss(f, target).abs().sum()) + float(delta.abs().sum()))
        if divergence < min(worst, -rounding):
            worst, place, tolerance = divergence, draw, rounding
    if place < 0:
        return True
    warnings.warn(
        f"the loss is not convex in the output: a random step (draw {place} of seed {seed}) has the Bregman divergence "
        f"{worst:.3g}, below zero by more than rounding ({tolerance:.1g}); no bound built on convexity holds for it",
        NotConvexWarning,
        stacklevel=2,
    )
    return False
