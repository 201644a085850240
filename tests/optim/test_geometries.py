"""AGD without Assumption 2: its steps beside readable ones, from exact singular values."""

import math

import pytest
import torch
from torch import nn

from autogd import AGD, initialise_
from autogd.geometry.polar import orthogonalise
from autogd.losses import square_loss
from autogd.models import FCN


def network():
    return initialise_(FCN(4, 12, 20, 5), torch.Generator().manual_seed(3)).double()


def gradients(model):
    generator = torch.Generator().manual_seed(7)
    x, y = (torch.randn(64, n, generator=generator, dtype=torch.float64) for n in (20, 5))
    model.zero_grad()
    loss = square_loss(model(x), y)
    loss.backward()
    return float(loss.detach())


def one_step_by_hand(model, turn):
    """Theorem 2 with another direction: G sums the slopes along directions of operator norm one."""
    layers = [(p, math.sqrt(p.shape[0] / p.shape[1]), turn(p.grad)) for p in model.parameters()]
    G = sum(scale * float((d * p.grad).sum()) for p, scale, d in layers) / len(layers)
    eta = math.log((1 + math.sqrt(1 + 4 * G)) / 2)
    with torch.no_grad():
        for p, scale, d in layers:
            p -= eta / len(layers) * scale * d
    return eta, G


def test_a_few_steps_equal_those_by_hand():
    fast, plain = network(), network()
    optimiser = AGD(fast, geometry="spectral")
    for _ in range(5):
        gradients(fast)
        # from the same weights each time, so that errors do not add up
        for p, q in zip(plain.parameters(), fast.parameters(), strict=True):
            p.data, p.grad = q.detach().clone(), q.grad.clone()
        optimiser.step()
        eta, G = one_step_by_hand(plain, lambda g: orthogonalise(g.unsqueeze(0))[0])
        assert float(optimiser.learning_rate) == pytest.approx(eta, rel=1e-12)
        assert float(optimiser.gradient_summary) == pytest.approx(G, rel=1e-12)
        for p, q in zip(fast.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


def test_spectral_summary_is_the_nuclear_norm_s_and_its_step_attains_the_polar_factor():
    model = network()
    optimiser = AGD(model, geometry="spectral")
    gradients(model)
    before = [p.detach().clone() for p in model.parameters()]
    grads = [p.grad.clone() for p in model.parameters()]
    optimiser.step()
    scales = [math.sqrt(g.shape[0] / g.shape[1]) for g in grads]
    exact = sum(s * float(torch.linalg.matrix_norm(g, "nuc")) for s, g in zip(scales, grads, strict=True)) / 4
    assert float(optimiser.gradient_summary) == pytest.approx(exact, rel=0.145)
    for p, b, g, scale in zip(model.parameters(), before, grads, scales, strict=True):
        u, s, vh = torch.linalg.svd(g, full_matrices=False)
        moved = u.mT @ (b - p.detach()) @ vh.mT / (float(optimiser.learning_rate) / 4 * scale)
        within = s > s[0] / 200  # the polynomial's reach
        assert ((moved.diagonal() - 1).abs()[within] < 0.145).all()


def test_the_loss_falls_and_the_other_settings_still_hold():
    model = network()
    optimiser = AGD(model, geometry="spectral", weight_decay=0.1, gain=0.5)
    losses = []
    for _ in range(10):
        losses.append(gradients(model))
        optimiser.step()
    assert losses == sorted(losses, reverse=True)
    rise = AGD(model, geometry="spectral", maximize=True)
    for _ in range(3):
        gradients(model)
        rise.step()
    assert gradients(model) > losses[-1]


def test_a_matrix_whose_gradient_was_zero_once_moves_again():
    model = nn.Linear(6, 5, bias=False)
    other = nn.Linear(6, 5, bias=False)
    optimiser = AGD(nn.ModuleList([model, other]), geometry="spectral")
    for zero in (False, True, False):
        before = model.weight.detach().clone()
        for p in (model.weight, other.weight):
            p.grad = torch.randn_like(p)
        if zero:
            model.weight.grad.zero_()
        optimiser.step()
        assert torch.equal(model.weight, before) == zero


def test_a_gradient_that_is_not_finite_spoils_no_later_step():
    model = network()
    optimiser = AGD(model, geometry="spectral")
    for bad in (False, True, False):
        gradients(model)
        before = [p.detach().clone() for p in model.parameters()]
        if bad:
            model.layers[1].weight.grad[0, 0] = float("nan")
            with pytest.raises(ValueError, match=r"layers\.1\.weight: its gradient is not finite"):
                optimiser.step()
        else:
            optimiser.step()
        moved = [not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True)]
        assert moved == [not bad] * 4
