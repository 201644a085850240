"""StochasticAGD: the direction is the polar factor, η follows the law, and nothing runs away."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD, initialise_
from autogd.data import load
from autogd.geometry.polar import orthogonalise as polar
from autogd.losses import one_hot, square_loss
from autogd.models import FCN
from autogd.optim.bound import ExponentialMajorisation
from autogd.optim.rate import RateState, learning_rate, momentum_size, next_state

BOUND = ExponentialMajorisation().learning_rate


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


def test_a_step_moves_every_layer_by_its_share_of_the_law():
    model = initialise_(nn.Linear(24, 24, bias=False).double())
    before = model.weight.detach().clone()
    optimiser = StochasticAGD(model)
    model.weight.grad = torch.randn(24, 24, dtype=torch.float64)
    optimiser.step()
    assert float(optimiser.learning_rate) == pytest.approx(math.log(1.25))
    moved = torch.linalg.svdvals(before - model.weight.detach()) / float(optimiser.learning_rate)
    assert ((moved - 1).abs() < 0.15).all()


def test_the_rate_is_the_law_of_the_steps_and_of_the_chain():
    for depth, chain, mu in ((4, 4, 1 / 4), (32, 32, math.sqrt(2) / 32), (32, 4, 1 / 4), (4, 0, 1 / 4)):
        for t in (1, 9, 10_000):
            rate = learning_rate(torch.tensor(float(t)), *torch.ones(2), depth, chain, BOUND)
            assert float(rate) == pytest.approx(math.log(1 + depth * mu / math.sqrt(t)), rel=1e-5)


def test_a_chain_never_carries_the_output_further_than_a_random_target():
    # deep relative trust: a chain of D layers that each move by η/L changes the output by e^(Dη/L) − 1 at most
    for depth in (6, 8, 16, 64):
        rate = float(learning_rate(*torch.ones(3), depth, depth, BOUND))
        output, target = torch.randn(2, 100_000, generator=torch.Generator().manual_seed(depth))
        assert math.expm1(rate) <= float((output - target).norm() / output.norm()) * 1.01


def test_where_the_momentum_vanishes_so_does_the_step_but_never_for_good():
    sizes = torch.tensor([0.0, 0.05, 0.1, 0.23])
    rates = [float(learning_rate(torch.tensor(1e6), size, torch.tensor(1.0), 4, 4, BOUND)) for size in sizes]
    assert rates == pytest.approx([4 * mu / 1e3 for mu in (1 / 40, 0.1, 0.2, 1 / 4)], rel=1e-3)


def test_noise_alone_leaves_a_momentum_that_does_not_shorten_the_step():
    generator = torch.Generator().manual_seed(0)
    momentum, state, sizes = torch.zeros(50, 50), RateState(*torch.zeros(6)), []
    for _ in range(200):
        noise = torch.randn(50, 50, generator=generator)
        sizes.append(float(momentum_size(momentum.norm(), state.steps)))
        state, factor = next_state(state, noise.norm(), torch.tensor(True))
        momentum = 0.9 * momentum + 0.1 * factor * noise
    assert sizes[-1] == pytest.approx(math.sqrt(0.1 / 1.9), rel=0.05)
    assert min(sizes) > 1 / 8


def test_a_loss_times_any_number_gives_the_same_steps():
    ends = []
    for scale in (1.0, 1e-3, 1e3):
        torch.manual_seed(0)
        model = initialise_(FCN(3, 16, 8, 4).double())
        optimiser = StochasticAGD(model)
        for _ in range(10):
            x = torch.randn(32, 8, dtype=torch.float64)
            optimiser.zero_grad()
            (square_loss(model(x), x[:, :4]) * scale).backward()
            optimiser.step()
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.allclose(ends[0], ends[1], atol=1e-5)
    assert torch.allclose(ends[0], ends[2], atol=1e-5)


def test_a_batch_counts_for_at_most_as_many_as_the_momentum_remembers():
    state = RateState(torch.tensor(1000.0), *torch.ones(5))
    after, factor = next_state(state, torch.tensor(1e9), torch.tensor(True))
    assert 1e9 * float(factor) * float(after.typical) == pytest.approx(10, rel=1e-3)
    assert float(after.typical) < 4
    # and a first batch that is far too large is soon forgotten
    state = RateState(*torch.zeros(6))
    for size in (1000.0, *[1.0] * 60):
        state, factor = next_state(state, torch.tensor(size), torch.tensor(True))
    assert float(factor) == pytest.approx(1.0, rel=0.3)


def test_typical_sizes_at_the_ends_of_float32_stay_finite():
    state = RateState(*torch.zeros(6))
    for size in (1e-45, 3e38, 1e-45, 1.0, 3e38):
        state, factor = next_state(state, torch.tensor(size), torch.tensor(True))
        assert bool(torch.isfinite(factor))
        assert bool((state.typical > 0) & torch.isfinite(state.typical))


@pytest.mark.parametrize("G", [0.0, math.nan, math.inf])
def test_a_batch_that_does_not_count_leaves_the_rate_as_it_was(G):
    for before in ([7.0, 2.0, 3.0, 4.0, 5.0, 0.5], [0.0] * 6):
        after, factor = next_state(RateState(*torch.tensor(before)), torch.tensor(G), torch.tensor(False))
        assert [float(number) for number in after] == before
        assert float(factor) == 0


def _closure(model, optimiser, x, y):
    def closure():
        optimiser.zero_grad()
        loss = square_loss(model(x), y)
        loss.backward()
        return loss

    return closure


def train(optimiser_type, epochs=8, corrupt=None, batch_size=64, depth=4, width=64):
    """Test accuracy of the averaged weights, and η of every step, on the digits."""
    task = load("digits")
    torch.manual_seed(0)
    model = initialise_(FCN(depth, width, 64, 10, bias=True))
    optimiser = optimiser_type(model)
    rates = []
    for epoch in range(epochs):
        for number, indices in enumerate(torch.randperm(len(task.train)).split(batch_size)):
            x, labels = task.train.batch(indices)
            x, y = task.prepare(x), one_hot(labels, 10)
            if corrupt is not None:
                x, y = corrupt(x, y, epoch, number)

            optimiser.step(_closure(model, optimiser, x, y))
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


def test_on_a_device_where_it_may_not_look_a_bad_step_is_masked_and_counted(as_on_an_accelerator):
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
        assert bool(optimiser.learning_rate > 0) == (not bad)
    assert int(optimiser.skipped_steps) == 1
    assert all(torch.isfinite(t).all() for s in optimiser.state.values() for t in s.values())


@pytest.mark.parametrize("device", ["cpu", "accelerator"])
def test_a_batch_without_any_gradient_changes_nothing(device, request):
    if device == "accelerator":
        request.getfixturevalue("as_on_an_accelerator")
    model = initialise_(FCN(2, 8, 8, 4))
    optimiser = StochasticAGD(model)

    def step(scale):
        optimiser.zero_grad()
        (model(torch.randn(4, 8)).square().mean() * scale).backward()
        optimiser.step()
        states = [tensor for state in optimiser.state.values() for tensor in state.values()]
        return [t.detach().clone() for t in (*model.parameters(), *states, optimiser.param_groups[0]["rate"])]

    step(0.0)  # before there is a state, too
    step(1.0)
    before = step(1.0)
    assert all(torch.equal(one, two) for one, two in zip(before, step(0.0), strict=True))
    assert not any(torch.equal(one, two) for one, two in zip(before, step(1.0), strict=True))


def test_a_group_at_rate_zero_keeps_its_weights_and_its_average():
    model = initialise_(FCN(2, 8, 8, 4))
    optimiser = StochasticAGD(model, groups={"layers.0.*": {"gain": 1.0}, "layers.1.*": {"gain": 1.0}})
    first = model.layers[0].weight

    def step():
        optimiser.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimiser.step()
        return first.detach().clone(), optimiser.state[first]["average"].clone()

    before = [step() for _ in range(5)][-1]
    assert not torch.equal(*before)
    next(group for group in optimiser.param_groups if first is group["params"][0])["lr"] = 0.0
    assert all(torch.equal(one, two) for one, two in zip(before, step(), strict=True))


@pytest.mark.parametrize("layer", [nn.Conv2d(8, 16, 3, groups=2), nn.ConvTranspose2d(8, 8, 3, groups=2), nn.LSTM(3, 5)])
def test_every_kind_of_cut_is_moved(layer):
    optimiser = StochasticAGD(layer)
    before = [p.detach().clone() for p in layer.parameters()]
    for p in layer.parameters():
        p.grad = torch.randn_like(p)
    optimiser.step()
    assert all(torch.isfinite(p).all() for p in layer.parameters())
    assert not any(torch.equal(p, b) for p, b in zip(layer.parameters(), before, strict=True))


UNKIND = {  # what the loss of a batch is multiplied by
    "zero": lambda at: 0.0,
    "alternating": lambda at: (-1.0) ** at,
    "huge": lambda at: 1e3,
    "vanishing": lambda at: 1e-15,
    "spikes": lambda at: 1e6 if at % 40 == 7 else 1.0,
    "fading": lambda at: 0.9**at,
}


@pytest.mark.parametrize("seed", range(8))
def test_after_any_history_ordinary_batches_train_within_200_steps(seed):
    generator = torch.Generator().manual_seed(seed)
    model = initialise_(nn.Linear(8, 6, bias=False), generator)
    other, truth = (initialise_(nn.Linear(8, 6, bias=False), generator).weight.detach() for _ in range(2))
    optimiser = StochasticAGD(model)

    def step(target, scale=1.0):
        x = torch.randn(32, 8, generator=generator)
        optimiser.zero_grad()
        ((model(x) - x @ target.T).square().mean() * scale).backward()
        optimiser.step()
        assert 0 <= float(optimiser.learning_rate) < math.inf

    for at in torch.randint(len(UNKIND), (4,), generator=generator).tolist():
        for i in range(150):
            step(other, list(UNKIND.values())[at](i))
    x = torch.randn(64, 8, generator=generator)
    for _ in range(200):
        step(truth)
        assert float(optimiser.learning_rate) > 0
    with torch.no_grad():
        assert float((model(x) - x @ truth.T).square().mean()) < 0.1 * float((x @ truth.T).square().mean())


def test_the_average_forgets_a_task_that_has_ended():
    torch.manual_seed(0)
    model = nn.Linear(8, 6)
    optimiser = StochasticAGD(model)
    tasks = [initialise_(nn.Linear(8, 6)).weight.detach() for _ in range(2)]
    for at in range(1200):
        x = torch.randn(32, 8)
        optimiser.zero_grad()
        (model(x) - x @ tasks[at // 600].T).square().mean().backward()
        optimiser.step()
    x = torch.randn(64, 8)
    with torch.no_grad(), optimiser.averaged():
        errors = [(model(x) - x @ task.T).square().mean() for task in tasks]
    assert errors[1] < 0.02 * errors[0]


def test_a_hidden_matrix_above_its_size_comes_back_and_a_readout_or_a_gate_is_free():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, 8, bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)
    before = [float(parameter.detach().norm()) for parameter in model.parameters()]
    optimiser = StochasticAGD(model)
    sizes = []
    for _ in range(100):
        x = torch.randn(32, 8)
        optimiser.zero_grad()
        model(x).square().mean().backward()
        for parameter in model.parameters():
            parameter.grad.mul_(0.1).add_(torch.randn_like(parameter))
        optimiser.step()
        sizes.append([float(parameter.detach().norm()) for parameter in model.parameters()])
    moves = 1 - float(optimiser.learning_rate)
    assert sizes[0][0] > 0.5 * before[0]  # by no more than its step
    assert sizes[-1][0] < math.sqrt(8) * (1 + moves)
    assert sizes[-1][1] > 0.5 * before[1]
    cell = nn.LSTM(4, 4)
    assert all(atom.held_at == math.inf for atom in StochasticAGD(cell)._architecture.atoms.values())


def test_schedules_and_gains_multiply_the_step():
    steps = []
    for gain in (1.0, 0.25):
        torch.manual_seed(0)
        model = initialise_(FCN(2, 8, 8, 4).double())
        before = model.layers[0].weight.detach().clone()
        optimiser = StochasticAGD(model, gain=gain)
        square_loss(model(torch.randn(16, 8).double()), torch.randn(16, 4).double()).backward()
        optimiser.step()
        steps.append(model.layers[0].weight.detach() - before)
    assert torch.allclose(steps[0] * 0.25, steps[1], atol=1e-7)


def test_a_state_of_the_rule_before_is_refused():
    optimiser = StochasticAGD(nn.Linear(3, 3))
    state = optimiser.state_dict()
    del state["param_groups"][0]["made_by"]
    with pytest.raises(ValueError, match="made by an older version, and this is StochasticAGD 3; start without it"):
        optimiser.load_state_dict(state)


def after(sizes):
    state = RateState(*torch.zeros(6))
    for size in sizes:
        state, _ = next_state(state, torch.tensor(float(size)), torch.tensor(True))
    return state


def rate(alike):
    """A late η of four layers, for independent gradients of batches that are so alike in size."""
    size = torch.tensor(math.sqrt(0.1 / 1.9))  # of the momentum
    return float(learning_rate(torch.tensor(1e6), size, torch.tensor(float(alike)), 4, 4, BOUND))


def test_where_few_batches_have_the_gradient_steps_are_shorter_and_never_for_good():
    generator = torch.Generator().manual_seed(0)
    mild, wild = (torch.randn(500, generator=generator).mul(spread).exp().tolist() for spread in (0.1, 3))
    assert float(after(mild).alike) > 0.97
    assert float(after(wild).alike) < 0.7
    assert float(after(wild + mild).alike) > 0.97
    assert [1e3 * rate(a) / 4 for a in (0, 1)] == pytest.approx([1 / 40, 1 / 4], rel=1e-3)


@pytest.mark.parametrize("spread", [0.1, 0.3, 0.5, 0.7])
def test_steps_are_as_long_as_the_share_of_batches_that_has_the_squared_gradient(spread):
    sizes = torch.randn(4, 200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(spread).exp()
    alike = (2 * sizes[0] * sizes[1:] / (sizes[0].square() + sizes[1:].square())).amax(0).mean()
    # of log-normal sizes, mean(G²)² / mean(G⁴)
    assert rate(alike) / rate(1) == pytest.approx(math.exp(-4 * spread**2), abs=0.02)


@pytest.mark.parametrize("factor", [1e-30, 1e-3, 1e3, 1e30])
def test_another_level_of_gradients_is_no_unevenness(factor):
    assert float(after([1.0] * 100 + [factor] * 20).alike) > 0.95
    assert float(after([factor] + [1.0] * 20).alike) > 0.95


@pytest.mark.parametrize("sizes", [(1, 10), (1, 1, 3), (1, 2, 4), (1, 1, 3, 3)])
def test_a_few_kinds_of_batches_in_turn_are_no_unevenness(sizes):
    assert float(after([*sizes] * 30).alike) > 0.97


@pytest.mark.parametrize("scales", [(1, 3), (1, 10), (1, 1, 3), (1, 2, 4)])
def test_losses_of_uneven_size_do_not_keep_a_network_from_learning(scales):
    torch.manual_seed(0)
    model, teacher = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), torch.randn(8, 2)
    optimiser, losses = StochasticAGD(model), []
    for step in range(300):
        x = torch.randn(128, 8)
        loss = (model(x) - x @ teacher).square().mean()
        optimiser.zero_grad()
        (loss * scales[step % len(scales)]).backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.03 * losses[0]


@pytest.mark.parametrize("signal", [0.25, 0.5, 1.0])
def test_only_the_noise_of_a_momentum_shortens_a_step(signal):
    # a momentum of a signal beside independent noise; few of the batches have a gradient
    size = torch.tensor(math.sqrt(signal + (1 - signal) * 0.1 / 1.9))
    eta = learning_rate(torch.tensor(1e6), size, torch.tensor(0.2), 4, 4, BOUND)
    assert 1e3 * float(eta) / 4 == pytest.approx(signal / 4, rel=1e-2)


def test_a_bias_is_one_more_input_of_its_layer():
    model = nn.Sequential(nn.Linear(1, 8), nn.Linear(8, 27), nn.LayerNorm(27), nn.Conv1d(27, 4, 1), nn.GRU(8, 8))
    optimiser = StochasticAGD(model)
    biases = {name: p for name, p in model.named_parameters() if "bias" in name}
    shares = {name: optimiser._architecture.atoms[p].depth_share for name, p in biases.items()}
    assert shares == pytest.approx({
        "0.bias": 1, "1.bias": 1 / 8, "2.bias": 1 / 32, "3.bias": 1 / 27, "4.bias_ih_l0": 1 / 8, "4.bias_hh_l0": 1 / 8
    })  # fmt: skip


def test_a_readout_of_one_output_is_the_readout_and_what_is_before_it_is_held():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    atoms = StochasticAGD(model)._architecture.atoms
    assert atoms[model[2].weight].held_at == pytest.approx(math.sqrt(8))
    assert atoms[model[4].weight].held_at == math.inf
