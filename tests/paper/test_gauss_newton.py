import numpy as np
import torch

from autogd.theory.s3_recover import gauss_newton_step
from paper_draws import forward, make, over_shapes


def jacobian(problem, epsilon=1e-6):
    """∂f/∂w by central differences, (samples × outputs) × weights."""
    columns = []
    for k, w in enumerate(problem.weights):
        for i in range(w.shape[0]):
            for j in range(w.shape[1]):
                ahead, behind = ([v.clone() for v in problem.weights] for _ in range(2))
                ahead[k][i, j] += epsilon
                behind[k][i, j] -= epsilon
                change = forward(ahead, problem.x) - forward(behind, problem.x)
                columns.append((change / (2 * epsilon)).flatten())
    return torch.stack(columns, 1).numpy()


@over_shapes(examples=15)
def test_damped_step_solves_the_normal_equations_of_the_dense_jacobian(depth, width, batch, seed):
    problem = make(min(depth, 3), min(width, 5), batch, seed)
    J = jacobian(problem)
    residual = (forward(problem.weights, problem.x) - problem.y).flatten().numpy()
    n, damping = len(residual), 0.05
    direct = np.linalg.solve(J.T @ J / n + damping * np.eye(J.shape[1]), -J.T @ residual / n)
    step = gauss_newton_step(problem.model, problem.x, problem.y, damping=damping)
    assert np.allclose(torch.cat([s.flatten() for s in step.values()]), direct, atol=1e-6)


@over_shapes(examples=10)
def test_undamped_step_of_a_linear_model_is_the_least_squares_solution(depth, width, batch, seed):
    problem = make(1, min(width, 5), batch, seed)
    w, x, y = problem.weights[0].numpy(), problem.x.numpy(), problem.y.numpy()
    nearest = np.linalg.lstsq(x, y - x @ w.T, rcond=1e-10)[0].T
    step = gauss_newton_step(problem.model, problem.x, problem.y)["0.weight"]
    assert np.allclose(x @ (step.numpy() - nearest).T, 0, atol=1e-7)
