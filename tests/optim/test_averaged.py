"""What StochasticAGD keeps: the average to evaluate and ship, and a state that resumes to the bit."""

import io

import pytest
import torch

from autogd import StochasticAGD, initialise_
from autogd.losses import square_loss
from autogd.models import FCN
from autogd.optim.rate import AVERAGING


def network(dtype=torch.float32):
    return initialise_(FCN(3, 16, 8, 4, bias=True), torch.Generator().manual_seed(1)).to(dtype)


def batch(i, dtype=torch.float32, size=16):
    generator = torch.Generator().manual_seed(i)
    return (torch.randn(size, n, generator=generator).to(dtype) for n in (8, 4))


def advance(model, optimiser, steps, dtype=torch.float32):
    rates = []
    for i in steps:
        x, y = batch(i, dtype)
        optimiser.zero_grad()
        square_loss(model(x), y).backward()
        optimiser.step()
        rates.append(optimiser.learning_rate.clone())
    return torch.stack(rates)


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def through_a_file(state):
    held = io.BytesIO()
    torch.save(state, held)
    held.seek(0)
    return torch.load(held, weights_only=True)


def test_the_average_is_the_weighted_mean_of_the_weights_after_each_step():
    model = network(torch.float64)
    optimiser = StochasticAGD(model)
    seen = []
    for i in range(30):
        advance(model, optimiser, [i], torch.float64)
        seen.append(weights(model))
    # the share (k+1)/(t+k) of the newest makes the weight of step s grow as s(s+1)…(s+k−1)
    share = torch.stack([torch.arange(s, s + AVERAGING).double().prod() for s in range(1, 31)])
    share /= share.sum()
    with optimiser.averaged():
        for i, p in enumerate(model.parameters()):
            mean = (torch.stack([each[i] for each in seen]) * share.view(-1, *[1] * p.dim())).sum(0)
            torch.testing.assert_close(p.detach(), mean, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_trained_weights_come_back_to_the_bit_even_after_an_exception(dtype):
    model = network(dtype)
    optimiser = StochasticAGD(model)
    with optimiser.averaged():  # before the first step there is no average
        pass
    advance(model, optimiser, range(5), dtype)
    trained = weights(model)
    with optimiser.averaged():
        assert not same(trained, weights(model))
    assert same(trained, weights(model))
    with pytest.raises(KeyError, match="halfway"), optimiser.averaged():
        raise KeyError("halfway")
    assert same(trained, weights(model))
    advance(model, optimiser, [5], dtype)  # and training goes on


def test_what_is_saved_inside_is_what_is_evaluated_inside():
    model = network()
    optimiser = StochasticAGD(model)
    advance(model, optimiser, range(5))
    x, _ = batch(99)
    with torch.no_grad(), optimiser.averaged():
        evaluated = model(x)
        saved = through_a_file(model.state_dict())
    other = network()
    other.load_state_dict(saved)
    with torch.no_grad():
        assert torch.equal(other(x), evaluated)
        assert not torch.equal(model(x), evaluated)


def test_a_step_and_a_second_averaged_are_refused_inside():
    model = network()
    optimiser = StochasticAGD(model)
    advance(model, optimiser, range(3))
    with optimiser.averaged():
        lent = weights(model)
        with pytest.raises(RuntimeError, match=r"step\(\) inside averaged\(\).*leave the block first"):
            optimiser.step()
        with pytest.raises(RuntimeError, match=r"averaged\(\) inside averaged\(\)"), optimiser.averaged():
            pass
        assert same(lent, weights(model))
    optimiser.step()


@pytest.mark.parametrize("geometry", ["spectral", "frobenius"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_run_resumed_from_files_equals_one_that_was_never_stopped(dtype, geometry):
    whole = network(dtype)
    optimiser = StochasticAGD(whole, geometry=geometry)
    rates = advance(whole, optimiser, range(12), dtype)

    first = network(dtype)
    stopped = StochasticAGD(first, geometry=geometry)
    advance(first, stopped, range(5), dtype)
    files = through_a_file({"model": first.state_dict(), "optimiser": stopped.state_dict()})
    second = network(dtype)
    second.load_state_dict(files["model"])
    resumed = StochasticAGD(second, geometry=geometry)
    resumed.load_state_dict(files["optimiser"])
    assert torch.equal(advance(second, resumed, range(5, 12), dtype), rates[5:])
    assert same(weights(whole), weights(second))
    with optimiser.averaged(), resumed.averaged():
        assert same(weights(whole), weights(second))


def test_accumulated_gradients_are_those_of_the_whole_batch():
    models = [network(torch.float64) for _ in range(2)]
    optimisers = [StochasticAGD(model) for model in models]
    for i in range(8):
        x, y = batch(i, torch.float64)
        for model, optimiser, pieces in zip(models, optimisers, (1, 4), strict=True):
            optimiser.zero_grad()
            for a, b in zip(x.chunk(pieces), y.chunk(pieces), strict=True):
                (square_loss(model(a), b) / pieces).backward()
            optimiser.step()
    # the momentum is held in float32
    for one, other in zip(weights(models[0]), weights(models[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_gradient_scaler_changes_nothing_but_to_leave_out_steps_that_overflow():
    models = [network() for _ in range(2)]
    plain, scaled = (StochasticAGD(model) for model in models)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for i in range(6):
        advance(models[0], plain, [i])
        x, y = batch(i)
        scaled.zero_grad()
        scaler.scale(square_loss(models[1](x), y)).backward()
        scaler.step(scaled)
        scaler.update()
    assert same(weights(models[0]), weights(models[1]))
    scaled.zero_grad()
    scaler.scale(square_loss(models[1](x), y)).backward()
    models[1].layers[0].weight.grad[0, 0] = float("inf")
    scaler.step(scaled)
    scaler.update()
    assert same(weights(models[0]), weights(models[1]))
    assert float(scaler.get_scale()) == 512


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_state_is_six_bytes_a_weight_and_the_average_never_rounds_to_half(dtype):
    model = network(dtype)
    optimiser = StochasticAGD(model)
    advance(model, optimiser, range(2), dtype)
    assert sum(t.nbytes for s in optimiser.state.values() for t in s.values()) == 6 * sum(
        p.numel() for p in model.parameters()
    )
    assert {s["average"].dtype for s in optimiser.state.values()} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_momentum_is_the_mean_of_the_gradients_in_units_of_a_typical_one_in_every_precision(dtype):
    model = network(dtype)
    optimiser = StochasticAGD(model)
    for _ in range(3):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimiser.step()
    for state in optimiser.state.values():
        momentum = state["momentum"].double() * optimiser.gradient_summary.double()
        torch.testing.assert_close(momentum, torch.full_like(momentum, 1 - 0.9**3), rtol=0.01, atol=0)


def test_weights_in_half_precision_train():
    model = network(torch.bfloat16)
    optimiser = StochasticAGD(model)
    x, y = batch(0, torch.bfloat16, 64)
    with torch.no_grad():
        start = float(square_loss(model(x), y))
    for _ in range(60):
        optimiser.zero_grad()
        square_loss(model(x), y).backward()
        optimiser.step()
    with torch.no_grad(), optimiser.averaged():
        assert float(square_loss(model(x), y)) < 0.5 * start


@pytest.mark.parametrize("setting", ["lr", "gain"])
def test_lr_and_gain_multiply_the_step(setting):
    model = network(torch.float64)
    optimiser = StochasticAGD(model)
    advance(model, optimiser, range(4), torch.float64)
    for group in optimiser.param_groups:
        group[setting] = 0.5
    twin = network(torch.float64)
    twin.load_state_dict(model.state_dict())
    whole = StochasticAGD(twin)
    state = optimiser.state_dict()
    for group in state["param_groups"]:
        group[setting] = 1.0
    whole.load_state_dict(state)
    before = weights(model)
    advance(model, optimiser, [4], torch.float64)
    advance(twin, whole, [4], torch.float64)
    for p, q, b in zip(model.parameters(), twin.parameters(), before, strict=True):
        torch.testing.assert_close(b - p.detach(), 0.5 * (b - q.detach()), rtol=1e-9, atol=1e-12)
