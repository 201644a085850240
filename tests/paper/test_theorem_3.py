import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autogd.losses import square_loss
from autogd.theory.s6_convergence import global_rate
from autogd.theory.s7_assumptions import measure_run
from paper_draws import DTYPE, Problem, forward, sphere, square, train


def orthogonal_inputs(width, outputs, seed):
    """One layer, as many samples as inputs, all at right angles: α is 1/√samples, by hand.

    ‖∇‖_F² = d_0 Σ‖f − y‖²/(n d_L)² = 2𝓛 d_0/(n d_L), and Lemma 7's bound squared is 2𝓛 d_0/d_L.
    """
    g = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(width, width, generator=g, dtype=DTYPE))
    w = torch.linalg.qr(torch.randn(max(width, outputs), min(width, outputs), generator=g, dtype=DTYPE))[0]
    w = (w if outputs >= width else w.T) * math.sqrt(outputs / width)
    return Problem([w], [torch.zeros_like(w)], q * math.sqrt(width), sphere(width, outputs, g), 0.0, g)


@settings(deadline=None, max_examples=15, derandomize=True)
@given(width=st.integers(1, 6), outputs=st.integers(1, 6), seed=st.integers(0, 2**16))
def test_objective_falls_at_the_corrected_rate_with_alpha_known_by_hand(width, outputs, seed):
    problem = orthogonal_inputs(width, outputs, seed)
    alpha = 1 / math.sqrt(width)
    objectives, _ = train(problem, 80)
    for t, objective in enumerate(objectives[:-1], start=1):
        assert objective <= global_rate(t, alpha) + 1e-12
        if objectives[0] <= 1:
            assert objective <= global_rate(t, alpha, "paper") + 1e-12
    assert objectives[-1] < 0.5 * objectives[0]


@settings(deadline=None, max_examples=15, derandomize=True)
@given(width=st.integers(1, 6), outputs=st.integers(1, 6), seed=st.integers(0, 2**16))
def test_alpha_measured_along_the_run_is_the_one_known_by_hand(width, outputs, seed):
    problem = orthogonal_inputs(width, outputs, seed)
    assert square(forward(problem.weights, problem.x), problem.y) > 0
    for record in measure_run(problem.model, square_loss, problem.x, problem.y, 5):
        assert abs(record.alpha - 1 / math.sqrt(width)) < 1e-6
