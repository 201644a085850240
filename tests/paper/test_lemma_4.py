import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autogd.theory import perturbation_bound
from autogd.theory.s4_bound import deep_relative_trust
from paper_draws import aligned, forward, make, over_shapes, spectral


@over_shapes(examples=40)
def test_output_never_moves_further_than_deep_relative_trust_allows(depth, width, batch, seed):
    problem = make(depth, width, batch, seed, prescribed=False)
    norms, steps = [spectral(w) for w in problem.weights], [spectral(u) for u in problem.updates]
    moved = forward(problem.moved, problem.x) - forward(problem.weights, problem.x)
    for x, delta in zip(problem.x, moved, strict=True):
        assert float(delta.norm()) <= deep_relative_trust(norms, steps, float(x.norm())) * (1 + 1e-12)


@over_shapes
def test_a_prescribed_network_moves_by_at_most_the_exponential_of_eta_less_one(depth, width, batch, seed):
    problem = make(depth, width, batch, seed)
    delta = forward(problem.moved, problem.x) - forward(problem.weights, problem.x)
    rms = float(delta.square().mean(1).sqrt().max())
    walked = perturbation_bound(problem.model).change(problem.eta / depth)
    assert rms <= walked * (1 + 1e-9)
    assert walked <= math.expm1(problem.eta) * (1 + 1e-9)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(width=st.integers(1, 10), eta=st.floats(0.01, 0.75), seed=st.integers(0, 2**16))
def test_the_bound_is_tight(width, eta, seed):
    depth = 64
    problem = aligned(depth, width, eta, seed)
    delta = forward(problem.moved, problem.x) - forward(problem.weights, problem.x)
    reached = float(delta.norm())
    norms, steps = [spectral(w) for w in problem.weights], [spectral(u) for u in problem.updates]
    assert reached >= (1 - 1e-9) * deep_relative_trust(norms, steps, float(problem.x.norm()))
    assert reached >= 0.99 * math.sqrt(problem.d_out) * math.expm1(eta)
    # reading the Module gives the same number
    walked = perturbation_bound(problem.model).change(eta / depth) * math.sqrt(problem.d_out)
    assert abs(walked / reached - 1) < 1e-6


def test_the_bound_is_tight_after_a_search_too():
    """Gradient ascent on ‖Δf‖ over updates of given norm, from a random start, ends at the bound of an aligned net."""
    problem = aligned(3, 4, 0.6, seed=0)
    updates = [
        torch.randn(u.shape, generator=problem.generator, dtype=u.dtype).requires_grad_() for u in problem.updates
    ]
    optimiser = torch.optim.Adam(updates, lr=0.05)
    sizes = [spectral(u) for u in problem.updates]

    def moved():
        unit = [s * u / torch.linalg.matrix_norm(u, ord=2) for s, u in zip(sizes, updates, strict=True)]
        problem.updates = unit
        return (forward(problem.moved, problem.x) - forward(problem.weights, problem.x)).norm()

    for _ in range(400):
        optimiser.zero_grad()
        (-moved()).backward()
        optimiser.step()
    bound = deep_relative_trust([spectral(w) for w in problem.weights], sizes, float(problem.x.norm()))
    assert 0.99 * bound <= moved().item() <= bound * (1 + 1e-12)
