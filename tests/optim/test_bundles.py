"""Small tensors that are alike move together as each would by itself."""

import copy

import pytest
import torch
from torch import nn

from autogd import StochasticAGD
from autogd.optim import bundles


def network():
    torch.manual_seed(0)
    blocks = [nn.Conv2d(3, 6, 3), nn.ReLU(), *(nn.Conv2d(6, 6, 3, padding=1) for _ in range(3)), nn.Flatten()]
    layers = [nn.Linear(216, 8), *(nn.Linear(8, 8) for _ in range(4)), nn.LayerNorm(8), nn.Linear(8, 8, bias=False)]
    return nn.Sequential(*blocks, *layers).double()


def trained(model, groups, **settings):
    optimiser = StochasticAGD(model if groups is None else groups(model), **settings)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        x = torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=generator)
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()
    with optimiser.averaged():
        averages = [p.detach().clone() for p in model.parameters()]
    return [p.detach() for p in model.parameters()] + averages


def two_groups(model):
    return [{"params": model[:7]}, {"params": model[7:], "lr": 0.5, "weight_decay": 0.1}]


@pytest.mark.parametrize("geometry", ["frobenius", "spectral", "operator"])
@pytest.mark.parametrize("groups", [None, two_groups])
@pytest.mark.parametrize("channels_last", [False, True])
def test_together_they_move_as_each_would_alone(monkeypatch, geometry, groups, channels_last):
    model = network()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    other = copy.deepcopy(model)
    moved = trained(model, groups, geometry=geometry)
    monkeypatch.setattr(bundles, "ROOM", 0)
    alone = trained(other, groups, geometry=geometry)
    for one, two in zip(moved, alone, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)


def test_no_bundle_is_larger_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(bundles, "ROOM", 200)
    model = network()
    model(torch.randn(5, 3, 8, 8, dtype=torch.float64)).sum().backward()
    optimiser = StochasticAGD(model)
    plan = optimiser._plan()
    found = bundles.bundles(plan)
    assert [at for bundle in found for at in range(bundle.where.start, bundle.where.stop)] == list(
        range(len(plan.parameters))
    )
    counts = [bundle.where.stop - bundle.where.start for bundle in found]
    assert max(counts) > 1
    for bundle, count in zip(found, counts, strict=True):
        assert count == 1 or sum(p.numel() for p in plan.parameters[bundle.where]) <= 200
