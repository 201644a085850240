"""Tensors, gradients and targets at the edge: nothing moves unless it should, and nothing blows up."""

import math

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD, explain, initialise_

KINDS = {"AGD": AGD, "StochasticAGD": StochasticAGD}
EMPTY = {
    "no inputs": lambda: nn.Linear(0, 3),
    "no outputs": lambda: nn.Linear(3, 0),
    "no rows": lambda: nn.Embedding(0, 3),
}


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_tensor_is_passed_over(name, kind):
    empty, full = EMPTY[name](), nn.Linear(3, 2)
    model = nn.Sequential(empty, full)
    kinds = {row.parameter: row.atom for row in explain(initialise_(model)).rows}
    assert (kinds["0.weight"], kinds["1.weight"]) == ("empty", "matrix")
    optimiser = kind(model)
    before = full.weight.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    assert not torch.equal(full.weight, before)
    again = kind(model)
    again.load_state_dict(optimiser.state_dict())
    again.step()
    kind(list(empty.parameters())).step()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_is_no_tensor_is_named(kind):
    with pytest.raises(TypeError, match=r"parameter 1 of group 0: expected a tensor, found a NoneType; leave it out"):
        kind([nn.Parameter(torch.ones(3)), None])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0])
def test_a_rate_that_is_no_multiplier_is_refused_by_its_name(kind, rate):
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=f"lr: expected a finite number ≥ 0, found {rate}"):
        kind([{"params": [weight], "lr": rate}])
    optimiser = kind([weight])
    optimiser.param_groups[0]["lr"] = rate  # as by a schedule
    weight.grad = torch.ones(2)
    with pytest.raises(ValueError, match=f"lr: expected a finite number ≥ 0, found {rate}"):
        optimiser.step()
    assert torch.equal(weight, torch.ones(2))


@pytest.mark.parametrize("geometry", ["frobenius", "spectral"])
@pytest.mark.parametrize("averaging", [False, True])
@pytest.mark.parametrize(("value", "said"), [(1e30, "norm overflows"), (math.nan, "is not finite")])
def test_a_gradient_that_is_refused_changes_neither_weights_nor_state(geometry, averaging, value, said):
    model = nn.Linear(3, 4)
    optimiser = AGD(model, geometry=geometry, averaging=averaging)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.weight.grad, model.bias.grad = torch.full((4, 3), value), torch.zeros(4)
    with pytest.raises(ValueError, match=said):
        optimiser.step()
    assert not any(optimiser.state.values())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    model.weight.grad = torch.ones(4, 3)
    optimiser.step()
    assert not torch.equal(model.weight, before["weight"])


@pytest.mark.parametrize("gain", [1.0, 30.0])
@pytest.mark.parametrize("decay", [1.0, 0.5])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_decay_keeps_weights_within_their_size_however_long_the_step(kind, decay, gain):
    torch.manual_seed(0)
    model = initialise_(nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False)))
    optimiser = kind(model, weight_decay=decay, gain=gain)
    x, y = torch.randn(32, 8), 1000 * torch.randn(32, 4)
    for _ in range(60):
        optimiser.zero_grad()
        (model(x) - y).square().mean().backward()
        optimiser.step()
        limit = 1.15 / decay  # a direction may be 0.14 above unit size
        for layer in model:
            size = math.sqrt(layer.out_features / layer.in_features)
            assert float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) < limit * size


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_averaging_in_half_precision_is_the_same_on_both_backends(dtype, decay):
    found = []
    for foreach in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
        optimiser = AGD(model, averaging=True, foreach=foreach, weight_decay=decay)
        for _ in range(20):
            optimiser.zero_grad()
            model(torch.randn(16, 6, dtype=dtype)).float().square().mean().backward()
            optimiser.step()
        with optimiser.averaged():
            found.append([parameter.detach().clone() for parameter in model.parameters()])
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_measured_sizes_beside_a_large_readout_do_not_raise_the_loss():
    for seed in range(20):
        torch.manual_seed(seed)
        layer, x = nn.Linear(5, 10), torch.randn(5)
        nn.init.normal_(layer.weight)  # three times Prescription 1's size
        nn.init.normal_(layer.bias)
        optimiser, losses = AGD(layer, sizes="measured"), []
        for _ in range(20):
            optimiser.zero_grad()
            losses.append(layer(x).square().mean() / 2)
            losses[-1].backward()
            optimiser.step()
        assert losses[-1] < 0.2 * losses[0], seed
