"""From Proposition 1 to Corollary 2: the linearisation error, the functional expansion, and three methods in it.

The three methods are compared with direct computations with dense matrices.
"""

import torch
from torch import Tensor

from autogd.theory.check.draws import Draw, draw
from autogd.theory.check.statement import ROUNDING, Sides, about, assuming, equal, parts_of, seeded, statement
from autogd.theory.s1_bregman import bregman_of_cross_entropy, bregman_of_square, directional, per_sample
from autogd.theory.s1_losses import cross_entropy, square
from autogd.theory.s2_linearisation import linearise
from autogd.theory.s3_recover import gauss_newton_step, mirror_descent_step, natural_gradient_step

__all__ = ["EXPANSION", "RECOVERED"]


@statement("Proposition 1", "the two terms add up to the linearisation error")
def _proposition_1(seed: int) -> Sides:
    """The two terms add up to the linearisation error, here alternately for cross-entropy and square loss."""
    problem = draw(seed, prescribed=False)
    targets = problem.targets.softmax(1) if seed % 2 else problem.targets
    loss = cross_entropy() if seed % 2 else square
    parts = linearise(problem.model, loss, problem.inputs, targets, problem.updates)
    return equal(parts.error, parts.model_term + parts.loss_term, about(problem, seed))


@statement("Lemma 1", "square loss: divergence = ‖Δf‖²/(2 d_L)")
def _lemma_1(seed: int) -> Sides:
    """Square loss: the divergence by autograd equals ‖Δf‖²/(2 d_L)."""
    f, delta, y = 3 * torch.randn(3, 4, 1 + seed % 9, generator=seeded(seed), dtype=torch.float64)
    return equal(per_sample(square, f, delta, y), bregman_of_square(delta), f"seed {seed}: {f.shape[1]} outputs")


@statement("Lemma 2", "cross-entropy: divergence = KL")
def _lemma_2(seed: int) -> Sides:
    """Cross-entropy: the divergence by autograd equals the KL."""
    f, delta, y = 3 * torch.randn(3, 4, 2 + seed % 9, generator=seeded(seed), dtype=torch.float64)
    found = per_sample(cross_entropy(), f, delta, y.softmax(1))
    return equal(found, bregman_of_cross_entropy(f, delta), f"seed {seed}: {f.shape[1]} outputs")


@statement("Lemma 2, bound", "KL / (½‖Δf‖_∞²) ≤ 1, at any length")
def _lemma_2_bound(seed: int) -> Sides:
    """Cross-entropy: at most ½‖Δf‖_∞², for steps of any length; the worst ratio to it."""
    f, delta = 5 * torch.randn(2, 4, 2 + seed % 9, generator=seeded(seed), dtype=torch.float64)
    delta = delta * 10.0 ** (-3 * (seed % 3))
    ratio = bregman_of_cross_entropy(f, delta) / (0.5 * delta.abs().amax(1) ** 2)
    return Sides(float(ratio.max()), 1.0, f"seed {seed}: {f.shape[1]} outputs")


@statement("Theorem 1", "functional expansion, Assumption 1 made exact")
def _theorem_1(seed: int) -> Sides:
    """Under Assumption 1, 𝓛(w + Δw) equals its functional expansion."""
    problem, parts = assuming(seed)
    return equal(parts.after, parts.expansion, about(problem, seed))


@statement("Corollary 1", "the same for square loss")
def _corollary_1(seed: int) -> Sides:
    """The same with Lemma 1's closed form."""
    problem, parts = assuming(seed)
    expansion = parts.before + parts.slope + bregman_of_square(parts.delta).mean()
    return equal(parts.after, expansion, about(problem, seed))


