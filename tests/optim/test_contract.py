"""What every torch optimiser does: ours and torch's own SGD are held to one list."""

import copy
import io
import pickle
from functools import partial

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD

pytestmark = pytest.mark.filterwarnings("ignore:.*told from shape alone")


def sgd(params, **settings):
    return torch.optim.SGD(params, **{"lr": 0.01, **settings})


EACH = pytest.mark.parametrize(
    "make",
    [AGD, partial(AGD, averaging=True), StochasticAGD, sgd],
    ids=["AGD", "AGD averaging", "StochasticAGD", "SGD"],
)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7, bias=False), nn.Tanh(), nn.Linear(7, 3, bias=False))


def backward(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    model.zero_grad()
    p = next(model.parameters())
    x = torch.randn(4, 5, generator=generator).to(p)
    loss = (model(x) - torch.randn(4, 3, generator=generator).to(p)).square().mean()
    loss.backward()
    return loss


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@EACH
def test_a_step_lowers_the_loss(make):
    model = network()
    optimiser = make(model.parameters())
    before = backward(model)
    optimiser.step()
    assert backward(model) < before


@EACH
def test_the_closure_is_called_with_gradients_on_and_its_loss_returned(make):
    model = network()
    optimiser = make(model.parameters())
    losses = [optimiser.step(lambda: backward(model)) for _ in range(2)]
    assert losses[1] < losses[0]
    assert optimiser.step() is None


@EACH
def test_groups_are_added_and_trained(make):
    model = network()
    optimiser = make(model[0].parameters())
    optimiser.add_param_group({"params": model[2].parameters(), "lr": 0.5})
    assert [group["lr"] == 0.5 for group in optimiser.param_groups] == [False, True]
    before = weights(model)
    backward(model)
    optimiser.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))


@EACH
def test_a_group_s_rate_multiplies_its_step(make):
    steps = []
    for lr in (1.0, 0.25):
        model = network()
        optimiser = make([{"params": [model[0].weight], "lr": 1.0}, {"params": [model[2].weight], "lr": lr}])
        before = weights(model)
        backward(model)
        optimiser.step()
        steps.append([a - b for a, b in zip(weights(model), before, strict=True)])
    assert torch.equal(steps[0][0], steps[1][0])
    assert torch.allclose(0.25 * steps[0][1], steps[1][1], atol=1e-7)


@EACH
def test_step_and_state_dict_hooks_fire_in_order(make):
    model = network()
    optimiser = make(model.parameters())
    heard = []
    optimiser.register_step_pre_hook(lambda *_: heard.append("before step"))
    optimiser.register_step_post_hook(lambda *_: heard.append("after step"))
    optimiser.register_state_dict_pre_hook(lambda *_: heard.append("before state"))
    optimiser.register_state_dict_post_hook(lambda *_: heard.append("after state"))
    optimiser.register_load_state_dict_pre_hook(lambda *_: heard.append("before load"))
    optimiser.register_load_state_dict_post_hook(lambda *_: heard.append("after load"))
    backward(model)
    optimiser.step()
    optimiser.load_state_dict(optimiser.state_dict())
    assert heard == ["before step", "after step", "before state", "after state", "before load", "after load"]


@EACH
@pytest.mark.filterwarnings("ignore:a schedule multiplies")
def test_the_state_dict_round_trips_through_a_file_to_bit_equal_training(make):
    model = network()
    optimiser = make(model.parameters(), weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9)
    for i in range(3):
        backward(model, i)
        optimiser.step()
        scheduler.step()
    file = io.BytesIO()
    torch.save([model.state_dict(), optimiser.state_dict(), scheduler.state_dict()], file)
    file.seek(0)
    other = network()
    resumed = make(other.parameters())
    rescheduled = torch.optim.lr_scheduler.ExponentialLR(resumed, 0.9)
    for target, state in zip((other, resumed, rescheduled), torch.load(file, weights_only=True), strict=True):
        target.load_state_dict(state)
    for i in range(3, 6):
        for m, o, s in ((model, optimiser, scheduler), (other, resumed, rescheduled)):
            backward(m, i)
            o.step()
            s.step()
    assert same(weights(model), weights(other))


@EACH
@pytest.mark.filterwarnings("ignore:a schedule multiplies")
@pytest.mark.parametrize("schedule", ["LambdaLR", "CosineAnnealingLR", "OneCycleLR", "ReduceLROnPlateau"])
def test_schedulers_drive_the_rate(make, schedule):
    model = network()
    optimiser = make(model.parameters())
    scheduler = {
        "LambdaLR": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda t: 1 / (t + 1)),
        "CosineAnnealingLR": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 4),
        "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=4, cycle_momentum=False),
        "ReduceLROnPlateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    }[schedule](optimiser)
    start = optimiser.param_groups[0]["lr"]
    for i in range(3):
        backward(model)
        optimiser.step()
        scheduler.step(*([float(i)] if schedule == "ReduceLROnPlateau" else []))
    assert optimiser.param_groups[0]["lr"] != start


