"""Gradients that are zero, noise, or not finite."""

import copy
import math

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD, initialise_
from autogd.losses import square_loss
from autogd.models import FCN

# these tests make lone tensors; that atoms are then guessed has a test of its own
pytestmark = pytest.mark.filterwarnings("ignore:.*told from shape alone")
PATHS = pytest.mark.parametrize("foreach", [False, None], ids=["readable", "multi-tensor"])


@PATHS
def test_a_matrix_or_tap_without_gradient_does_not_move_and_the_rest_does(foreach):
    parameters = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3, 4, 2))]
    before = [p.detach().clone() for p in parameters]
    parameters[0].grad = torch.zeros(3, 4)
    parameters[1].grad = torch.randn(3, 4, 2)
    parameters[1].grad[:, :, 0] = 0
    optimiser = AGD(parameters, foreach=foreach)
    optimiser.step()
    assert torch.equal(parameters[0], before[0])
    assert torch.equal(parameters[1][:, :, 0], before[1][:, :, 0])
    moved = (parameters[1].detach() - before[1])[:, :, 1].norm()
    # one of two layers, one of two taps: (η/2)·√(3/4)/√2
    assert float(moved) == pytest.approx(float(optimiser.learning_rate) / 2 * math.sqrt(3 / 4 / 2), rel=1e-5)


@PATHS
def test_when_all_gradients_are_zero_nothing_moves_and_the_rate_is_zero(foreach):
    p = nn.Parameter(torch.randn(3, 4))
    before = p.detach().clone()
    p.grad = torch.zeros(3, 4)
    optimiser = AGD([p], foreach=foreach)
    optimiser.step()
    assert torch.equal(p, before)
    assert float(optimiser.learning_rate) == 0


class DeadBranch(nn.Module):
    """`shift` adds one number to all inputs of a softmax: its true gradient is zero, its computed one is rounding."""

    def __init__(self):
        super().__init__()
        self.features = nn.Linear(16, 32, bias=False)
        self.shift = nn.Linear(16, 1, bias=False)

    def forward(self, x):
        return torch.log_softmax(self.features(x) + self.shift(x), dim=-1)


@PATHS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_layer_whose_true_gradient_is_zero_does_not_disturb_the_others(foreach, dtype):
    """Its own walk cannot be told from a small gradient that counts, and changes no output."""
    seen, ends = 0.0, []
    for silenced in (False, True):
        torch.manual_seed(0)
        model = initialise_(DeadBranch().to(dtype))
        optimiser = AGD(model, foreach=foreach)
        for _ in range(100):
            x = torch.randn(64, 16, dtype=dtype)
            optimiser.zero_grad()
            nn.functional.nll_loss(model(x), torch.randint(32, (64,))).backward()
            seen = max(seen, float(model.shift.weight.grad.norm()))
            if silenced:
                model.shift.weight.grad.zero_()
            optimiser.step()
        ends.append(model.features.weight.detach())
    assert seen > 0, "rounding left no gradient: the test shows nothing"
    assert torch.allclose(*ends, rtol=1e-3, atol=1e-4)


def test_a_small_gradient_above_rounding_is_heard():
    parameters = [nn.Parameter(torch.zeros(4, 4)) for _ in range(2)]
    parameters[0].grad = torch.eye(4)
    parameters[1].grad = torch.eye(4) * 1e-9
    optimiser = AGD(parameters)
    optimiser.step()
    assert torch.allclose(parameters[0], parameters[1], rtol=1e-5)


@PATHS
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_on_the_cpu_a_gradient_that_is_not_finite_raises_before_any_weight_is_touched(foreach, bad):
    model = FCN(3, 4, 4, 4)
    before = [p.detach().clone() for p in model.parameters()]
    model(torch.randn(2, 4)).sum().backward()
    model.layers[1].weight.grad[0, 0] = bad
    with pytest.raises(ValueError, match=r"layers\.1\.weight: its gradient is not finite; no weight was changed"):
        AGD(model, foreach=foreach).step()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_gradients_too_large_for_their_norm_are_told_from_ones_that_are_not_finite():
    p = nn.Parameter(torch.zeros(2, 2))
    p.grad = torch.full((2, 2), 1e30)
    with pytest.raises(ValueError, match="norm overflows"):
        AGD([p]).step()


