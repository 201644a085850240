"""The three recovered methods, against direct computations with dense matrices."""

import torch
from torch import Tensor

from autogd.theory.check.draws import Draw, draw
from autogd.theory.check.statement import Sides, about, equal, seeded, statement
from autogd.theory.s1_losses import square
from autogd.theory.s3_recover import gauss_newton_step, mirror_descent_step, natural_gradient_step

__all__ = ["RECOVERED"]

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