@EACH
def test_a_frozen_parameter_and_one_without_a_gradient_do_not_move(make):
    model = network()
    model[0].weight.requires_grad_(False)
    optimiser = make(model.parameters())
    before = weights(model)
    backward(model)
    optimiser.step()
    after = weights(model)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])
    optimiser.zero_grad()
    optimiser.step()
    assert same(after, weights(model))


@EACH
@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["deepcopy", "pickle"]
)
def test_a_copy_of_model_and_optimiser_trains_alike_and_apart(make, clone):
    model = network()
    optimiser = make(model.parameters())
    backward(model)
    optimiser.step()
    twin, twin_optimiser = clone((model, optimiser))
    for m, o in ((model, optimiser), (twin, twin_optimiser)):
        backward(m, 1)
        o.step()
    assert same(weights(model), weights(twin))
    backward(twin, 2)
    twin_optimiser.step()
    assert not same(weights(model), weights(twin))


@EACH
def test_a_model_moved_to_another_type_goes_on_training(make):
    model = network()
    optimiser = make(model.parameters())
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model.to(dtype)
        before = weights(model)
        backward(model)
        optimiser.step()
        assert all(p.dtype == dtype for p in model.parameters())
        assert not same(before, weights(model))


@EACH
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="there is no accelerator here to move to")
def test_a_model_moved_to_another_device_goes_on_training(make):
    model = network()
    optimiser = make(model.parameters())
    for device in ("cpu", torch.accelerator.current_accelerator(), "cpu"):
        model.to(device)
        before = weights(model)
        backward(model)
        optimiser.step()
        assert not same(before, weights(model))


@EACH
def test_a_step_on_meta_tensors_looks_at_no_number(make):
    model = network().to("meta")
    optimiser = make(model.parameters())
    for p in model.parameters():
        p.grad = torch.empty_like(p)
    optimiser.step()
    assert all(p.device.type == "meta" for p in model.parameters())


@EACH
def test_named_parameters_are_accepted(make):
    model = network()
    optimiser = make(model.named_parameters())
    assert optimiser.param_groups[0]["param_names"] == ["0.weight", "2.weight"]
    backward(model)
    optimiser.step()


@EACH
def test_maximize_climbs(make):
    model = network()
    optimiser = make(model.parameters(), maximize=True)
    before = backward(model)
    optimiser.step()
    assert backward(model) > before


@EACH
def test_gradients_accumulate_until_zeroed(make):
    model, other = network(), network()
    optimiser, second = make(model.parameters()), make(other.parameters())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 5, generator=generator)
    model(x).square().mean().backward()
    for half in x.split(4):
        (other(half).square().mean() / 2).backward()
    optimiser.step()
    second.step()
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(weights(model), weights(other), strict=True))


@EACH
def test_the_grad_scaler_skips_a_step_whose_gradients_overflowed(make):
    model = network()
    optimiser = make(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = weights(model)
    scaler.scale(model(torch.full((2, 5), 1.0)).mean() * float("inf")).backward()
    scaler.step(optimiser)
    scaler.update()
    assert same(before, weights(model))
    optimiser.zero_grad()
    x = torch.randn(2, 5)
    scaler.scale(model(x).square().mean()).backward()
    scaler.step(optimiser)
    assert not same(before, weights(model))


@EACH
def test_tied_weights_are_moved_once(make):
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    optimiser = make(model.parameters())
    model(torch.randn(3, 4)).square().mean().backward()
    before, grad = weights(model)[0], model[0].weight.grad.clone()
    optimiser.step()
    moved = model[0].weight.detach() - before
    assert len(optimiser.param_groups[0]["params"]) == 1
    assert (moved * grad).sum() < -0.5 * moved.norm() * grad.norm()


@EACH
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own compiler, on first use
def test_a_compiled_step_equals_the_plain_one_and_compiles_once(make):
    model, other = network(), network()
    optimiser, plain = make(model.parameters()), make(other.parameters())
    torch._dynamo.reset()
    step = torch.compile(optimiser.step, backend="aot_eager")
    for i in range(2):
        for m, s in ((model, step), (other, plain.step)):
            backward(m, i)
            s()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for i in range(2, 6):
            for m, s in ((model, step), (other, plain.step)):
                backward(m, i)
                s()
    assert torch.equal(optimiser.learning_rate, plain.learning_rate) if make is not sgd else True
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(weights(model), weights(other), strict=True))


@EACH
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own compiler, on first use
def test_a_compiled_model_trains(make):
    model = network()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    optimiser = make(compiled.parameters())
    losses = []
    for _ in range(5):
        optimiser.zero_grad()
        loss = compiled(torch.ones(4, 5)).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
