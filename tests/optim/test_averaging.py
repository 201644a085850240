"""AGD with averaging: three points of which two are held, and a model that moves as far as AGD's."""

import copy
import io
from functools import partial

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD, initialise_
from autogd.optim.averaging import BETA, newest_weight

AveragedAGD = partial(AGD, averaging=True)


def network(dtype=torch.float64):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 6), nn.Flatten(), nn.Linear(18, 9), nn.Tanh(), nn.Linear(9, 2))
    return model.to(dtype)


def backward(model, i):
    generator = torch.Generator().manual_seed(i)
    model.zero_grad()
    model(torch.randint(7, (5, 3), generator=generator)).square().mean().backward()


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def averages(model, optimiser):
    with optimiser.averaged():
        return flat(model.parameters()).clone()


def test_the_three_points_are_those_of_the_definition():
    model = network()
    optimiser = AveragedAGD(model)
    z = x = flat(model.parameters()).clone()
    squares = 0.0
    for i in range(20):
        y = flat(model.parameters()).clone()
        twin = copy.deepcopy(model)
        backward(twin, i)
        alone = AGD(twin)
        alone.step()
        step = flat(twin.parameters()) - y  # AGD's own, from where the model is
        squares += float(alone.learning_rate) ** 2
        c = float(alone.learning_rate) ** 2 / squares
        z = z + step / (1 - BETA + BETA * c)
        x = x + c * (z - x)
        backward(model, i)
        optimiser.step()
        torch.testing.assert_close(flat(model.parameters()), (1 - BETA) * z + BETA * x, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(averages(model, optimiser), x, rtol=1e-9, atol=1e-12)


def test_the_first_step_is_agds():
    models = [network(), network()]
    for model, make in zip(models, (AGD, AveragedAGD), strict=True):
        backward(model, 0)
        make(model, weight_decay=0.3).step()
    torch.testing.assert_close(*(flat(model.parameters()) for model in models))


def steps(dtype=torch.float32, count=6, **settings):
    model = network(dtype)
    optimiser = AveragedAGD(model, **settings)
    for i in range(count):
        backward(model, i)
        optimiser.step()
    return optimiser, flat(model.parameters()).float(), averages(model, optimiser).float()


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.4}, {"maximize": True}, {"gain": 0.5}])
def test_all_backends_agree(settings, monkeypatch):
    _, *found = steps(**settings)
    others = [steps(foreach=False, **settings)[1:], steps(torch.float64, **settings)[1:]]
    monkeypatch.setattr("autogd.engine.library.library", lambda: None)
    others.append(steps(**settings)[1:])
    for other in others:
        for a, b in zip(found, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_an_average_that_somebody_has_laid_out_otherwise_goes_torchs_way():
    models = [nn.Conv2d(4, 8, 3), nn.Conv2d(4, 8, 3)]
    models[1].load_state_dict(models[0].state_dict())
    optimisers = [AveragedAGD(model) for model in models]
    for i in range(4):
        for at, (model, optimiser) in enumerate(zip(models, optimisers, strict=True)):
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
            if i == 2 and at == 0:
                state = optimiser.state[model.weight]
                state["average"] = state["average"].to(memory_format=torch.channels_last)
            optimiser.step()
    torch.testing.assert_close(*(flat(model.parameters()) for model in models))
    torch.testing.assert_close(*(averages(m, o) for m, o in zip(models, optimisers, strict=True)))


def test_half_precision_is_averaged_in_float32():
    optimiser, weights, average = steps(torch.bfloat16)
    assert {state["average"].dtype for state in optimiser.state.values()} == {torch.float32}
    _, expected, mean = steps()
    assert float((weights - expected).norm() / expected.norm()) < 0.02
    assert float((average - mean).norm() / mean.norm()) < 0.02


def test_it_resumes_to_the_bit():
    model = network(torch.float32)
    optimiser = AveragedAGD(model)
    for i in range(3):
        backward(model, i)
        optimiser.step()
    held = io.BytesIO()
    torch.save([model.state_dict(), optimiser.state_dict()], held)
    held.seek(0)
    weights, state = torch.load(held, weights_only=True)
    other = network(torch.float32)
    other.load_state_dict(weights)
    resumed = AveragedAGD(other)
    resumed.load_state_dict(state)
    for i in range(3, 6):
        for m, o in ((model, optimiser), (other, resumed)):
            backward(m, i)
            o.step()
    assert torch.equal(flat(model.parameters()), flat(other.parameters()))
    assert torch.equal(averages(model, optimiser), averages(other, resumed))


def test_a_gradient_that_is_not_finite_changes_nothing(as_on_an_accelerator):
    model = network(torch.float32)
    optimiser = AveragedAGD(model, weight_decay=0.1)
    for i in range(3):
        backward(model, i)
        optimiser.step()
    before = flat(model.parameters()).clone(), averages(model, optimiser)
    model[2].weight.grad[0, 0] = torch.inf
    optimiser.step()
    assert torch.equal(flat(model.parameters()), before[0])
    assert torch.equal(averages(model, optimiser), before[1])
    assert int(optimiser.skipped_steps) == 1


def test_no_gradient_is_no_step():
    model = network()
    optimiser = AveragedAGD(model)
    before = flat(model.parameters()).clone()
    for _ in range(2):
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimiser.step()
    assert torch.equal(flat(model.parameters()), before)
    assert torch.equal(averages(model, optimiser), before)


def test_the_state_is_four_bytes_a_weight():
    optimiser, weights, _ = steps()
    assert sum(t.nbytes for state in optimiser.state.values() for t in state.values()) == 4 * len(weights)


def test_a_step_inside_averaged_is_refused():
    model = network()
    optimiser = AveragedAGD(model)
    backward(model, 0)
    optimiser.step()
    with optimiser.averaged(), pytest.raises(RuntimeError, match="leave the block"):
        optimiser.step()


def test_noise_is_averaged_away():
    target = torch.randn(8, 1, generator=torch.Generator().manual_seed(0))
    ends = {}
    for make in (AGD, AveragedAGD):
        model = initialise_(nn.Sequential(nn.Linear(8, 1, bias=False)), torch.Generator().manual_seed(1))
        optimiser, generator = make(model), torch.Generator().manual_seed(2)
        for _ in range(300):
            x = torch.randn(8, 8, generator=generator)
            optimiser.zero_grad()
            (model(x) - x @ target - torch.randn(8, 1, generator=generator)).square().mean().backward()
            optimiser.step()
        with optimiser.averaged():
            ends[make] = float((model[0].weight.detach().T - target).norm())
    assert ends[AveragedAGD] < ends[AGD] / 2


def test_the_first_average_is_where_the_first_step_ends():
    model, other = network(), network()
    optimiser = AveragedAGD(model)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimiser.step()  # as some do to have a state to load into
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3.0)
    other.load_state_dict(model.state_dict())
    for m, o in ((model, optimiser), (other, AGD(other))):
        backward(m, 0)
        o.step()
    torch.testing.assert_close(flat(model.parameters()), flat(other.parameters()))
    torch.testing.assert_close(averages(model, optimiser), flat(other.parameters()).detach())