@statement("Corollary 2", "cross-entropy: 𝓛(w + Δw) ≤ majorisation")
def _corollary_2(seed: int) -> Sides:
    """Under Assumption 1, 𝓛(w + Δw) ≤ 𝓛 + ∇𝓛ᵀΔw + mean ½‖Δf‖_∞²; targets are any vectors of sum 1."""
    problem = draw(seed, prescribed=False)
    while problem.targets.shape[1] < 3:
        seed += 100_003
        problem = draw(seed, prescribed=False)
    weights = {name: p.detach() for name, p in problem.model.named_parameters()}
    output, tangent = directional(
        lambda w: torch.func.functional_call(problem.model, w, (problem.inputs,)), weights, problem.updates
    )
    error = parts_of(problem).delta - tangent
    # p − y at right angles to the model's error and to the ones: Assumption 1 holds, and y still sums to 1
    basis, _ = torch.linalg.qr(torch.stack([torch.ones_like(error), error], dim=2))
    v = torch.randn(output.shape, generator=seeded(seed), dtype=torch.float64).unsqueeze(2)
    targets = output.softmax(1) - (v - basis @ (basis.mT @ v)).squeeze(2)
    loss = cross_entropy()
    parts = linearise(problem.model, loss, problem.inputs, targets, problem.updates)
    bound = parts.before + parts.slope + loss.bound(loss.measure(parts.delta)).mean()
    return Sides(float(parts.after), float(bound) + ROUNDING, about(problem, seed))


EXPANSION = [_proposition_1, _lemma_1, _lemma_2, _lemma_2_bound, _theorem_1, _corollary_1, _corollary_2]
"""The framework, for any model."""


_DAMPING = 0.1


@statement("Mirror descent", "linear model, square loss = normal equations")
def _mirror_descent(seed: int) -> Sides:
    generator = seeded(seed)
    d, outputs = 1 + seed % 5, 1 + seed % 4
    x = torch.randn(d + 5, d, generator=generator, dtype=torch.float64)
    y = torch.randn(d + 5, outputs, generator=generator, dtype=torch.float64)
    w = torch.randn(outputs, d, generator=generator, dtype=torch.float64)
    step = mirror_descent_step(square, w, x, y)
    return equal(w + step, torch.linalg.solve(x.T @ x, x.T @ y).T, f"seed {seed}: {d} inputs, {outputs} outputs")


@statement("Gauss-Newton", "damped step = normal equations of the dense Jacobian", share=0.5)
def _gauss_newton(seed: int) -> Sides:
    problem = draw(seed, deepest=3, widest=4)
    jacobian, residual = _jacobian(problem), (problem.model(problem.inputs).detach() - problem.targets).flatten()
    n = residual.numel()
    matrix = jacobian.T @ jacobian / n + _DAMPING * torch.eye(jacobian.shape[1], dtype=torch.float64)
    direct = torch.linalg.solve(matrix, -jacobian.T @ residual / n)
    step = gauss_newton_step(problem.model, problem.inputs, problem.targets, damping=_DAMPING)
    return equal(torch.cat([s.flatten() for s in step.values()]), direct, about(problem, seed))


@statement("Natural gradient", "damped step = (dense Fisher matrix)⁻¹ gradient", share=0.5)
def _natural_gradient(seed: int) -> Sides:
    problem = draw(seed, deepest=3, widest=4)
    labels = problem.targets.argmax(1)
    jacobian = _jacobian(problem).view(len(labels), -1, sum(w.numel() for w in problem.weights))
    probabilities = problem.model(problem.inputs).detach().softmax(1)
    # the Fisher matrix by definition: the mean outer product of scores, with labels drawn from the model
    scores = jacobian - (probabilities.unsqueeze(2) * jacobian).sum(1, keepdim=True)
    fisher = torch.einsum("nc,ncp,ncq->pq", probabilities, scores, scores) / len(labels)
    gradient = -scores[torch.arange(len(labels)), labels].mean(0)
    direct = torch.linalg.solve(fisher + _DAMPING * torch.eye(len(fisher), dtype=torch.float64), -gradient)
    step = natural_gradient_step(problem.model, problem.inputs, labels, damping=_DAMPING)
    return equal(torch.cat([s.flatten() for s in step.values()]), direct, about(problem, seed))


def _jacobian(problem: Draw) -> Tensor:
    """∂f/∂w, (samples × outputs) × weights, with one backward pass per row."""
    output = problem.model(problem.inputs).flatten()
    rows = []
    for value in output:
        gradients = torch.autograd.grad(value, list(problem.model.parameters()), retain_graph=True)
        rows.append(torch.cat([g.flatten() for g in gradients]))
    return torch.stack(rows)


RECOVERED = [_mirror_descent, _gauss_newton, _natural_gradient]
"""The section on recovered frameworks."""
