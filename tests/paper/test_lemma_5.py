import math

import torch

from autogd.optim import ExponentialMajorisation
from paper_draws import exact_directional, forward, make, make_assumption_1_hold, over_shapes, square


@over_shapes(outputs=2, examples=40)
def test_objective_stays_below_the_exponential_majorisation(depth, width, batch, seed):
    problem = make_assumption_1_hold(make(depth, width, batch, seed, outputs=2))
    f = forward(problem.weights, problem.x)
    before, after = square(f, problem.y), square(forward(problem.moved, problem.x), problem.y)
    # the linear term by the product rule; the lemma writes it as (η/L) Σ √(d_k/d_(k−1)) tr(ΔW_kᵀ∇_k)/‖ΔW_k‖_*
    slope = float(((f - problem.y) * exact_directional(problem)).sum(1).mean()) / problem.d_out
    G = torch.tensor(-slope / problem.eta, dtype=torch.float64)
    bound = ExponentialMajorisation().upper_bound(torch.tensor(problem.eta, dtype=torch.float64), G)
    assert after <= before + float(bound) + 1e-12
    assert float(bound) <= slope + 0.5 * math.expm1(problem.eta) ** 2 + 1e-12


@over_shapes(outputs=2)
def test_with_assumption_1_broken_its_term_is_what_the_bound_is_exceeded_by_at_most(depth, width, batch, seed):
    problem = make(depth, width, batch, seed, outputs=2)
    f, moved = forward(problem.weights, problem.x), forward(problem.moved, problem.x)
    before, after = square(f, problem.y), square(moved, problem.y)
    tangent = exact_directional(problem)
    slope = float(((f - problem.y) * tangent).sum(1).mean()) / problem.d_out
    model_term = float(((f - problem.y) * (moved - f - tangent)).sum(1).mean()) / problem.d_out
    assert after <= before + slope + model_term + 0.5 * math.expm1(problem.eta) ** 2 + 1e-12
