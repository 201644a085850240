"""Physics-informed losses: train a network on a differential equation, and compare it with the exact solution."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from autogd import baselines
from autogd.experiments.trust.cell import Score, Setting, descend, started
from autogd.experiments.trust.nets import tanh_mlp
from autogd.training import seeds

__all__ = ["Equation", "W", "derivatives", "oscillator", "poisson"]

Network = Callable[[Tensor], Tensor]
W = 2 * math.pi  # one period on [0, 1]


def derivatives(u: Network, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The function, its first and its second derivative at points.

    >>> derivatives(lambda x: x**3, torch.tensor([[2.0]]))[1:]
    (tensor([[12.]], grad_fn=...), tensor([[12.]], grad_fn=...))
    """
    x = x.requires_grad_()
    value = u(x)
    (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    return value, first, second


def poisson(u: Network, x: Tensor) -> Tensor:
    """−u'' = (2π)² sin(2πx) on [0, 1] (both sides over (2π)²), u = 0 at the ends.

    >>> bool(poisson(lambda x: (W * x).sin(), torch.rand(9, 1)) < 1e-6)
    True
    """
    second = derivatives(u, x)[2]
    ends = u(torch.tensor([[0.0], [1.0]]))
    return (second / W**2 + (W * x).sin()).square().mean() + ends.square().mean()


def oscillator(u: Network, x: Tensor) -> Tensor:
    """u'' + (2π)² u = 0 on [0, 1] (over (2π)²), u(0) = 1, u'(0) = 0: one period.

    >>> bool(oscillator(lambda x: (W * x).cos(), torch.rand(9, 1)) < 1e-6)
    True
    """
    value, _, second = derivatives(u, x)
    start, speed, _ = derivatives(u, torch.zeros(1, 1))
    return (second / W**2 + value).square().mean() + (start - 1).square().mean() + (speed / W).square().mean()


@dataclass(frozen=True)
class Equation:
    """Train a tanh MLP on an equation's residual at random points.

    Args:
        residual: the loss.
        exact: the solution.
        steps: the budget.
        batch: points per step.
        floor: smaller relative errors count as this.

    >>> Equation(poisson, lambda x: (W * x).sin(), steps=2)(Setting("adam", lr=1e-3)).loss > 0.1
    True
    """

    residual: Callable[[Network, Tensor], Tensor]
    exact: Callable[[Tensor], Tensor]
    steps: int
    batch: int = 32
    floor: float = 0.01

    def __call__(self, setting: Setting) -> Score:
        """Train, and return the relative L2 error."""
        model: nn.Module = started(lambda: tanh_mlp(1, 32, 32, 1), setting, "physics")
        optimiser = setting.build(model)
        draws = seeds.generator(setting.seed, "trust", "physics")
        for _ in range(self.steps):
            x = torch.rand(self.batch, 1, generator=draws)
            descend(model, optimiser, partial(self.residual, model, x))
        x = torch.linspace(0, 1, 201)[:, None]
        with torch.no_grad(), baselines.averaged(optimiser):
            error = (model(x) - self.exact(x)).norm() / self.exact(x).norm()
        return Score(max(float(error), self.floor))
