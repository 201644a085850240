"""StochasticAGD's passes in C give what torch's operations give, on every atom and in every layout."""

from collections import defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from autogd import StochasticAGD
from autogd.geometry.polar import polar
from autogd.optim.native import library
from autogd.optim.plan import make_plan
from autogd.optim.turning import Bundled, NativeTurning
from drawn_tensors import laid_out, needs_library, tensors, viewable

pytestmark = needs_library
STATES = {"momentum": torch.bfloat16, "average": torch.float32}


def held(parameters, seed):
    """A state for every tensor, as if steps had been taken."""
    generator = torch.Generator().manual_seed(seed)
    return {
        p: {name: torch.empty_like(p, dtype=dtype).copy_(torch.randn(p.shape, generator=generator))
            for name, dtype in STATES.items()}
        for p in parameters
    }  # fmt: skip


def both(plan, seed, geometry):
    """The two ways over one plan and over a copy of it, each with its own state."""
    twin = make_plan([(p.clone(), a, g) for p, a, g in zip(plan.parameters, plan.atoms, plan.own, strict=True)])
    grads = [torch.empty_like(p).copy_(torch.randn(p.shape)) for p in plan.parameters]
    slow = Bundled(grads, twin, geometry, held(twin.parameters, seed))
    state = held(plan.parameters, seed)
    fast = NativeTurning(plan, library(), geometry == "spectral", state, Bundled(grads, plan, geometry, state))
    return (fast, plan), (slow, twin), grads


@pytest.mark.parametrize("threads", [1, 2, 5])
@given(
    kinds=st.lists(tensors(), min_size=1, max_size=5), seed=st.integers(0, 2**16),
    layout=st.sampled_from(["contiguous", "channels last", "reversed"]), factor=st.sampled_from([1.0, 0.25]),
    geometry=st.sampled_from(["frobenius", "spectral"]), maximize=st.booleans(), decay=st.sampled_from([0.0, 0.5]),
    still=st.booleans(),
)  # fmt: skip
def test_every_atom_moves_as_torch_moves_it(threads, kinds, seed, layout, factor, geometry, maximize, decay, still):
    before = torch.get_num_threads()
    torch.manual_seed(seed)
    groups = [{"maximize": maximize, "weight_decay": decay}, {"maximize": False, "weight_decay": 0.0}]
    drawn = [(laid_out(shape, layout, torch.float32), atom) for shape, atom in kinds]
    entries = [(p, atom, groups[i % 2]) for i, (p, atom) in enumerate(drawn) if viewable(p, atom)]
    if not entries:
        return
    try:
        torch.set_num_threads(threads)
        ways = both(make_plan(entries), seed, geometry)
        grads, found = ways[2], []
        for way, plan in ways[:2]:
            norms = way.measure(grads, plan)
            # some are not heard
            sizes = torch.where(torch.arange(len(plan.reach)) % 3 == 2, 0, plan.reach / plan.depth)
            steps = torch.tensor([0.0 if still and group is groups[1] else 0.3 for group in plan.own])
            share = torch.tensor(0.4)
            keeps = torch.tensor([1 - group["weight_decay"] / 4 for group in plan.own])
            way.update(grads, sizes, torch.tensor(factor), steps, keeps, share, plan)
            kept = [way.state[p][name].float() for p in plan.parameters for name in STATES]
            held_norms = torch.where(plan.held_at < torch.inf, norms.weights, 0)  # the others need not be measured
            found.append((norms.gradients, norms.momenta, held_norms, *plan.parameters, *kept))
        assert ways[0][0].table.fits or layout != "contiguous"
    finally:
        torch.set_num_threads(before)
    for fast, slow in zip(*found, strict=True):
        # where a matrix is close to singular, its smallest singular values are rounding's
        torch.testing.assert_close(fast, slow, rtol=1e-2, atol=4e-3 if geometry == "spectral" else 2e-5)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(16, 16), (40, 40), (33, 100), (100, 33), (257, 260), (2, 3)])
def test_directions_are_the_polar_factors(shape, threads):
    torch.manual_seed(0)
    threads_before = torch.get_num_threads()
    model = nn.Linear(*shape, bias=False)
    before = model.weight.detach().clone()
    optimiser = StochasticAGD(model)
    try:
        torch.set_num_threads(threads)
        model.weight.grad = torch.randn(model.weight.shape)
        optimiser.step()
    finally:
        torch.set_num_threads(threads_before)
    direction = (before - model.weight.detach()) / optimiser.learning_rate
    expected = polar(model.weight.grad[None])[0]
    expected *= direction.norm() / expected.norm()
    assert type(optimiser._plan().kept["turning"]) is NativeTurning
    torch.testing.assert_close(direction, expected, rtol=0, atol=0.01 * float(expected.abs().max()))


