"""AGD is Theorem 2, exactly."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import nn

from autogd import AGD, initialise_
from autogd.losses import square_loss
from autogd.models import FCN
from autogd.optim import ExponentialMajorisation
from oracle import algorithm_1, gradients

pytestmark = pytest.mark.filterwarnings("ignore:.*told from shape alone")
PATHS = pytest.mark.parametrize("foreach", [False, None], ids=["readable", "multi-tensor"])


@PATHS
@given(
    depth=st.integers(1, 6), width=st.integers(1, 12), d_in=st.integers(1, 9), d_out=st.integers(1, 5),
    batch=st.integers(1, 8), seed=st.integers(0, 2**16),
)  # fmt: skip
def test_ten_steps_on_a_network_agree_with_algorithm_1(foreach, depth, width, d_in, d_out, batch, seed):
    generator = torch.Generator().manual_seed(seed)
    model = initialise_(FCN(depth, width, d_in, d_out).double(), generator)
    x = torch.randn(batch, d_in, dtype=torch.float64, generator=generator)
    y = torch.randn(batch, d_out, dtype=torch.float64, generator=generator)
    optimiser = AGD(model, foreach=foreach)
    weights = [p.detach().numpy().copy() for p in model.parameters()]
    for _ in range(10):
        optimiser.zero_grad()
        square_loss(model(x), y).backward()
        grads = gradients(weights, x.numpy(), y.numpy())
        if any(not g.any() for g in grads):
            break  # a dead relu: 0/0 in Algorithm 1 as written; what we do then has its own test
        optimiser.step()
        weights, eta, G = algorithm_1(weights, grads)
        # near the minimum a gradient is a difference of nearly equal numbers: only its absolute error is small
        np.testing.assert_allclose(float(optimiser.learning_rate), eta, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(float(optimiser.gradient_summary), G, rtol=1e-10, atol=1e-13)
        for p, w in zip(model.parameters(), weights, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-10, atol=1e-12)


@PATHS
@given(
    kernels=st.lists(st.lists(st.integers(1, 4), min_size=0, max_size=3), min_size=1, max_size=4),
    out=st.integers(1, 6), inn=st.integers(1, 6), seed=st.integers(0, 2**16),
)  # fmt: skip
def test_ten_steps_on_kernels_of_any_size_agree_with_algorithm_1(foreach, kernels, out, inn, seed):
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((out, inn, *taps)) for taps in kernels]
    parameters = [nn.Parameter(torch.tensor(w)) for w in weights]
    optimiser = AGD(parameters, foreach=foreach)
    for _ in range(10):
        grads = [rng.standard_normal(w.shape) * rng.choice([1e-3, 1.0, 1e3]) for w in weights]
        for p, g in zip(parameters, grads, strict=True):
            p.grad = torch.tensor(g)
        optimiser.step()
        weights, eta, G = algorithm_1(weights, grads)
        np.testing.assert_allclose(float(optimiser.learning_rate), eta, rtol=1e-10)
        np.testing.assert_allclose(float(optimiser.gradient_summary), G, rtol=1e-10)
        for p, w in zip(parameters, weights, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-10, atol=1e-12)


@given(log_G=st.floats(-6, 4))
def test_eta_minimises_the_right_hand_side_of_lemma_5(log_G):
    G = 10.0**log_G
    best = minimize_scalar(
        lambda eta: 0.5 * (np.exp(eta) - 1) ** 2 - eta * G, bounds=(0, 12), method="bounded", options={"xatol": 1e-12}
    )
    eta = ExponentialMajorisation().learning_rate(torch.tensor(G, dtype=torch.float64))
    bound = ExponentialMajorisation().upper_bound(eta, torch.tensor(G, dtype=torch.float64))
    assert float(eta) == pytest.approx(best.x, abs=2e-6, rel=1e-5)
    assert float(bound) <= best.fun + 1e-12


def test_eta_keeps_its_digits_when_the_gradient_is_tiny():
    eta = ExponentialMajorisation().learning_rate(torch.tensor(1e-9))
    assert float(eta) == pytest.approx(1e-9, rel=1e-6)
