"""AGD is Theorem 2 and Algorithm 1, exactly; the rule alone, on plain numbers."""

from types import SimpleNamespace

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
from autogd.optim.rule import ROW, above_noise_floor, summarise, theorem_2


def forward(weights, x):
    """Activations of a bias-free network with relu(z)·√2 between its layers."""
    activations = [x]
    for i, w in enumerate(weights):
        x = x @ w.T
        if i + 1 < len(weights):
            x = np.sqrt(2) * np.maximum(x, 0)
        activations.append(x)
    return activations


def gradients(weights, x, y):
    """Gradients of the mean over the batch of ‖f − y‖² / (2 d_L)."""
    activations = forward(weights, x)
    delta = (activations[-1] - y) / y.size
    grads = []
    for i in range(len(weights) - 1, -1, -1):
        grads.insert(0, delta.T @ activations[i])
        delta = (delta @ weights[i]) * np.sqrt(2) * (activations[i] > 0)
    return grads


def algorithm_1(weights, grads):
    """One step on matrices and kernels (out, in, taps...): the new weights, η and G."""
    depth = len(weights)
    G = 0.0
    for w, g in zip(weights, grads, strict=True):
        for tap in np.ndindex(*w.shape[2:]):
            G += scale(w) * np.sqrt((g[(slice(None), slice(None), *tap)] ** 2).sum()) / depth
    eta = np.log((1 + np.sqrt(1 + 4 * G)) / 2)
    moved = []
    for w, g in zip(weights, grads, strict=True):
        w = w.copy()
        for tap in np.ndindex(*w.shape[2:]):
            at = (slice(None), slice(None), *tap)
            w[at] -= eta / depth * scale(w) * g[at] / np.sqrt((g[at] ** 2).sum())
        moved.append(w)
    return moved, eta, G


def scale(w):
    """√(d_out/d_in), over √taps for a kernel."""
    return np.sqrt(w.shape[0] / w.shape[1] / np.prod(w.shape[2:]))


PATHS = pytest.mark.parametrize("foreach", [False, None], ids=["readable", "multi-tensor"])


@pytest.mark.filterwarnings("ignore:.*told from shape alone")
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


@pytest.mark.filterwarnings("ignore:.*told from shape alone")
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


@pytest.mark.filterwarnings("ignore:.*told from shape alone")
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


@pytest.mark.filterwarnings("ignore:.*told from shape alone")
def test_eta_keeps_its_digits_when_the_gradient_is_tiny():
    eta = ExponentialMajorisation().learning_rate(torch.tensor(1e-9))
    assert float(eta) == pytest.approx(1e-9, rel=1e-6)


def parts_of(tensors, noise_floor=0.0, own_weight=None, own_weight_floor=0.0):
    """Tensors as (scale, depth share, parts), as `Parts` has them."""
    sizes = [parts for *_, parts in tensors]
    owner = torch.tensor([i for i, size in enumerate(sizes) for _ in range(size)])
    scale, share = (torch.tensor([t[i] for t in tensors], dtype=torch.float64) for i in (0, 1))
    count = torch.tensor(sizes, dtype=torch.float64)

    def totals(values):
        return values.new_zeros(len(sizes)).index_add_(0, owner, values)

    return SimpleNamespace(
        depth=float((share * count).sum()), depth_shares=share, reach=(scale * share)[owner],
        part_to_tensor=(count / share)[owner], noise_floor=noise_floor, own_weight=own_weight,
        own_weight_floor=own_weight_floor, others=None, totals=None if max(sizes) == 1 else totals,
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, ROW - 1, ROW, ROW + 1, 5 * ROW + 3])
def test_every_part_counts_in_the_summary_however_many_there_are(count):
    norms = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    summary = summarise(norms, parts_of([(1.0, 1.0, count)]))
    assert float(summary.G) == pytest.approx(np.mean(norms.numpy()), rel=1e-12)


@pytest.mark.parametrize("share", [1.0, 1 / 32])
def test_the_noise_floor_compares_whole_tensors_whatever_their_share_of_the_depth(share):
    # a table of two rows, each of scale × norm 1: the tensor has 2, and a tenth of that is 0.2
    tensors = parts_of([(1.0, share, 2), (1.0, 1.0, 1)], noise_floor=0.1)
    for lone, above in ((0.19, False), (0.21, True)):
        norms = torch.tensor([1.0, 1.0, lone], dtype=torch.float64)
        assert above_noise_floor(tensors.reach * norms, tensors).tolist() == [True, True, above]


def test_a_part_below_the_noise_floor_neither_moves_nor_counts():
    # a bias, and the weight of its layer, at three and at half times the floor
    layer = parts_of([(2.0, 1.0, 1), (1.0, 0.5, 1)], own_weight=torch.tensor([0, 0]), own_weight_floor=1e-3)
    for size, moves in ((6e-3, True), (1e-3, False)):
        norms = torch.tensor([1.0, size], dtype=torch.float64)
        eta, coefficients, summary = theorem_2(norms, layer, lambda G: G)
        assert float(summary.G) == pytest.approx((2 + moves * 0.5 * size) / 1.5, rel=1e-12)
        # −(η/L) × scale × depth share / norm
        expected = [-float(eta) / 1.5 * 2, -moves * float(eta) / 1.5 * 0.5 / size]
        assert coefficients.tolist() == pytest.approx(expected, rel=1e-12)