def test_hard_spectra_come_out_as_lapack_has_them():
    n = 200
    for lowest in (-2.0, -4.0, -6.0):
        torch.manual_seed(0)
        left, right = (torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0] for _ in range(2))
        matrix = (left * torch.logspace(0, lowest, n, dtype=torch.float64)) @ right.mT
        model = nn.Linear(n, n, bias=False)
        before = model.weight.detach().clone()
        optimiser = StochasticAGD(model)
        model.weight.grad = matrix.float()
        optimiser.step()
        got = (before - model.weight.detach()).double()
        expected = polar(matrix[None])[0]
        expected *= got.norm() / expected.norm()
        assert float((got - expected).norm() / expected.norm()) < 0.01


def test_steps_repeat_to_the_bit_on_as_many_threads():
    def run():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(70, 90), nn.Linear(90, 31))
        optimiser = StochasticAGD(model)
        for _ in range(4):
            optimiser.zero_grad()
            model(torch.randn(32, 70)).square().mean().backward()
            optimiser.step()
        return [p.detach() for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(run(), run(), strict=True))


def test_what_the_library_does_not_take_goes_torchs_way():
    torch.manual_seed(0)
    model, twin = nn.Conv2d(4, 8, 3), nn.Conv2d(4, 8, 3)
    twin.load_state_dict(model.state_dict())
    optimisers = [StochasticAGD(model), StochasticAGD(twin)]
    for i in range(3):
        for m in (model, twin):
            for p in m.parameters():
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
        if i == 1:  # a state that somebody has laid out otherwise, and gradients that are
            state = optimisers[0].state[model.weight]
            state["momentum"] = state["momentum"].to(memory_format=torch.channels_last)
        if i == 2:
            model.weight.grad = model.weight.grad.to(memory_format=torch.channels_last)
        for optimiser in optimisers:
            optimiser.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-2, atol=1e-3)


def test_a_step_has_little_besides_its_state():
    model = nn.Sequential(*(nn.Linear(128, 128) for _ in range(40)))
    optimiser = StochasticAGD(model)
    model(torch.randn(4, 128)).square().mean().backward()
    optimiser.step()
    with torch.profiler.profile(profile_memory=True) as profile:
        optimiser.step()
    now = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    weights = sum(4 * p.numel() for p in model.parameters())
    assert 0 < most < 0.05 * weights  # a square of one matrix of forty, and four bands of 16 columns


def test_a_batch_that_counts_for_less_moves_as_torch_moves_it():
    torch.manual_seed(0)
    models = [nn.Linear(30, 20), nn.Linear(30, 20)]
    models[1].load_state_dict(models[0].state_dict())
    optimisers = [StochasticAGD(models[0]), StochasticAGD(models[1])]
    for i in range(3):
        for model in models:
            for p in model.parameters():
                p.grad = (1000.0 if i == 2 else 1.0) * torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
        if i == 2:
            optimisers[1]._plan().kept["turning"].table.fits = False
        for optimiser in optimisers:
            optimiser.step()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)


def test_a_state_that_was_taken_away_is_made_anew():
    torch.manual_seed(0)
    model = nn.Linear(20, 20)
    optimiser = StochasticAGD(model)
    for _ in range(4):
        model.weight.grad, model.bias.grad = torch.randn(20, 20), torch.randn(20)
        if len(optimiser.state) and "momentum" in optimiser.state[model.weight]:
            optimiser.state = defaultdict(dict)
        optimiser.step()
        assert optimiser.state[model.weight]["momentum"].any()


def test_a_state_on_another_device_is_not_read():
    model = nn.Linear(6, 6)
    optimiser = StochasticAGD(model)
    for step in range(2):
        model.weight.grad, model.bias.grad = torch.randn(6, 6), torch.randn(6)
        if step:
            optimiser.state[model.weight]["average"] = torch.empty(6, 6, device="meta")
            assert not optimiser._plan().kept["turning"]._find(optimiser._plan().gradients(), optimiser._plan())
        else:
            optimiser.step()


def test_refused_gradients_leave_no_state():
    model = nn.Linear(6, 6)
    good = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = StochasticAGD(model)
    with torch.no_grad():
        model.weight.fill_(torch.nan)
    model(torch.ones(2, 6)).sum().backward()
    model.weight.grad.fill_(torch.nan)
    with pytest.raises(ValueError, match="not finite"):
        optimiser.step()
    assert not any(optimiser.state.values())
    model.load_state_dict(good)
    model.weight.grad = torch.randn(6, 6)
    optimiser.step()
    with optimiser.averaged():
        assert torch.isfinite(model.weight).all()
