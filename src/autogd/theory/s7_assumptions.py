r"""The assumptions, measured during real training.

One step of AGD changes the objective by exactly

.. math:: \Delta\mathcal{L} = -\eta G + \text{model term} + \text{loss term}

(Proposition 1; the slope of a Frobenius-normalised step is −ηG whatever the stable rank). Theorem 2 assumes that the
model term is zero (Assumption 1) and that the loss term is below ½(e^η − 1)², which holds if the weights have the sizes
of Prescription 1. It then promises a descent of at least `margin` = ηG − ½(e^η − 1)². Each record has all of these, the
stable rank of every gradient (Assumption 2), and the drift of the weights' norms.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from autogd.geometry.norms import operator_norm
from autogd.optim.agd import AGD
from autogd.reading.catalogue import read_roles
from autogd.theory.s2_linearisation import linearise
from autogd.theory.s6_convergence import polyak_lojasiewicz

__all__ = ["Automatic", "Measurement", "follow", "measure_run", "stable_rank"]

LossFunction = Callable[[Tensor, Tensor], Tensor]


class Automatic(Protocol):
    """An optimiser that computes η from G, as AGD does."""

    learning_rate: Tensor
    gradient_summary: Tensor

    def step(self) -> Any:
        """Take one step."""
        ...

    def zero_grad(self) -> None:
        """Clear the gradients."""
        ...


@dataclass(frozen=True)
class Measurement:
    """One step with its assumptions measured; plain numbers, `as_dict()` for JSON.

    Args:
        step: counted from 1.
        objective: 𝓛 before the step.
        change: Δ𝓛 over the step.
        gradient_summary: G.
        learning_rate: η.
        model_term: the mean of ∇_f lᵀ(Δf − ∇_w f Δw); Assumption 1 says 0.
        loss_term: the mean Bregman divergence.
        penalty: ½(e^η − 1)², Lemma 5's bound on the loss term.
        stable_rank: ‖∇‖_F²/‖∇‖_*² by parameter, the largest over its matrices; Assumption 2 says 1.
        drift: ‖W_k‖_* over its target after the step, by parameter; Prescription 1 says 1.
        weyl: the largest possible change of `drift`: Σ η_t/L so far.
        alpha: the least of Assumption 3's constants over the layers; nan if it does not cover the loss or a layer.
    """

    step: int
    objective: float
    change: float
    gradient_summary: float
    learning_rate: float
    model_term: float
    loss_term: float
    penalty: float
    stable_rank: dict[str, float]
    drift: dict[str, float]
    weyl: float
    alpha: float

    @property
    def margin(self) -> float:
        """The descent that Theorem 2 promises: ηG − ½(e^η − 1)²."""
        return self.learning_rate * self.gradient_summary - self.penalty

    @property
    def orthogonality(self) -> float:
        """Assumption 1's term relative to the loss term; 0 is the assumption."""
        return self.model_term / self.loss_term if self.loss_term else math.nan

    @property
    def assumption_1(self) -> bool:
        """Whether the model term, if it ascends, stays within the margin."""
        return self.model_term <= self.margin

    @property
    def within_penalty(self) -> bool:
        """Whether the loss term is within Lemma 5's bound, as it must be under Prescription 1."""
        return self.loss_term <= self.penalty

    def as_dict(self) -> dict[str, Any]:
        """All fields and properties, for JSON."""
        return asdict(self) | {
            "margin": self.margin,
            "orthogonality": self.orthogonality,
            "assumption_1": self.assumption_1,
            "within_penalty": self.within_penalty,
        }


def measure_run(
    model: nn.Module, loss: LossFunction, inputs: Tensor, targets: Tensor, steps: int, *, every: int = 1
) -> list[Measurement]:
    """Train `model` in place, full-batch with AGD, and measure the assumptions at each step.

    >>> from autogd.theory.check.draws import draw
    >>> from autogd.losses import square_loss
    >>> problem = draw(0)
    >>> records = measure_run(problem.model, square_loss, problem.inputs, problem.targets, steps=3)
    >>> [record.step for record in records]
    [1, 2, 3]
    """
    records = list(follow(model, loss, inputs, targets, AGD(model), steps))
    return [record for record in records if (record.step - 1) % every == 0]


def follow(
    model: nn.Module, loss: LossFunction, inputs: Tensor, targets: Tensor, optimiser: Automatic, steps: int
) -> Iterator[Measurement]:
    """The same with your own optimiser; yields one record per step.

    >>> from autogd.theory.check.draws import draw
    >>> from autogd.losses import square_loss
    >>> problem = draw(0)
    >>> optimiser = AGD(problem.model, gain=0.5)
    >>> record = next(follow(problem.model, square_loss, problem.inputs, problem.targets, optimiser, 1))
    >>> record.objective > 0
    True
    """
    roles = read_roles(model)
    depth = sum(role.atom.depth for role in roles if role.parameter.requires_grad)
    input_norms = [float(n) for n in inputs.flatten(1).norm(dim=1)]
    weyl = 0.0
    for step in range(1, steps + 1):
        optimiser.zero_grad()
        loss(model(inputs), targets).backward()
        gradients = {role.name: g.clone() for role in roles if (g := role.parameter.grad) is not None}
        ranks = {role.name: stable_rank(gradients[role.name], role.atom.matrices) for role in roles}
        before = {role.name: role.parameter.detach().clone() for role in roles}
        with torch.no_grad():
            objective = float(loss(model(inputs), targets))
        alpha = _alpha(model, gradients, objective, input_norms, targets)
        optimiser.step()
        # measure the step from its start, then continue
        after = {role.name: role.parameter.detach().clone() for role in roles}
        _put(model, before)
        parts = linearise(model, loss, inputs, targets, {name: after[name] - before[name] for name in after})
        _put(model, after)
        eta = float(optimiser.learning_rate)
        weyl += eta / depth
        yield Measurement(
            step=step,
            objective=objective,
            change=float(parts.after - parts.before),
            gradient_summary=float(optimiser.gradient_summary),
            learning_rate=eta,
            model_term=float(parts.model_term),
            loss_term=float(parts.loss_term),
            penalty=0.5 * math.expm1(eta) ** 2,
            stable_rank=ranks,
            drift={
                role.name: float(operator_norm(role.parameter, role.atom).max()) / role.atom.target
                for role in roles
                if role.atom.target > 0
            },
            weyl=weyl,
            alpha=alpha,
        )


def stable_rank(tensor: Tensor, cut: Callable[[Tensor], Tensor] = lambda t: t.unsqueeze(0)) -> float:
    """‖∇‖_F²/‖∇‖_*², the largest over the matrices that `cut` makes of the tensor; 1 for a zero gradient.

    >>> round(stable_rank(torch.eye(3)), 6)
    3.0
    """
    matrices = cut(tensor)
    largest = torch.linalg.matrix_norm(matrices, ord=2)
    ranks = torch.linalg.matrix_norm(matrices).square() / largest.square()
    return float(torch.where(largest > 0, ranks, 1).max())


def _alpha(
    model: nn.Module, gradients: dict[str, Tensor], objective: float, input_norms: list[float], targets: Tensor
) -> float:
    try:
        alphas = polyak_lojasiewicz(model, gradients, objective, input_norms, math.prod(targets.shape[1:]))
    except ValueError:  # a layer that Assumption 3 does not cover
        return math.nan
    return min(alphas.values())


@torch.no_grad()
def _put(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, weight in weights.items():
        model.get_parameter(name).copy_(weight)
