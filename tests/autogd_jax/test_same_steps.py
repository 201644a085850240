"""PyTorch and JAX take the same steps from the same weights and gradients, whatever the atom."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import optax
import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD
from autogd.jax import agd, atoms, averaged, default_label, stochastic_agd

HEADS = 2


class Everything(nn.Module):
    """A layer of every atom: table, positions, packed attention, kernels with and without groups, gains, biases."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.positions = nn.Parameter(0.1 * torch.randn(1, 6, 8))
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, HEADS, batch_first=True)
        self.conv = nn.Conv2d(1, 8, 3)
        self.grouped = nn.Conv2d(8, 4, (1, 2), groups=2)
        self.batch_norm = nn.BatchNorm2d(4)
        self.hidden = nn.Linear(4 * 4 * 5, 12)
        self.slope = nn.PReLU()
        self.out = nn.Linear(12, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embed(tokens) + self.positions)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = self.batch_norm(self.grouped(self.conv(x.unsqueeze(1)).relu()))
        return self.out(self.slope(self.hidden(x.flatten(1))))


# the place of each of torch's parameters in the pytree, and how its axes are permuted
PLACES = {
    "embed.weight": ("embed/embedding", None),
    "positions": ("positions", None),
    "norm.weight": ("norm/scale", None),
    "norm.bias": ("norm/bias", None),
    "attention.in_proj_weight": ("qkv/kernel", (1, 0)),
    "attention.in_proj_bias": ("qkv/bias", None),
    "attention.out_proj.weight": ("out_proj/kernel", (1, 0)),
    "attention.out_proj.bias": ("out_proj/bias", None),
    "conv.weight": ("conv/kernel", (2, 3, 1, 0)),
    "conv.bias": ("conv/bias", None),
    "grouped.weight": ("grouped/kernel", (2, 3, 1, 0)),
    "grouped.bias": ("grouped/bias", None),
    "batch_norm.weight": ("batch_norm/scale", None),
    "batch_norm.bias": ("batch_norm/bias", None),
    "hidden.weight": ("hidden/kernel", (1, 0)),
    "hidden.bias": ("hidden/bias", None),
    "slope.weight": ("slope/negative_slope", None),
    "out.weight": ("out/kernel", (1, 0)),
    "out.bias": ("out/bias", None),
}


def label(path, array):
    if path == "qkv/kernel":
        return atoms.matrix(array, stack=3)
    if path == "qkv/bias":
        return atoms.bias(array, stack=3)
    if path == "out/kernel":  # the readout; "slope" and "qkv" would follow it by name
        return replace(default_label(path, array), free=True)
    if path == "grouped/kernel":
        return atoms.kernel(array, groups=2)
    return default_label(path, array)


def as_tree(tensors):
    tree = {}
    for name, tensor in tensors.items():
        path, order = PLACES[name]
        array = tensor.detach().numpy().copy()  # a copy: torch changes its own in place
        *owner, leaf = path.split("/")
        place = tree.setdefault(owner[0], {}) if owner else tree
        place[leaf] = array if order is None else array.transpose(order)
    return tree


def gradients(model, step):
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(9, (7, 6), generator=generator)  # rows 9 and 10 of the table get no gradient
    labels = torch.randint(5, (7,), generator=generator)
    model.zero_grad()
    nn.functional.cross_entropy(model(tokens), labels).backward()
    return as_tree({name: parameter.grad for name, parameter in model.named_parameters()})


def distance(model, params):
    """The largest difference of any number, relative to the largest of its array."""
    mine = as_tree(dict(model.named_parameters()))
    return max(
        float(np.abs(a - np.asarray(b)).max() / max(np.abs(a).max(), 1e-9))
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(params), strict=True)
    )


@pytest.fixture
def model(request):
    dtype = getattr(torch, request.param)
    with jax.enable_x64(request.param == "float64"):
        yield Everything().to(dtype)


def tolerance(model):
    return 1e-6 if model.out.weight.dtype == torch.float32 else 1e-13


@pytest.mark.parametrize(
    ("model", "settings"), [("float32", {}), ("float64", {"gain": 0.5, "weight_decay": 0.125})], indirect=["model"]
)
def test_ten_steps_of_agd_are_the_same(model, settings):
    theirs = AGD(model, **settings)
    ours = agd(label=label, **settings)
    params = as_tree(dict(model.named_parameters()))
    start = params
    state = ours.init(params)

    @jax.jit
    def step(grads, state, params):
        updates, state = ours.update(grads, state, params if settings else None)
        return optax.apply_updates(params, updates), state

    for i in range(10):
        params, state = step(gradients(model, i), state, params)
        theirs.step()
        assert distance(model, params) < tolerance(model)
        assert float(state.learning_rate) == pytest.approx(float(theirs.learning_rate), rel=1e-6)
        assert float(state.gradient_summary) == pytest.approx(float(theirs.gradient_summary), rel=1e-6)
    assert distance(model, start) > 0.01
    # what no token picked did not move, nor did the keys' bias, which changes no output
    assert (params["embed"]["embedding"][9:] == start["embed"]["embedding"][9:]).all() or settings
    assert (params["qkv"]["bias"][8:16] == start["qkv"]["bias"][8:16]).all()


@pytest.mark.parametrize(
    ("model", "gain", "empty"), [("float32", 1.0, False), ("float64", 0.5, True)], indirect=["model"]
)
def test_ten_steps_of_stochastic_agd_are_the_same(model, gain, empty, monkeypatch):
    """Also at another gain, and if the first batch has no gradient; in C matrices are orthogonalised otherwise."""
    monkeypatch.setattr("autogd.engine.library.library", lambda: None)
    theirs, ours = StochasticAGD(model, gain=gain), stochastic_agd(label=label, gain=gain)
    start = params = as_tree(dict(model.named_parameters()))
    state = ours.init(params)

    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # compiling takes most of the time here
    def step(grads, state, params):
        updates, state = ours.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    # momentum and direction are rounded to half the bytes, so a last digit may fall to either side; how often, depends
    # on the processor (0.0022 on one). The case in float64 holds the rule itself
    tolerance = 1e-2 if model.out.weight.dtype == torch.float32 else 1e-6
    for i in range(10):
        grads = gradients(model, i)
        if empty and i == 0:
            grads = jax.tree.map(np.zeros_like, grads)
            for parameter in model.parameters():
                parameter.grad.zero_()
        params, state = step(grads, state, params)
        theirs.step()
        assert distance(model, params) < tolerance
        assert float(state.learning_rate) == pytest.approx(float(theirs.learning_rate), rel=tolerance)
    assert distance(model, start) > 0.01
    with theirs.averaged():
        assert distance(model, averaged(params, state)) < tolerance
        assert distance(model, params) > 1e-3
