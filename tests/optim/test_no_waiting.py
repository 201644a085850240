"""A step never waits for a device: it reads no number, except in one check on the CPU, where that is free."""

from functools import partial

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 8), nn.LayerNorm(8), nn.Linear(8, 2)
    )


def test_the_watch_sees_every_way_to_look(looks):
    number = torch.tensor(1.0)
    _ = number.item(), float(number), bool(number), int(number), number.tolist()
    if number:
        pass
    assert {"item", "__float__", "__bool__", "__int__", "tolist"} <= set(looks)


@pytest.mark.parametrize("foreach", [False, None], ids=["readable", "multi-tensor"])
@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "maximize": True}])
def test_a_step_on_the_cpu_looks_once(foreach, settings, looks):
    model = network()
    optimiser = AGD(model, foreach=foreach, **settings)
    for _ in range(3):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        looks.clear()
        optimiser.step()
        assert looks == ["__bool__"]


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "maximize": True}, {"geometry": "frobenius"}])
def test_a_step_for_minibatches_looks_twice(settings, looks):
    model = network()
    optimiser = StochasticAGD(model, **settings)
    for step in range(3):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        looks.clear()
        optimiser.step()
        # whether all is finite, and whether there is a gradient at all; and once more before there is any state
        assert looks == ["__bool__"] * (2 if step else 3)


@pytest.mark.parametrize("make", [partial(AGD, foreach=False), AGD, StochasticAGD])
def test_where_looking_would_wait_a_step_does_not_look(make, looks, as_on_an_accelerator):
    model = network()
    optimiser = make(model)
    for _ in range(2):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        looks.clear()
        optimiser.step()
        assert looks == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here to wait for")
def test_a_step_on_cuda_does_not_synchronise():
    model = network().cuda()
    optimiser = AGD(model, weight_decay=0.1)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimiser.step()  # the first step sends the plan's constants
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimiser.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
