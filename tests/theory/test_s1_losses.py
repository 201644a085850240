import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autogd.theory import bregman, check_convexity, losses
from autogd.theory.s1_bregman import NotConvexWarning, per_sample

ALL = {
    "square": (losses.square, "real"),
    "cross-entropy": (losses.cross_entropy(), "probability"),
    "cross-entropy of 5": (losses.cross_entropy(5), "probability"),
    "huber": (losses.huber(0.7), "real"),
    "logistic": (losses.logistic(), "sign"),
    "poisson": (losses.poisson(largest=2.0), "count"),
    "smooth hinge": (losses.smooth_hinge(0.5), "sign"),
}


def draw(kind, seed, length, rows=6, outputs=5):
    g = torch.Generator().manual_seed(seed)
    f, delta, y = torch.randn(3, rows, outputs, generator=g, dtype=torch.float64)
    y = {"real": 2 * y, "probability": y.softmax(1), "sign": y.sign(), "count": (3 * y.abs()).floor()}[kind]
    return 2 * f, length * delta, y


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None, max_examples=25, derandomize=True)
@given(seed=st.integers(0, 2**16), length=st.sampled_from([1e-2, 0.3, 2.0, 20.0]))
def test_divergence_never_exceeds_its_bound(name, seed, length):
    loss, kind = ALL[name]
    f, delta, y = draw(kind, seed, length)
    f = f.clamp(max=2.0)  # poisson's stated domain
    if name == "poisson":
        delta = delta.clamp(-20, 20)
    divergence = per_sample(loss, f, delta, y)
    bound = loss.bound(loss.measure(delta))
    assert (divergence <= bound * (1 + 1e-9) + 1e-9).all()
    assert (divergence >= -1e-9 * (1 + bound)).all()


@pytest.mark.parametrize(
    ("name", "size"),
    # a quarter of the curvature is reached by logistic loss only for short steps
    [("logistic", 0.01), *((name, size) for name in ("square", "huber", "smooth hinge") for size in (0.01, 1.0, 5.0))],
)
def test_the_bound_is_the_least_there_is_where_it_says_so(name, size):
    """The worst starting point on a fine grid reaches the bound."""
    loss, _ = ALL[name]
    f = torch.linspace(-8, 8, 16_001, dtype=torch.float64).unsqueeze(1)
    delta, y = torch.full_like(f, size), torch.ones_like(f)
    worst = per_sample(loss, f, delta, y).max()
    bound = loss.bound(torch.tensor(size, dtype=torch.float64))
    assert float(worst) == pytest.approx(float(bound), rel=2e-3)


@pytest.mark.parametrize("name", ALL)
def test_convex_losses_pass_the_convexity_check(name):
    loss, kind = ALL[name]
    f, _, y = draw(kind, 0, 1.0)
    assert check_convexity(loss, f, y)


@pytest.mark.parametrize(
    "loss",
    [
        lambda f, y: (f - y).abs().sqrt().mean(),
        lambda f, y: (1 - torch.exp(-((f - y) ** 2))).mean(),
        lambda f, y: -((f - y) ** 2).mean(),
        lambda f, y: torch.sin(f).mean(),
    ],
)
def test_a_loss_that_is_not_convex_is_warned_of(loss):
    f, _, y = draw("real", 0, 1.0)
    with pytest.warns(NotConvexWarning, match="not convex in the output"):
        assert not check_convexity(loss, f, y)


def test_bregman_reduces_as_the_loss_does():
    f, delta, y = draw("real", 3, 1.0)
    each = bregman(lambda a, b: 0.5 * (a - b).square().mean(1), f, delta, y)
    assert each.shape == (6,)
    assert np.allclose(each, 0.5 * delta.numpy() ** 2 @ np.full(5, 0.2))
    assert float(bregman(losses.square, f, delta, y)) == pytest.approx(float(each.mean()))


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"threshold: expected a finite number > 0, found -1"):
        losses.huber(-1.0)
    with pytest.raises(ValueError, match=r"width: .*nan"):
        losses.smooth_hinge(math.nan)
    with pytest.raises(ValueError, match="'hinge' is not known; use one of square"):
        losses.find_loss("hinge")
    with pytest.raises(ValueError, match=r"output is \(2, 3\) and delta \(3,\)"):
        bregman(losses.square, torch.zeros(2, 3), torch.zeros(3), torch.zeros(2, 3))
