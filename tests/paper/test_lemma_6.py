import torch

from autogd.theory.s6_convergence import objective_bound
from paper_draws import aligned, forward, make, over_shapes, square


def bounds(problem, form):
    f = forward(problem.weights, problem.x)
    norms = [float(a.norm()) for a in f], [float(b.norm()) for b in problem.y]
    return objective_bound(*norms, problem.d_out, form)


@over_shapes
def test_objective_is_at_most_two_however_the_targets_are_turned(depth, width, batch, seed):
    problem = make(depth, width, batch, seed)
    f = forward(problem.weights, problem.x)
    norms = f.norm(dim=1, keepdim=True)
    for sign in (-1.0, 1.0):
        problem.y = torch.where(norms > 0, sign * f / norms * problem.d_out**0.5, problem.y)
        objective = square(f, problem.y)
        assert objective <= bounds(problem, "corrected") + 1e-12
        assert bounds(problem, "corrected") <= 2 + 1e-12


@over_shapes
def test_targets_against_an_aligned_network_reach_two_and_break_the_papers_bound(depth, width, batch, seed):
    problem = aligned(depth, width, 0.1, seed)
    objective = square(forward(problem.weights, problem.x), problem.y)
    assert abs(objective - 2) < 1e-12
    assert abs(bounds(problem, "paper") - 1) < 1e-12


@over_shapes
def test_the_papers_bound_holds_where_no_output_is_against_its_target(depth, width, batch, seed):
    problem = make(depth, width, batch, seed)
    f = forward(problem.weights, problem.x)
    against = (f * problem.y).sum(1, keepdim=True) < 0
    problem.y = torch.where(against, -problem.y, problem.y)
    assert square(f, problem.y) <= bounds(problem, "paper") + 1e-12
