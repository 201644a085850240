"""Steps of StochasticAGD are the oracle's: an outlier, a fading stretch, noise, large matrices; early and late."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from autogd import StochasticAGD
from stochastic_oracle import Oracle


@pytest.mark.parametrize("settings", [{}, {"gain": 0.7, "weight_decay": 0.8}])
@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize(("layers", "taken"), [(3, 0), (9, 0), (3, 250)])
def test_the_steps_are_the_oracles(settings, foreach, layers, taken):
    widths = [6, *[9] * (layers - 1), 4]
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths))).double()
    with torch.no_grad():
        model[1].weight.mul_(9)  # above Prescription 1's size by far, and a little
        model[-2].weight.mul_(1.02 * 3 / model[-2].weight.norm())
    optimiser = StochasticAGD(model, foreach=foreach, **settings)
    oracle = Oracle([p.detach().numpy() for p in model.parameters()], **settings)
    if taken:  # late in a run, means reach as far back as they ever do
        oracle.steps, oracle.typical, oracle.last, oracle.alike = taken, 2.0, 1.5, 0.7
        optimiser.param_groups[0]["rate"] = torch.tensor([taken, 2.0, 1.5, 0.7], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    # an outlier and a fading stretch; at the end signs alternate, so that the momentum is small
    for i, size in enumerate([1.0, 2.0, 5000.0, 1.0, 1e-3, 1e-5, 1e-7, 3.0, -3.0, 3.0, -3.0, 3.0]):
        if i < 8:
            drawn = [torch.randn(p.shape, dtype=torch.float64, generator=generator) for p in model.parameters()]
        for p, g in zip(model.parameters(), drawn, strict=True):
            p.grad = size * g
        if i in (3, 4):  # rounding, and a gradient that counts however small it is
            model[1].bias.grad.mul_(1e-16)
            model[0].bias.grad.mul_(1e-12)
        eta, G = oracle.step([p.grad.numpy() for p in model.parameters()])
        optimiser.step()
        assert float(optimiser.learning_rate) == pytest.approx(eta, rel=1e-10)
        assert float(optimiser.gradient_summary) == pytest.approx(G, rel=1e-10)
        for p, w in zip(model.parameters(), oracle.weights, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-10, atol=1e-10)
    with optimiser.averaged():
        for p, w in zip(model.parameters(), oracle.averages, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-10, atol=1e-10)
