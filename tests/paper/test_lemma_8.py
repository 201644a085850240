import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from autogd.theory.s6_convergence import critical_point_rate, decrease
from paper_draws import forward, make, over_shapes, sphere, train


@settings(deadline=None, max_examples=50, derandomize=True)
@given(G=st.floats(1e-6, 2.0))
def test_the_least_of_the_majorisation_is_a_decrease_of_at_least_an_eleventh_of_the_square(G):
    found = minimize_scalar(
        lambda eta: 0.5 * math.expm1(eta) ** 2 - eta * G, bounds=(0, 2), method="bounded", options={"xatol": 1e-12}
    )
    assert found.fun <= -decrease(G) + 1e-12


@over_shapes(examples=10)
def test_one_linear_layer_meets_every_assumption_and_obeys_the_rate_from_its_own_start(depth, width, batch, seed):
    """One layer is linear in its weights, so Δf does not depend on their drift: Lemma 5 holds at every step."""
    problem = make(1, width, batch, seed)
    f = forward(problem.weights, problem.x)
    problem.y = -f / f.norm(dim=1, keepdim=True) * math.sqrt(problem.d_out)  # the worst possible start
    objectives, summaries = train(problem, 60)
    for t in range(60):
        assert objectives[t + 1] <= objectives[t] - decrease(summaries[t]) + 1e-12
        least = min(summaries[: t + 1]) ** 2
        assert least <= critical_point_rate(t + 1, start=objectives[0]) + 1e-12
        assert least <= critical_point_rate(t + 1)


@over_shapes(examples=10)
def test_the_rate_holds_on_deep_networks_from_a_random_start(depth, width, batch, seed):
    problem = make(depth, width, batch, seed)
    problem.y = sphere(batch, problem.d_out, torch.Generator().manual_seed(seed + 1))
    _, summaries = train(problem, 40)
    for t in range(40):
        assert min(summaries[: t + 1]) ** 2 <= critical_point_rate(t + 1)
