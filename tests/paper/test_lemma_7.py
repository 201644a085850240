import math

import torch

from autogd.theory.s6_convergence import gradient_bound
from paper_draws import aligned, forward, make, over_shapes, spectral, square


def gradients(problem, epsilon=1e-6):
    """∇_k by central differences, one entry at a time."""
    found = []
    for k, w in enumerate(problem.weights):
        g = torch.zeros_like(w)
        for i in range(w.shape[0]):
            for j in range(w.shape[1]):
                ahead, behind = ([v.clone() for v in problem.weights] for _ in range(2))
                ahead[k][i, j] += epsilon
                behind[k][i, j] -= epsilon
                change = square(forward(ahead, problem.x), problem.y) - square(forward(behind, problem.x), problem.y)
                g[i, j] = change / (2 * epsilon)
        found.append(g)
    return found


def bound(problem, k):
    objective = square(forward(problem.weights, problem.x), problem.y)
    norms = [spectral(w) for w in problem.weights]
    return gradient_bound(norms, k, objective, [float(x.norm()) for x in problem.x], problem.d_out)


@over_shapes(examples=10)
def test_gradient_is_never_larger_than_its_bound(depth, width, batch, seed):
    problem = make(min(depth, 3), min(width, 5), batch, seed, prescribed=False)
    for k, g in enumerate(gradients(problem)):
        assert float(g.norm()) <= bound(problem, k) * (1 + 1e-6) + 1e-6


@over_shapes(examples=10)
def test_aligned_layers_reach_two_and_break_the_papers_root_two(depth, width, batch, seed):
    problem = aligned(min(depth, 3), min(width, 4), 0.1, seed)
    for k, (g, w) in enumerate(zip(gradients(problem), problem.weights, strict=True)):
        scaled = math.sqrt(w.shape[0] / w.shape[1]) * float(g.norm())
        assert abs(scaled - 2) < 1e-6
        assert abs(bound(problem, k) * math.sqrt(w.shape[0] / w.shape[1]) - 2) < 1e-9
        assert scaled > math.sqrt(2)
