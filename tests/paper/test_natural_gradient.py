import numpy as np
import torch
from scipy.special import log_softmax

from autogd.theory.s3_recover import natural_gradient_step
from paper_draws import forward, make, over_shapes


def log_probabilities(problem, weights):
    return log_softmax(forward(weights, problem.x).numpy(), axis=1)


def scores(problem, epsilon=1e-6):
    """∂ log p(class | x)/∂w by central differences: samples × classes × weights."""
    columns = []
    for k, w in enumerate(problem.weights):
        for i in range(w.shape[0]):
            for j in range(w.shape[1]):
                ahead, behind = ([v.clone() for v in problem.weights] for _ in range(2))
                ahead[k][i, j] += epsilon
                behind[k][i, j] -= epsilon
                change = log_probabilities(problem, ahead) - log_probabilities(problem, behind)
                columns.append(change / (2 * epsilon))
    return np.stack(columns, 2)


@over_shapes(examples=15, outputs=2)
def test_step_is_the_inverse_of_the_dense_fisher_matrix_times_the_gradient(depth, width, batch, seed):
    problem = make(min(depth, 3), min(width, 5), batch, seed, outputs=2)
    labels = problem.y.argmax(1)
    S, p, damping = scores(problem), np.exp(log_probabilities(problem, problem.weights)), 0.05
    # the mean over the data, and over labels drawn from the model itself, of score times its transpose
    fisher = sum(p[n, c] * np.outer(S[n, c], S[n, c]) for n in range(batch) for c in range(problem.d_out)) / batch
    gradient = -np.mean([S[n, int(labels[n])] for n in range(batch)], axis=0)
    direct = np.linalg.solve(fisher + damping * np.eye(len(fisher)), -gradient)
    step = natural_gradient_step(problem.model, problem.x, labels, damping=damping)
    assert np.allclose(torch.cat([s.flatten() for s in step.values()]), direct, atol=1e-6)