@pytest.mark.parametrize("foreach", [None, False])
def test_a_group_at_rate_zero_rests(foreach):
    model = network(torch.float32)
    groups = [{"params": model[:3]}, {"params": model[3:]}]
    optimiser = AveragedAGD(groups, foreach=foreach, weight_decay=0.1)
    for i in range(5):
        backward(model, i)
        optimiser.step()
    before = [p.detach().clone() for p in model.parameters()], averages(model, optimiser)
    optimiser.param_groups[0]["lr"] = 0.0
    backward(model, 5)
    optimiser.step()
    resting = sum(p.numel() for p in model[:3].parameters())
    assert torch.equal(flat(model.parameters())[:resting], flat(before[0])[:resting])
    assert torch.equal(averages(model, optimiser)[:resting], before[1][:resting])
    assert not torch.equal(flat(model.parameters())[resting:], flat(before[0])[resting:])


@pytest.mark.parametrize("make", [AveragedAGD, StochasticAGD])
def test_the_default_device_is_nobodys_business(make):
    first, second = nn.Linear(4, 5), nn.Linear(5, 4)
    optimiser = make([{"params": first}, {"params": second, "gain": 0.5}])
    for device in ("cpu", "meta"):
        for p in (*first.parameters(), *second.parameters()):
            p.grad = torch.ones(p.shape, device="cpu")
        with torch.device(device):
            optimiser.step()
    assert torch.isfinite(flat(first.parameters())).all()


@pytest.mark.parametrize("setting", ["gain", "lr"])
def test_a_new_point_counts_by_the_square_of_its_step(setting):
    group = {"gain": 1.0, "lr": 1.0}
    assert float(newest_weight(group, torch.tensor(0.0))) == 0  # no step yet: nothing to divide by
    assert float(newest_weight(group, torch.tensor(1.0))) == 1
    group[setting] = 2.0  # a step twice as long
    assert float(newest_weight(group, torch.tensor(1.0))) == pytest.approx(4 / 5)
