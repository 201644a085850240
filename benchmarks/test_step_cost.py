"""What a step costs, beside torch's own optimisers, on three sets of tensors. Run: make bench."""

import copy

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD
from autogd.models import FCN, ResNet18

SETS = {
    "MLP, 32 layers": lambda: FCN(32, 300, 300, 300),
    "ResNet-18": lambda: ResNet18(10),
    "1,000 tiny tensors": lambda: nn.ModuleList(nn.Linear(10, 10, bias=False) for _ in range(1000)),
}
OPTIMISERS = {
    "AGD": AGD,
    "AGD, readable": lambda model: AGD(model, foreach=False),
    "StochasticAGD": StochasticAGD,
    "Adam, fused": lambda model: torch.optim.Adam(model.parameters(), fused=True),
    "SGD, fused": lambda model: torch.optim.SGD(model.parameters(), fused=True),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("tensors", SETS)
def test_step(benchmark, tensors, optimiser):
    benchmark.group = tensors
    model = copy.deepcopy(SETS[tensors]())
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    stepper = OPTIMISERS[optimiser](model)
    benchmark.pedantic(stepper.step, rounds=5, warmup_rounds=1)
    assert all(torch.isfinite(p).all() for p in model.parameters())
