"""StochasticAGD: the direction is the polar factor, η follows fresh slopes, and nothing runs away."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD, initialise_
from autogd.data import load
from autogd.geometry.norms import polar
from autogd.losses import one_hot, square_loss
from autogd.models import FCN
from autogd.optim.measured import MEMORY, next_rate, reach_of


def test_the_polar_factor_has_the_singular_vectors_and_singular_values_near_one():
    for shape in ((12, 12), (9, 7), (20, 7), (5, 16)):
        matrices = torch.randn(3, *shape, dtype=torch.float64)
        u, s, vh = torch.linalg.svd(matrices, full_matrices=False)
        got = polar(matrices)
        values = torch.linalg.svdvals(got)
        kept = s / s.square().sum(-1, keepdim=True).sqrt() > 1e-3
        assert ((values - 1).abs() < 0.15)[kept].all()
        inner = u.mT @ got @ vh.mT  # diagonal where the singular vectors are the same
        assert (inner - torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1))).abs().max() < 1e-9
    assert not polar(torch.zeros(1, 4, 3)).any()
    assert not polar(torch.zeros(1, 4, 9)).any()


def test_a_wide_matrix_keeps_its_digits_in_float32():
    wide = torch.randn(1, 64, 768)
    exact = torch.linalg.svd(wide.double(), full_matrices=False)
    got = polar(wide)
    assert torch.allclose(got.double(), polar(wide.double()), atol=1e-5)
    assert float((got.double() - exact.U @ exact.Vh).abs().max()) < 0.15


def test_the_slope_attains_the_nuclear_norm():
    model = initialise_(nn.Linear(24, 24, bias=False).double())
    optimiser = StochasticAGD(model)
    model.weight.grad = torch.randn(24, 24, dtype=torch.float64)
    optimiser.step()
    nuclear = float(torch.linalg.matrix_norm(model.weight.grad, "nuc"))
    assert float(optimiser.gradient_summary) == pytest.approx(nuclear, rel=0.13)


def test_the_first_step_is_as_long_as_the_paper_s():
    models = [initialise_(FCN(3, 16, 8, 4), torch.Generator().manual_seed(1)) for _ in range(2)]
    x, y = torch.randn(32, 8), torch.randn(32, 4)
    rates = []
    for model, optimiser in zip(models, (AGD(models[0]), StochasticAGD(models[1])), strict=True):
        square_loss(model(x), y).backward()
        optimiser.step()
        rates.append(float(optimiser.learning_rate))
    assert rates[0] == pytest.approx(rates[1], rel=1e-5)


def test_on_a_known_bound_the_rate_settles_where_the_bound_is_least():
    # a world that is its own majorisation: along the direction the slope is G − c·u(η), seen with noise
    generator = torch.Generator().manual_seed(0)
    G, c = 0.3, 0.05
    memory = {name: torch.zeros((), dtype=torch.float64) for name in MEMORY} | {"rate": torch.tensor(0.05).double()}
    for _ in range(400):
        left = G - c * reach_of(memory["rate"])
        memory["last_same"] = torch.tensor(2 * G).double()  # the batch's own slope is inflated by its noise
        noise = 0.1 * torch.randn((), generator=generator, dtype=torch.float64)
        memory = next_rate(memory, left + noise)
    best = math.log((1 + math.sqrt(1 + 4 * G / c)) / 2)
    assert float(memory["rate"]) == pytest.approx(best, rel=0.15)


def test_a_first_step_far_too_short_is_found_out_in_a_few_steps_and_once_only():
    G, c = 0.3, 0.05
    memory = {name: torch.zeros((), dtype=torch.float64) for name in MEMORY}
    memory |= {"rate": torch.tensor(1e-6).double(), "last_same": torch.tensor(G).double()}
    rates = [1e-6]
    for _ in range(40):
        memory = next_rate(memory, G - c * reach_of(memory["rate"]))
        rates.append(float(memory["rate"]))
    best = math.log((1 + math.sqrt(1 + 4 * G / c)) / 2)
    assert max(rates[:10]) > best / 4
    assert max(rates) < 1.5 * best
    # from then on u grows by a tenth at most, however little of the slope is used
    memory = next_rate({**memory, "rate": torch.tensor(1e-3).double()}, memory["last_same"] * 0.99)
    assert float(reach_of(memory["rate"])) <= 1.11e-3


@pytest.mark.parametrize("lr", [0.0, 0.01])
def test_a_warm_up_is_not_taken_for_a_step_that_was_too_short(lr):
    torch.manual_seed(0)
    model = initialise_(FCN(4, 16, 8, 2))
    optimiser = StochasticAGD(model)
    x, y = torch.randn(32, 8), torch.randn(32, 2)
    rates = []
    for _ in range(6):
        optimiser.param_groups[0]["lr"] = lr
        optimiser.zero_grad()
        square_loss(model(x), y).backward()
        optimiser.step()
        rates.append(float(optimiser.learning_rate))
    assert max(rates) < rates[0] * 1.1**6


def _closure(model, optimiser, x, y):
    def closure():
        optimiser.zero_grad()
        loss = square_loss(model(x), y)
        loss.backward()
        return loss

    return closure


def train(optimiser_type, epochs=8, corrupt=None, batch_size=64, depth=4, width=64, before_epoch=None, step="step"):
    """Test accuracy of the averaged weights, and η of every step, on the digits."""
    task = load("digits")
    torch.manual_seed(0)
    model = initialise_(FCN(depth, width, 64, 10, bias=True))
    optimiser = optimiser_type(model)
    rates = []
    for epoch in range(epochs):
        if before_epoch is not None:
            before_epoch(optimiser, epoch)
        for number, indices in enumerate(torch.randperm(len(task.train)).split(batch_size)):
            x, labels = task.train.batch(indices)
            x, y = task.prepare(x), one_hot(labels, 10)
            if corrupt is not None:
                x, y = corrupt(x, y, epoch, number)

            getattr(optimiser, step)(_closure(model, optimiser, x, y))
            rates.append(float(optimiser.learning_rate))
    inputs, labels = task.test.batch(torch.arange(len(task.test)))
    with torch.no_grad(), optimiser.averaged():
        accuracy = float((model(task.prepare(inputs)).argmax(1) == labels).float().mean())
    return accuracy, rates


def test_the_rate_decays_by_itself_and_training_is_ahead_of_plain_agd():
    accuracy, rates = train(StochasticAGD)
    assert accuracy > 0.93
    tenth = len(rates) // 10
    assert sum(rates[-tenth:]) < 0.6 * max(sum(rates[i : i + tenth]) for i in range(0, len(rates) - tenth, tenth))
    assert accuracy > train(AGD)[0]


def outliers(x, y, epoch, number):
    return (x * 100, y) if number == 10 else (x, y)


def spike(x, y, epoch, number):
    return (x, y * 1000) if (epoch, number) == (1, 3) else (x, y)


def label_noise(x, y, epoch, number):
    return (x, y[torch.randperm(len(y))]) if number % 3 == 0 else (x, y)


def lone_samples(x, y, epoch, number):
    return (x[:1], y[:1]) if number % 7 == 3 else (x, y)


@pytest.mark.parametrize("corrupt", [outliers, spike, label_noise, lone_samples, None])
def test_nothing_runs_away(corrupt):
    accuracy, rates = train(StochasticAGD, 3, corrupt=corrupt, batch_size=64 if corrupt else 8)
    assert all(map(math.isfinite, rates))
    assert accuracy > 0.6


def test_a_first_batch_of_one_does_not_decide_the_run():
    def corrupt(x, y, epoch, number):
        return (x[:1], y[:1]) if (epoch, number) == (0, 0) else (x, y)

    accuracy, rates = train(StochasticAGD, 3, corrupt=corrupt)
    assert all(map(math.isfinite, rates))
    assert accuracy > 0.6


@pytest.mark.parametrize(("depth", "width", "batch_size"), [(2, 8, 1437), (16, 16, 256), (32, 32, 256), (3, 256, 32)])
def test_no_depth_width_or_batch_size_diverges(depth, width, batch_size):
    _, rates = train(StochasticAGD, 1 if batch_size == 32 else 6, batch_size=batch_size, depth=depth, width=width)
    assert all(map(math.isfinite, rates))
    assert max(rates) < 5


@pytest.mark.parametrize("gain", [0.25, 4.0])
def test_a_gain_neither_starves_training_nor_loses_it(gain):
    accuracy, rates = train(partial(StochasticAGD, gain=gain), 4)
    assert accuracy > 0.9
    assert max(rates) < 3


def test_a_gradient_that_is_not_finite_leaves_weights_and_state_alone():
    model = FCN(2, 8, 8, 4)
    optimiser = StochasticAGD(model)
    model(torch.randn(4, 8)).sum().backward()
    optimiser.step()
    before = [p.detach().clone() for p in model.parameters()]
    state = [t.clone() for s in optimiser.state.values() for t in s.values()]
    model.layers[0].weight.grad[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"layers\.0\.weight: its gradient is not finite"):
        optimiser.step()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    now = [t for s in optimiser.state.values() for t in s.values()]
    assert all(torch.equal(a, b) for a, b in zip(state, now, strict=True))


@pytest.mark.parametrize("empty", [0, 1, 5])
def test_a_batch_without_any_gradient_does_not_switch_training_off(empty):
    model = initialise_(FCN(3, 16, 8, 4), torch.Generator().manual_seed(0))
    optimiser = StochasticAGD(model)
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    losses = []
    for i in range(30):
        optimiser.zero_grad()
        loss = square_loss(model(x), torch.tanh(x[:, :4]))
        (loss * (i != empty)).backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_on_a_device_where_it_may_not_look_a_bad_step_is_masked_and_counted(monkeypatch):
    monkeypatch.setattr("autogd.optim.plan.Plan.looks", False)
    model = FCN(2, 8, 8, 4)
    optimiser = StochasticAGD(model)
    for bad in (False, True, False):
        optimiser.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        before = [p.detach().clone() for p in model.parameters()]
        if bad:
            model.layers[0].weight.grad[0, 0] = float("inf")
        optimiser.step()
        moved = [not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True)]
        assert moved == [not bad] * 2
    assert int(optimiser.skipped_steps) == 1
    assert all(torch.isfinite(t).all() for s in optimiser.state.values() for t in s.values())


@pytest.mark.parametrize("layer", [nn.Conv2d(8, 16, 3, groups=2), nn.ConvTranspose2d(8, 8, 3, groups=2), nn.LSTM(3, 5)])
def test_every_kind_of_cut_is_moved(layer):
    optimiser = StochasticAGD(layer)
    before = [p.detach().clone() for p in layer.parameters()]
    for p in layer.parameters():
        p.grad = torch.randn_like(p)
    optimiser.step()
    assert all(torch.isfinite(p).all() for p in layer.parameters())
    assert not any(torch.equal(p, b) for p, b in zip(layer.parameters(), before, strict=True))


def test_measuring_gives_the_constant_of_the_batch_itself():
    torch.manual_seed(0)
    model = initialise_(FCN(3, 16, 8, 4).double())
    optimiser = StochasticAGD(model)
    closure = _closure(model, optimiser, torch.randn(32, 8).double(), torch.randn(32, 4).double())
    for _ in range(3):
        before = [p.detach().clone() for p in model.parameters()]
        closure()
        slopes = [[p.grad.clone() for p in model.parameters()]]
        loss = optimiser.step_and_measure(closure)
        assert loss.requires_grad
        slopes.append([p.grad.clone() for p in model.parameters()])
        rate = optimiser.learning_rate
        unit = [(b - p.detach()) / rate for b, p in zip(before, model.parameters(), strict=True)]
        own, left = (sum(float((u * g).sum()) for u, g in zip(unit, grads, strict=True)) for grads in slopes)
        measured = (own - left) / float(reach_of(rate))
        constant, at = optimiser.param_groups[0]["constant"]
        # a mean of the measurements, but never less than the last; in the state's half precision
        assert float(constant) >= measured - 1e-5 * abs(measured)
        if at == 1:
            assert float(constant) == pytest.approx(measured, rel=1e-5)


def test_the_second_look_draws_the_same_numbers_and_leaves_no_trace():
    x, y = torch.randn(32, 8), torch.randn(32, 4)
    seen = []
    for measured in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Dropout(), nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
        dropped = []
        model[0].register_forward_hook(lambda *call, dropped=dropped: dropped.append(call[2] == 0))
        optimiser = StochasticAGD(model)
        closure = _closure(model, optimiser, x, y)
        (optimiser.step_and_measure if measured else optimiser.step)(closure)
        seen.append([*model.state_dict().values(), torch.get_rng_state()])
    assert all(torch.equal(one, other) for one, other in zip(*seen, strict=True))
    first, second = dropped
    assert torch.equal(first, second)
    assert optimiser.param_groups[0]["constant"][1] == 1  # measured after the first step


def test_a_constant_serves_the_next_step_only_and_is_saved():
    def run(kinds, save_at=None):
        torch.manual_seed(0)
        model = initialise_(FCN(3, 16, 8, 4))
        optimiser = StochasticAGD(model)
        for at, kind in enumerate(kinds):
            if at == save_at:
                state, weights = optimiser.state_dict(), model.state_dict()
                model = FCN(3, 16, 8, 4)
                model.load_state_dict(weights)
                optimiser = StochasticAGD(model)
                optimiser.load_state_dict(state)
            torch.manual_seed(at)
            x = torch.randn(32, 8)
            closure = _closure(model, optimiser, x, x[:, :4])
            (optimiser.step_and_measure if kind == "m" else optimiser.step)(closure)
        return float(optimiser.learning_rate), [p.detach() for p in model.parameters()]

    plain, measured = run("s" * 15), run("s" * 13 + "ms")
    assert plain[0] != measured[0]  # the last step heard it
    memory = {name: torch.tensor(1.0) for name in MEMORY}
    fresh = torch.tensor(0.4)
    unknown = next_rate(memory, fresh, torch.tensor(math.nan))
    assert unknown["rate"] == next_rate(memory, fresh)["rate"]
    assert next_rate(memory, fresh, torch.tensor(math.inf))["rate"] < memory["rate"]
    for kinds, at in (("mmmm", 2), ("mmsm", 3), ("mssm", 1)):
        straight, resumed = run(kinds), run(kinds, save_at=at)
        assert straight[0] == resumed[0]
        assert all(torch.equal(a, b) for a, b in zip(straight[1], resumed[1], strict=True))


def test_training_with_every_constant_measured_goes_as_far():
    accuracy, rates = train(StochasticAGD, step="step_and_measure")
    assert accuracy > 0.93
    assert rates[-1] < max(rates)


def test_after_a_step_that_was_skipped_the_constant_stays(monkeypatch):
    monkeypatch.setattr("autogd.optim.plan.Plan.looks", False)
    torch.manual_seed(0)
    model = initialise_(FCN(3, 16, 8, 4))
    optimiser = StochasticAGD(model)
    x = torch.randn(32, 8)
    for _ in range(3):
        optimiser.step_and_measure(_closure(model, optimiser, x, x[:, :4]))
    before = optimiser.param_groups[0]["constant"].clone()
    optimiser.step_and_measure(_closure(model, optimiser, x * float("inf"), x[:, :4]))
    assert int(optimiser.skipped_steps) == 1
    assert torch.equal(optimiser.param_groups[0]["constant"], before)


def test_whoever_saves_a_state_by_its_keys_finds_the_constant():
    model = nn.Linear(3, 3)
    optimiser = StochasticAGD(model)
    model.weight.grad = torch.randn(3, 3)
    optimiser.step()
    assert {"memory", "constant"} <= set(optimiser.state_dict()["param_groups"][0])
