import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from autogd import AGD
from autogd.losses import square_loss
from autogd.theory import majorise
from paper_draws import forward, make, over_shapes


@settings(deadline=None, max_examples=60, derandomize=True)
@given(exponent=st.floats(-4, 3))
def test_the_learning_rate_minimises_the_majorisation(exponent):
    G = 10.0**exponent
    found = minimize_scalar(
        lambda eta: 0.5 * math.expm1(eta) ** 2 - eta * G,
        bounds=(0, 2 + math.log1p(G)),
        method="bounded",
        options={"xatol": 1e-12},
    )
    eta = majorise().learning_rate(torch.tensor(G, dtype=torch.float64))
    assert abs(float(eta) - found.x) < 1e-6 * (1 + found.x)


@over_shapes
def test_the_step_of_agd_minimises_the_majorisation_over_all_directions_for_one_sample(depth, width, batch, seed):
    """With one sample every gradient has rank one: Assumption 2 holds exactly, and so must the theorem."""
    problem = make(depth, width, 1, seed)
    model = problem.model
    square_loss(model(problem.x), problem.y).backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    optimiser = AGD(model)
    optimiser.step()
    eta, G = float(optimiser.learning_rate), float(optimiser.gradient_summary)
    steps = [p.detach() - w for p, w in zip(model.parameters(), problem.weights, strict=True)]

    # the least that tr(ΔWᵀ∇) can be at unit operator norm is minus the nuclear norm, a sum of singular values
    scales = [math.sqrt(w.shape[0] / w.shape[1]) for w in problem.weights]
    nuclear = [float(np.linalg.svd(g.numpy(), compute_uv=False).sum()) for g in gradients]
    best_slope = sum(s * n for s, n in zip(scales, nuclear, strict=True)) / depth
    found = minimize_scalar(
        lambda t: 0.5 * math.expm1(t) ** 2 - t * best_slope, bounds=(0, 3), method="bounded", options={"xatol": 1e-12}
    )
    slope = sum(float((u * g).sum()) for u, g in zip(steps, gradients, strict=True))
    assert slope + 0.5 * math.expm1(eta) ** 2 <= found.fun + 1e-9
    assert abs(G - best_slope) < 1e-9
    for u, s in zip(steps, scales, strict=True):
        assert np.linalg.norm(u.numpy(), 2) <= s * eta / depth * (1 + 1e-9)


def test_without_assumption_2_another_direction_is_better():
    """The proof's first sentence needs the assumption: on a gradient of stable rank above one, UVᵀ beats ∇/‖∇‖_*."""
    gradient = np.diag([2.0, 1.0])
    claimed = (gradient**2).sum() / np.linalg.norm(gradient, 2)
    u, _, vt = np.linalg.svd(gradient)
    assert (u @ vt * gradient).sum() == 3.0 > claimed == 2.5


@over_shapes(examples=10)
def test_the_slope_of_the_step_is_eta_times_summary_whatever_the_stable_rank(depth, width, batch, seed):
    problem = make(depth, width, batch, seed)
    model = problem.model
    square_loss(model(problem.x), problem.y).backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    optimiser = AGD(model)
    optimiser.step()
    slope = sum(
        float(((p.detach() - w) * g).sum())
        for p, w, g in zip(model.parameters(), problem.weights, gradients, strict=True)
    )
    assert abs(slope + float(optimiser.learning_rate * optimiser.gradient_summary)) < 1e-12
    assert bool(torch.isfinite(forward(problem.weights, problem.x)).all())
