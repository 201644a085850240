"""The number of threads changes no digit of a step, given the same gradients."""

from functools import partial

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD
from drawn_tensors import needs_library

KINDS = {"AGD": AGD, "StochasticAGD": StochasticAGD}


class Rows(nn.Module):
    """More parts than torch adds up on one thread."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40_001, 3)
        self.head = nn.Linear(3, 7)


MODELS = {
    "matrices": lambda: nn.Sequential(nn.Linear(301, 257), nn.ReLU(), nn.Linear(257, 5)),
    "kernels": lambda: nn.Sequential(nn.Conv2d(3, 33, 3), nn.Conv2d(33, 68, 3), nn.Conv2d(68, 64, 3, groups=4)),
    "channels last": lambda: nn.Sequential(nn.Conv2d(3, 33, 5), nn.Conv2d(33, 66, 3)).to(
        memory_format=torch.channels_last
    ),
    "rows": Rows,
    "cells": lambda: nn.LSTM(17, 31, 2),
    "few numbers": lambda: nn.Linear(2, 3),
    "more than one run": lambda: nn.Linear(1100, 1003),
}


def after_steps(make, kind, threads):
    torch.manual_seed(0)
    model = make()
    optimiser = kind(model)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(2):  # the second has a momentum
            for parameter in model.parameters():
                parameter.grad = torch.empty_like(parameter).copy_(torch.randn(parameter.shape))
            optimiser.step()
    finally:
        torch.set_num_threads(before)
    return {name: weight.clone() for name, weight in model.state_dict().items()}


@needs_library
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_the_same_on_any_number_of_threads(name, kind):
    compare(name, KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_the_sums_of_the_foreach_backend_are_too(name, kind, monkeypatch):
    monkeypatch.setattr("autogd.engine.library.library", lambda: None)
    # torch's products of matrices may round otherwise on another processor
    compare(name, partial(KINDS[kind], geometry="frobenius"))


def compare(name, make):
    alone = after_steps(MODELS[name], make, 1)
    for threads in (2, 3, 7):
        for parameter, weight in after_steps(MODELS[name], make, threads).items():
            assert torch.equal(weight, alone[parameter]), f"{parameter} on {threads} threads"
