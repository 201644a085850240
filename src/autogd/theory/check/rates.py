"""From Lemma 6 to Theorem 3: the corrected forms, and the paper's if they differ."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from autogd.losses import square_loss
from autogd.optim.agd import AGD
from autogd.optim.bound import ExponentialMajorisation
from autogd.theory.check.draws import Draw, draw, fully_connected, opposed
from autogd.theory.check.statement import ROUNDING, Sides, about, seeded, statement
from autogd.theory.s1_losses import square
from autogd.theory.s6_convergence import (
    critical_point_rate,
    decrease,
    global_rate,
    gradient_bound,
    objective_bound,
    polyak_lojasiewicz,
)

__all__ = ["RATES"]

_STEPS = 40


@statement("Lemma 6, corrected", "𝓛 ≤ mean (‖f‖ + ‖y‖)²/(2 d_L) ≤ 2")
def _lemma_6_corrected(seed: int) -> Sides:
    """𝓛 ≤ mean (‖f‖ + ‖y‖)²/(2 d_L) ≤ 2, half of the targets against the output."""
    return _lemma_6(seed, "corrected")


@statement("Lemma 6, paper", "𝓛 ≤ 1", holds=False)
def _lemma_6_paper(seed: int) -> Sides:
    """𝓛 ≤ 1, the paper's form; false."""
    return _lemma_6(seed, "paper")


def _lemma_6(seed: int, form: str) -> Sides:
    problem, drawn = _anywhere(seed)
    f = problem.model(problem.inputs).detach()
    d = f.shape[1]
    norms = [float(n) for n in f.norm(dim=1)], [float(n) for n in problem.targets.norm(dim=1)]
    bound = objective_bound(*norms, d) if form == "corrected" else 1.0
    if form == "corrected":
        assert bound <= 2 + ROUNDING
    loss = float(square(f, problem.targets))
    return Sides(loss, bound + ROUNDING, drawn)


@statement("Lemma 7", "‖∇_k‖_F / bound ≤ 1, any weights")
def _lemma_7_any(seed: int) -> Sides:
    """‖∇_k‖_F over the bound, weights of any size; the largest over the layers."""
    problem = draw(seed, prescribed=False)
    problem = opposed(problem) if seed % 2 else problem
    return Sides(max(_lemma_7(problem)), 1 + ROUNDING, about(problem, seed))


@statement("Lemma 7, corrected", "√(d_k/d_(k−1)) ‖∇_k‖_F ≤ 2")
def _lemma_7_prescribed(seed: int) -> Sides:
    """√(d_k/d_(k−1)) ‖∇_k‖_F ≤ 2 under Prescription 1."""
    problem, drawn = _anywhere(seed)
    return Sides(max(_scaled_gradients(problem)), 2 + ROUNDING, drawn)


@statement("Lemma 7, paper", "√(d_k/d_(k−1)) ‖∇_k‖_F ≤ √2", holds=False)
def _lemma_7_paper(seed: int) -> Sides:
    """√(d_k/d_(k−1)) ‖∇_k‖_F ≤ √2, the paper's constant, which rests on its Lemma 6; false."""
    problem, drawn = _anywhere(seed)
    return Sides(max(_scaled_gradients(problem)), math.sqrt(2) + ROUNDING, drawn)


def _lemma_7(problem: Draw) -> list[float]:
    objective, gradients = _gradients(problem)
    norms = [float(x.norm()) for x in problem.inputs]
    d = problem.targets.shape[1]
    return [float(g.norm()) / gradient_bound(problem.norms, k, objective, norms, d) for k, g in enumerate(gradients)]


def _scaled_gradients(problem: Draw) -> list[float]:
    return [math.sqrt(g.shape[0] / g.shape[1]) * float(g.norm()) for g in _gradients(problem)[1]]


def _gradients(problem: Draw) -> tuple[float, list[Tensor]]:
    loss = square(problem.model(problem.inputs), problem.targets)
    return float(loss.detach()), list(torch.autograd.grad(loss, list(problem.model.parameters())))


