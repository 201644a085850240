"""Cells that do not learn from labels: a GAN, a policy gradient, and differential equations."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from autogd import baselines
from autogd.experiments.quality.nets import mlp, tanh_mlp
from autogd.experiments.trust.cell import Score, Setting, descend, started
from autogd.training import seeds

__all__ = [
    "Bandit",
    "Equation",
    "Ring",
    "W",
    "derivatives",
    "energy_distance",
    "oscillator",
    "poisson",
    "rewards",
    "ring",
]

NOISE = 2  # dimensions of the generator's noise
JUDGED = 2048  # real and generated samples that are compared


def ring(samples: int, draws: torch.Generator) -> Tensor:
    """Points around eight centres on a circle of radius √2, so that coordinates have root-mean-square one.

    >>> points = ring(1000, torch.Generator().manual_seed(0))
    >>> points.shape, bool((points.square().mean() - 1).abs() < 0.02)
    (torch.Size([1000, 2]), True)
    """
    angles = torch.randint(8, (samples,), generator=draws) * (math.pi / 4)
    centres = math.sqrt(2) * torch.stack([angles.cos(), angles.sin()], 1)
    return centres + 0.1 * torch.randn(samples, 2, generator=draws)


def energy_distance(one: Tensor, other: Tensor) -> float:
    """√(2 E‖X − Y‖ − E‖X − X'‖ − E‖Y − Y'‖): zero only if both are drawn from one distribution.

    >>> points = ring(64, torch.Generator().manual_seed(0))
    >>> energy_distance(points, points) < 1e-3, round(energy_distance(torch.zeros(2, 2), torch.ones(2, 2)), 3)
    (True, 1.682)
    """
    between, first, second = (torch.cdist(a, b).mean() for a, b in ((one, other), (one, one), (other, other)))
    return float((2 * between - first - second).clamp(min=0).sqrt())


@dataclass(frozen=True)
class Ring:
    """A GAN on eight Gaussians on a ring, with the non-saturating loss.

    Generator and discriminator are trained alternately, each with its own optimiser.

    Args:
        steps: the budget of each network.
        batch: real and generated samples per step.
        penalty: factor of half the squared gradient of the discriminator at real samples; without it, Adam also
            fails to train this GAN.
        floor: smaller distances count as this; two sets of real samples are up to 0.08 apart.

    >>> Ring(steps=2)(Setting("adam", lr=1e-3)).loss > 0.1
    True
    """

    steps: int
    batch: int = 64
    penalty: float = 1.0
    floor: float = 0.1

    def __call__(self, setting: Setting) -> Score:
        """Train both, and return the energy distance between real and generated samples."""
        generator = started(lambda: mlp(NOISE, 64, 64, 2), setting, "generator")
        discriminator = started(lambda: mlp(2, 64, 64, 1), setting, "discriminator")
        generating, discriminating = setting.build(generator), setting.build(discriminator)
        draws = seeds.generator(setting.seed, "trust", "ring")
        for _ in range(self.steps):
            real = ring(self.batch, draws)
            with torch.no_grad():
                fake = generator(torch.randn(self.batch, NOISE, generator=draws))
            descend(discriminator, discriminating, partial(self._discriminator_loss, discriminator, real, fake))
            noise = torch.randn(self.batch, NOISE, generator=draws)
            descend(generator, generating, partial(_generator_loss, discriminator, generator, noise))
        with torch.no_grad(), baselines.averaged(generating):
            fake = generator(torch.randn(JUDGED, NOISE, generator=draws))
        return Score(max(energy_distance(ring(JUDGED, draws), fake), self.floor))

    def _discriminator_loss(self, discriminator: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
        real = real.requires_grad_()
        verdict = discriminator(real)
        (slope,) = torch.autograd.grad(verdict.sum(), real, create_graph=True)
        penalty = self.penalty / 2 * slope.square().sum(1).mean()
        return softplus(-verdict).mean() + softplus(discriminator(fake)).mean() + penalty


def _generator_loss(discriminator: nn.Module, generator: nn.Module, noise: Tensor) -> Tensor:
    return softplus(-discriminator(generator(noise))).mean()


CONTEXT, ACTIONS = 8, 4
CONTEXTS = 2000  # held out


def rewards(contexts: Tensor) -> Tensor:
    """The expected reward of every action: a fixed smooth function of the context.

    >>> rewards(torch.zeros(3, CONTEXT)).shape
    torch.Size([3, 4])
    """
    draws = seeds.generator("trust", "bandit")
    weights, curves = (torch.randn(CONTEXT, ACTIONS, generator=draws) / CONTEXT**0.5 for _ in range(2))
    return (contexts @ weights + (contexts @ curves).sin()).tanh()


@dataclass(frozen=True)
class Bandit:
    """REINFORCE on a contextual bandit: follow (reward − running mean) × ∇ log π of sampled actions.

    Args:
        steps: the budget.
        batch: actions per step.
        noise: standard deviation of a reward around its expectation.

    >>> Bandit(steps=2)(Setting("adam", lr=1e-3)).loss > 0.1
    True
    """

    steps: int
    batch: int = 16
    noise: float = 0.5

    def __call__(self, setting: Setting) -> Score:
        """Train, and return the mean regret: the best action's expected reward minus the policy's."""
        policy = started(lambda: mlp(CONTEXT, 32, 32, ACTIONS), setting, "bandit")
        optimiser = setting.build(policy)
        draws = seeds.generator(setting.seed, "trust", "bandit")
        usual = 0.0
        for _ in range(self.steps):
            contexts = torch.randn(self.batch, CONTEXT, generator=draws)
            with torch.no_grad():
                actions = torch.multinomial(policy(contexts).softmax(1), 1, generator=draws)
            expected = rewards(contexts).gather(1, actions)
            got = expected + self.noise * torch.randn(self.batch, 1, generator=draws)

            def surrogate(x: Tensor = contexts, a: Tensor = actions, advantage: Tensor = got - usual) -> Tensor:
                return -(advantage * policy(x).log_softmax(1).gather(1, a)).mean()

            descend(policy, optimiser, surrogate)
            usual += 0.1 * (float(got.mean()) - usual)
        contexts = torch.randn(CONTEXTS, CONTEXT, generator=seeds.generator("trust", "bandit", "held out"))
        expected = rewards(contexts)
        with torch.no_grad(), baselines.averaged(optimiser):
            chosen = (policy(contexts).softmax(1) * expected).sum(1)
        return Score(float((expected.max(1).values - chosen).mean()))


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
    """−u'' = (2π)² sin(2πx) on [0, 1], both sides divided by (2π)²; u = 0 at the ends.

    >>> bool(poisson(lambda x: (W * x).sin(), torch.rand(9, 1)) < 1e-6)
    True
    """
    second = derivatives(u, x)[2]
    ends = u(torch.tensor([[0.0], [1.0]]))
    return (second / W**2 + (W * x).sin()).square().mean() + ends.square().mean()


def oscillator(u: Network, x: Tensor) -> Tensor:
    """u'' + (2π)² u = 0 on [0, 1], divided by (2π)²; u(0) = 1, u'(0) = 0: one period.

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
        floor: smaller errors count as this.

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
