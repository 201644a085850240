"""The passes in C are compiled for several processors: each version gives the same directions, however weights lie."""

import pytest
import torch
from torch import nn

from autogd import StochasticAGD
from autogd.engine.distributed.polar import orthogonalise
from autogd.engine.library import compile_passes, library
from drawn_tensors import needs_library

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