def _anywhere(seed: int) -> tuple[Draw, str]:
    """A draw at Prescription 1; every tenth is the smallest counterexample to the paper's Lemma 6."""
    if seed % 10 == 0:
        one = torch.ones(1, 1, dtype=torch.float64)
        model = fully_connected([1, 1])
        model[0].weight.data.fill_(1.0)  # type: ignore[operator]
        return Draw(model, one, -one, {"0.weight": one}, 1.0), "one layer, W = 1, x = 1, y = −1"
    problem = draw(seed)
    return (opposed(problem) if seed % 2 else problem), about(problem, seed)


@statement("Lemma 8, one step", "−ηG + ½(e^η − 1)² ≤ −G²/11 for G ≤ 2")
def _lemma_8_step(seed: int) -> Sides:
    """The inequality that the rates rest on, from tiny G to 2."""
    G = 2 * 10 ** (-4 * torch.rand((), generator=seeded(seed), dtype=torch.float64))
    G = torch.full_like(G, 2.0) if seed == 0 else G
    rule = ExponentialMajorisation()
    change = float(rule.upper_bound(rule.learning_rate(G), G))
    return Sides(change, -decrease(float(G)) + ROUNDING, f"seed {seed}: G {float(G):.4g}")


@statement("Lemma 8, corrected", "T min G² ≤ 22 along runs of AGD", share=0.1)
def _lemma_8(seed: int) -> Sides:
    """Runs from anywhere at Prescription 1, the start against the targets in half of them."""
    problem, drawn = _anywhere(seed)
    return Sides(_worst_rate(problem), critical_point_rate(1), f"{drawn}, {_STEPS} steps")


@statement("Lemma 8, paper", "T min G² ≤ 11, for runs that start at 𝓛 ≤ 1", share=0.1)
def _lemma_8_paper(seed: int) -> Sides:
    """The paper's constant, on runs for which its Lemma 6 is true."""
    problem, drawn = _anywhere(2 * seed + 2)
    while float(square(problem.model(problem.inputs), problem.targets).detach()) > 1:
        seed += 100_003
        problem, drawn = _anywhere(2 * seed + 2)
    return Sides(_worst_rate(problem), critical_point_rate(1, "paper"), f"{drawn}, {_STEPS} steps")


@statement("Theorem 3, corrected", "α² T 𝓛(w_T) ≤ 11, α measured along the run", share=0.1)
def _theorem_3(seed: int) -> Sides:
    """α is the least of Assumption 3's constants over the run so far."""
    problem, drawn = _anywhere(seed)
    norms, outputs = [float(x.norm()) for x in problem.inputs], problem.targets.shape[1]
    worst, alpha = 0.0, 1.0
    for step, (objective, optimiser) in enumerate(_run(problem), start=1):
        gradients = {name: g for name, p in problem.model.named_parameters() if (g := p.grad) is not None}
        here = min(polyak_lojasiewicz(problem.model, gradients, objective, norms, outputs).values())
        alpha = min(alpha, here) if math.isfinite(here) else alpha
        worst = max(worst, alpha**2 * step * objective)
        optimiser.step()
    return Sides(worst, global_rate(1, 1.0), f"{drawn}, least alpha {alpha:.2g}")


def _worst_rate(problem: Draw) -> float:
    """The largest T min_(t ≤ T) G_t² over the run."""
    least, worst = math.inf, 0.0
    for step, (_, optimiser) in enumerate(_run(problem), start=1):
        optimiser.step()
        least = min(least, float(optimiser.gradient_summary) ** 2)
        worst = max(worst, step * least)
    return worst


def _run(problem: Draw) -> Iterator[tuple[float, AGD]]:
    """Full-batch training; yields the objective and the optimiser before each step."""
    optimiser = AGD(problem.model)
    for _ in range(_STEPS):
        optimiser.zero_grad()
        loss = square_loss(problem.model(problem.inputs), problem.targets)
        loss.backward()
        yield float(loss.detach()), optimiser


RATES = [
    _lemma_6_corrected,
    _lemma_6_paper,
    _lemma_7_any,
    _lemma_7_prescribed,
    _lemma_7_paper,
    _lemma_8_step,
    _lemma_8,
    _lemma_8_paper,
    _theorem_3,
]
"""Bounds and rates."""
