"""A step is the same on any number of threads, and the passes on any processor of a kind."""

from functools import partial

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD
from autogd.engine.distributed.polar import orthogonalise
from autogd.engine.library import compile_passes, library
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


LAYERS = {
    "square": lambda: nn.Linear(80, 80, bias=False),
    "wide": lambda: nn.Linear(100, 33, bias=False),
    "tall": lambda: nn.Linear(33, 100, bias=False),
    "kernel": lambda: nn.Conv2d(40, 40, 3, bias=False),
    "wide kernel": lambda: nn.Conv2d(50, 20, (1, 3), bias=False),
    "tall kernel": lambda: nn.Conv2d(20, 50, (3, 1), bias=False),
    "channels last": lambda: nn.Conv2d(40, 34, 3, bias=False).to(memory_format=torch.channels_last),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The library for any processor at all: no wide registers, no choice when it is loaded."""
    target = tmp_path_factory.mktemp("plain") / "passes.library"
    if trouble := compile_passes("cc -DAUTOGD_PLAIN", target):
        pytest.skip(trouble)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autogd.engine.library.LIBRARY", target)
        found = library.__wrapped__()
    assert found is not None
    return found


def step(make):
    """What a step from zero changes, at operator norm about one, and the gradient, both as batches of matrices."""
    torch.manual_seed(0)
    weight = (layer := make()).weight
    nn.init.zeros_(weight)
    weight.grad = torch.empty_like(weight).copy_(torch.randn(weight.shape))
    StochasticAGD(layer).step()

    def parts(tensor):
        return tensor.detach().reshape(*tensor.shape[:2], -1).permute(2, 0, 1)

    change = -parts(weight)
    return change / torch.linalg.matrix_norm(change, 2).amax(), parts(weight.grad)


@needs_library
@pytest.mark.parametrize("name", LAYERS)
def test_every_version_gives_the_rational_factor(name, plain, monkeypatch):
    ours, grads = step(LAYERS[name])
    monkeypatch.setattr("autogd.engine.library.library", lambda: plain)
    theirs, _ = step(LAYERS[name])
    expected = orthogonalise(grads.double())
    expected /= torch.linalg.matrix_norm(expected, 2).amax()
    for found in (ours, theirs):
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.01 * float(expected.abs().max()))
    assert theirs.norm() > 0