@PATHS
def test_where_looking_would_wait_for_a_device_the_update_is_masked_and_counted(foreach, as_on_an_accelerator):
    model = FCN(3, 4, 4, 4)
    optimiser = AGD(model, foreach=foreach, weight_decay=0.5)
    before = [p.detach().clone() for p in model.parameters()]
    for bad in (float("nan"), float("inf")):
        optimiser.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        model.layers[1].weight.grad[0, 0] = bad
        optimiser.step()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert int(optimiser.skipped_steps) == 2
    optimiser.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimiser.step()
    assert int(optimiser.skipped_steps) == 2
    assert not any(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_norms_are_accumulated_in_float32(dtype):
    p = nn.Parameter(torch.zeros(512, 512, dtype=dtype))
    p.grad = torch.full((512, 512), 200.0, dtype=dtype)  # its squared norm is far beyond float16
    optimiser = AGD([p])
    optimiser.step()
    assert optimiser.gradient_summary.dtype == torch.float32
    assert float(optimiser.gradient_summary) == pytest.approx(200.0 * 512, rel=1e-3)
    assert torch.allclose(p.float(), -optimiser.learning_rate / 512, rtol=1e-2)


def test_parameters_without_gradient_are_left_out_of_the_depth():
    model = initialise_(FCN(4, 8, 8, 8))
    whole, half = AGD(model), AGD(model.layers[:2])
    for p in model.layers[2:].parameters():
        p.requires_grad_(False)
    square_loss(model(torch.randn(4, 8)), torch.randn(4, 8)).backward()
    start = [p.detach().clone() for p in model.parameters()]
    whole.step()
    with torch.no_grad():
        for p, s in zip(model.parameters(), start, strict=True):
            p.copy_(s)
    half.step()
    assert torch.equal(whole.gradient_summary, half.gradient_summary)


def test_no_bytes_of_state_beside_the_weights():
    model = FCN(3, 64, 64, 64)
    optimiser = AGD(model)
    for _ in range(3):
        optimiser.zero_grad()
        model(torch.randn(2, 64)).square().mean().backward()
        optimiser.step()
    assert sum(t.nbytes for s in optimiser.state.values() for t in s.values() if torch.is_tensor(t)) == 0
    assert optimiser.state_dict()["state"] == {}
    held = [t for t in vars(optimiser).values() if torch.is_tensor(t)]
    assert sum(t.numel() for t in held) == 3  # η, G and the count of skipped steps
    (backend,) = optimiser._backends.values()
    extra = [t for t in vars(backend.plan).values() if torch.is_tensor(t)]
    assert sum(t.numel() for t in extra) == 10 * 3  # ten numbers a matrix, however large the matrix


def test_weight_decay_of_one_keeps_a_weight_within_its_target_size():
    model = initialise_(nn.Linear(8, 8, bias=False))
    optimiser = AGD(model, weight_decay=1.0)
    for _ in range(50):
        model.weight.grad = -torch.eye(8)  # a gradient that always asks for more
        optimiser.step()
    assert float(torch.linalg.matrix_norm(model.weight.detach(), 2)) <= 1 + 1e-5


@pytest.mark.parametrize("foreach", [None, False])
def test_weight_decay_goes_by_a_tensor_s_share_of_the_depth(foreach):
    torch.manual_seed(0)
    layer = nn.Linear(5, 4).double()
    twin = copy.deepcopy(layer)
    for one, settings in ((layer, {"weight_decay": 0.6}), (twin, {})):
        optimiser = AGD(one, foreach=foreach, **settings)
        one.weight.grad, one.bias.grad = torch.ones(4, 5).double(), torch.ones(4).double()
        before = {name: p.detach().clone() for name, p in one.named_parameters()}
        optimiser.step()
    depth, eta = 1 + 1 / 32, float(optimiser.learning_rate)
    for name, share in (("weight", 1.0), ("bias", 1 / 32)):
        lost = before[name] * 0.6 * eta * share / depth
        torch.testing.assert_close(getattr(layer, name), getattr(twin, name) - lost, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("foreach", [False, None], ids=["readable", "fast"])
@pytest.mark.parametrize("make", [AGD, StochasticAGD])
def test_to_ascend_the_negative_objective_is_to_descend(make, foreach):
    ends = []
    for sign in (1, -1):
        generator = torch.Generator().manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        with torch.no_grad():
            for parameter in model.parameters():  # above their sizes, so that decay and hold have work
                parameter.copy_(3 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
        optimiser = make(model, weight_decay=0.5, maximize=sign < 0, foreach=foreach)
        for _ in range(3):
            for parameter in model.parameters():
                parameter.grad = sign * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            optimiser.step()
        ends.append([parameter.detach() for parameter in model.parameters()])
    for one, two in zip(*ends, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("averaging", [False, True])
def test_on_a_device_where_it_may_not_look_a_masked_step_has_no_rate_and_leaves_no_trace(
    averaging, as_on_an_accelerator
):
    model = nn.Linear(4, 2).double()
    optimiser = AGD(model, averaging=averaging)
    for bad in (False, True, False):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, math.nan if bad else 1.0)
        optimiser.step()
        assert bool(optimiser.learning_rate > 0) == (not bad)
        moved = [not torch.equal(one, two) for one, two in zip(model.parameters(), before, strict=True)]
        assert moved == [not bad] * 2
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


@pytest.mark.parametrize("make", [AGD, StochasticAGD])
def test_one_group_s_decay_is_not_the_others(make):
    ends = []
    for groups in ({}, {"0.*": {"weight_decay": 0.5}}):
        generator = torch.Generator().manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False)).double()
        for parameter in model.parameters():
            parameter.data = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            parameter.grad = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        start = model[0].weight.detach().clone()
        optimiser = make(model, groups=groups)
        optimiser.step()
        ends.append([parameter.detach() for parameter in model.parameters()])
    (free, other), (decayed, same) = ends
    assert torch.equal(other, same)
    lost = (free - decayed).norm() / start.norm()
    assert float(lost) == pytest.approx(0.5 * float(optimiser.learning_rate) / 2, rel=0.3)  # hold comes before decay


@pytest.mark.parametrize("make", [AGD, StochasticAGD])
@PATHS
def test_a_gradient_below_the_smallest_normal_number_never_makes_a_weight_infinite(make, foreach):
    p = nn.Parameter(torch.ones(1, 1))
    p.grad = torch.full((1, 1), 1e-40)
    make([p], foreach=foreach).step()
    assert p.isfinite().all()


@PATHS
def test_a_hidden_matrix_above_its_size_is_not_pulled_back_without_a_gradient(foreach):
    experts = [nn.Parameter(20 * torch.randn(4, 4)) for _ in range(2)]
    readout = nn.Parameter(torch.randn(2, 4))
    before = [p.detach().clone() for p in experts]
    optimiser = StochasticAGD([*experts, readout], foreach=foreach)
    experts[0].grad = torch.zeros(4, 4)  # as if no token chose it
    experts[1].grad, readout.grad = torch.randn(4, 4), torch.randn(2, 4)
    optimiser.step()
    assert torch.equal(experts[0], before[0])
    assert experts[1].norm() < before[1].norm()
