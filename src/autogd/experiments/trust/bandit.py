"""A policy gradient: REINFORCE on a contextual bandit."""

from dataclasses import dataclass

import torch
from torch import Tensor

from autogd import baselines
from autogd.experiments.quality.nets import mlp
from autogd.experiments.trust.cell import Score, Setting, descend, started
from autogd.training import seeds

__all__ = ["Bandit", "rewards"]

CONTEXT, ACTIONS = 8, 4
HELD_OUT = 2000  # contexts


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
    """Draw contexts, sample actions, and follow (reward − running mean) × ∇ log π.

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
        contexts = torch.randn(HELD_OUT, CONTEXT, generator=seeds.generator("trust", "bandit", "held out"))
        expected = rewards(contexts)
        with torch.no_grad(), baselines.averaged(optimiser):
            chosen = (policy(contexts).softmax(1) * expected).sum(1)
        return Score(float((expected.max(1).values - chosen).mean()))
