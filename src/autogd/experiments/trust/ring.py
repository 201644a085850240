"""A GAN on eight Gaussians on a ring: two optimisers against each other."""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from autogd import baselines
from autogd.experiments.quality.nets import mlp
from autogd.experiments.trust.cell import Score, Setting, descend, started
from autogd.training import seeds

__all__ = ["Ring", "energy_distance", "ring"]

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
    """Train generator and discriminator alternately, each with its own optimiser and a non-saturating loss.

    Args:
        steps: the budget of each network.
        batch: real and generated samples per step.
        penalty: weight of half the squared gradient of the discriminator at real samples; without it Adam does not
            train this either.
        floor: smaller distances count as this: two sets of real samples are up to 0.08 apart.

    >>> Ring(steps=2)(Setting("adam", lr=1e-3)).loss > 0.1
    True
    """

    steps: int
    batch: int = 64
    penalty: float = 1.0
    floor: float = 0.1

    def __call__(self, setting: Setting) -> Score:
        """Train both, and compare generated with real samples."""
        generator = started(lambda: mlp(NOISE, 64, 64, 2), setting, "generator")
        discriminator = started(lambda: mlp(2, 64, 64, 1), setting, "discriminator")
        makes, tells = setting.build(generator), setting.build(discriminator)
        draws = seeds.generator(setting.seed, "trust", "ring")
        for _ in range(self.steps):
            real = ring(self.batch, draws)
            with torch.no_grad():
                fake = generator(torch.randn(self.batch, NOISE, generator=draws))
            descend(discriminator, tells, partial(self._told, discriminator, real, fake))
            noise = torch.randn(self.batch, NOISE, generator=draws)
            descend(generator, makes, partial(_believed, discriminator, generator, noise))
        with torch.no_grad(), baselines.averaged(makes):
            fake = generator(torch.randn(JUDGED, NOISE, generator=draws))
        return Score(max(energy_distance(ring(JUDGED, draws), fake), self.floor))

    def _told(self, discriminator: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
        real = real.requires_grad_()
        verdict = discriminator(real)
        (slope,) = torch.autograd.grad(verdict.sum(), real, create_graph=True)
        penalty = self.penalty / 2 * slope.square().sum(1).mean()
        return softplus(-verdict).mean() + softplus(discriminator(fake)).mean() + penalty


def _believed(discriminator: nn.Module, generator: nn.Module, noise: Tensor) -> Tensor:
    return softplus(-discriminator(generator(noise))).mean()
