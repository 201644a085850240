import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from autogd import AGD, initialise_
from autogd.losses import square_loss
from autogd.models import FCN
from autogd.optim import ExponentialMajorisation, Majorisation
from autogd.theory import Loss, losses, majorise, perturbation_bound
from autogd.theory.s5_majorise import FunctionalMajorisation, exponential

NETWORK = perturbation_bound(FCN(5, 8, 6, 2), sizes="prescribed")
RULES = {
    "default": majorise(),
    "default by newton": FunctionalMajorisation(losses.square.bound, exponential),
    "cross-entropy, 10 outputs": majorise(loss=losses.cross_entropy(10)),
    "huber": majorise(loss=losses.huber(0.1)),
    "huber by newton": FunctionalMajorisation(losses.huber(0.1).bound, exponential),
    "smooth hinge": majorise(loss="smooth-hinge"),
    "logistic": majorise(loss="logistic"),
    "poisson": majorise(loss="poisson"),
    "square, walked": majorise(architecture=NETWORK),
    "huber, walked": majorise(loss=losses.huber(0.05), architecture=NETWORK),
    "poisson, walked": majorise(loss=losses.poisson(1.0), architecture=NETWORK),
    "two bounds by hand": majorise(loss=lambda s: s**2 / 2 + s**4, architecture=lambda eta: torch.sinh(2 * eta)),
}


@pytest.mark.parametrize("name", RULES)
@settings(deadline=None, max_examples=25, derandomize=True)
@given(exponent=st.floats(-3, 2))
def test_learning_rate_is_where_a_numerical_minimiser_finds_the_least_bound(name, exponent):
    rule = RULES[name]
    G = torch.tensor(10.0**exponent, dtype=torch.float64)
    eta = float(rule.learning_rate(G))
    found = minimize_scalar(
        lambda t: float(rule.upper_bound(torch.tensor(t, dtype=torch.float64), G)),
        bounds=(0, 3 * eta + 1e-3), method="bounded", options={"xatol": 1e-10},
    )  # fmt: skip
    assert float(rule.upper_bound(torch.tensor(eta, dtype=torch.float64), G)) <= found.fun + 1e-12
    # near its minimum a bound is flat: rounding in its value moves the minimiser by the root of rounding
    assert eta == pytest.approx(found.x, rel=1e-4, abs=1e-7)


@settings(deadline=None, max_examples=50, derandomize=True)
@given(exponent=st.floats(-6, 4))
def test_newton_agrees_with_the_closed_forms_to_rounding(exponent):
    G = torch.tensor(10.0**exponent, dtype=torch.float64)
    for closed, newton in (("default", "default by newton"), ("huber", "huber by newton")):
        exact, found = (float(RULES[name].learning_rate(G)) for name in (closed, newton))
        assert found == pytest.approx(exact, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_default_is_theorem_2_bit_for_bit(dtype):
    G = torch.logspace(-6, 3, 50, dtype=dtype)
    eta = majorise().learning_rate(G)
    assert torch.equal(eta, ExponentialMajorisation().learning_rate(G))
    assert torch.equal(majorise().upper_bound(eta, G), ExponentialMajorisation().upper_bound(eta, G))
    assert torch.equal(majorise(loss="cross-entropy").learning_rate(G), eta)


def test_two_optimisers_with_the_default_and_without_take_the_same_steps():
    x, y = torch.randn(16, 4), torch.randn(16, 2)
    weights = []
    for rule in (None, majorise()):
        model = initialise_(FCN(3, 8, 4, 2), torch.Generator().manual_seed(0))
        optimiser = AGD(model, majorisation=rule)
        for _ in range(3):
            optimiser.zero_grad()
            square_loss(model(x), y).backward()
            optimiser.step()
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*weights)


class NoLooking(TorchDispatchMode):
    """Raises if a number would be read back from a device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "a number was read back"
        assert func is not torch.ops.aten.nonzero.default, "a shape was read back"
        return func(*args, **(kwargs or {}))


def test_the_watch_for_read_numbers_sees_them():
    with pytest.raises(AssertionError, match="read back"), NoLooking():
        torch.ones(()).item()


@pytest.mark.parametrize("name", RULES)
def test_learning_rate_never_waits_for_the_device(name):
    rule, G = RULES[name], torch.tensor(0.3)
    rule.learning_rate(G)
    with NoLooking():
        eta = rule.learning_rate(G)
    assert eta.dtype == torch.float32
    assert eta.shape == ()
    assert not eta.requires_grad


@pytest.mark.parametrize("name", RULES)
def test_no_gradient_gives_no_step_and_more_gradient_a_longer_one(name):
    G = torch.tensor([0.0, 1e-8, 1e-3, 0.1, 1.0, 10.0], dtype=torch.float64)
    eta = RULES[name].learning_rate(G)
    assert float(eta[0]) == 0
    assert (eta.diff() > 0).all()
    assert isinstance(RULES[name], Majorisation)


def test_a_bound_with_a_corner_at_zero_takes_no_step_below_its_slope():
    rule = majorise(loss=lambda s: s + s**2, architecture=lambda eta: eta)
    assert float(rule.learning_rate(torch.tensor(0.5))) == 0
    assert float(rule.learning_rate(torch.tensor(2.0, dtype=torch.float64))) == pytest.approx(0.5)


@pytest.mark.parametrize("bound", [lambda s: s.sqrt(), lambda s: -s, lambda s: torch.sin(s), lambda s: 0 * s])
def test_a_bound_that_does_not_grow_convexly_is_refused(bound):
    with pytest.raises(ValueError, match="must grow, and be convex"):
        majorise(loss=bound)


def test_a_loss_of_ones_own_in_ten_lines_trains():
    """Log-cosh: its second derivative is at most one, so the bound is s²/2; the rest follows."""
    log_cosh = Loss("log-cosh", lambda f, y: (f - y).cosh().log().mean(), lambda s: s**2 / 2)
    model = initialise_(nn.Sequential(nn.Linear(4, 16, bias=False), nn.ReLU(), nn.Linear(16, 1, bias=False)))
    optimiser = AGD(model, majorisation=majorise(loss=log_cosh, architecture=model))
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    y = x[:, :1]
    history = []
    for _ in range(40):
        optimiser.zero_grad()
        loss = log_cosh(model(x), y)
        loss.backward()
        optimiser.step()
        history.append(loss.item())
    assert all(b < a for a, b in pairwise(history))
    assert history[-1] < 0.2 * history[0]
    assert math.isfinite(history[-1])
