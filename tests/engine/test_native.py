"""The compiled passes: when they serve, and what they must notice."""

import copy
import weakref
from collections import defaultdict

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD
from autogd.engine.distributed.polar import orthogonalise
from autogd.engine.foreach import Foreach
from autogd.engine.layout import squares
from autogd.engine.library import SOURCES, compile_passes, library
from autogd.engine.native import Native
from autogd.engine.plan import Plan
from autogd.geometry.atoms import bias, matrix
from drawn_tensors import needs_library


def backend_of(optimiser):
    return next(reversed(optimiser._backends.values()))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_norm_of_a_huge_tensor_keeps_its_digits(threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        grad = torch.ones(20_000_000)  # each sum of squares is exact; one float32 sum would end at 2**24 or drift
        atom = bias(grad)
        torch.testing.assert_close(squares(grad, atom).sqrt(), torch.tensor([20_000_000.0]).sqrt(), rtol=1e-6, atol=0)
    finally:
        torch.set_num_threads(before)


def test_a_parameter_whose_storage_was_replaced_is_still_the_one_that_moves():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(5, 5))
    optimiser = AGD(model)
    for _ in range(2):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        optimiser.step()
        for p in model.parameters():
            p.data = p.detach().clone()  # a new storage under the same parameter
    before = copy.deepcopy(model.state_dict())
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimiser.step()
    assert not any(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def a_step(**settings):
    """A network with kernels, biases and gains, after three steps; and its optimiser."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 40, 3), nn.BatchNorm2d(40), nn.Conv2d(40, 48, (3, 2), groups=2), nn.Linear(70, 90)
    )
    optimiser = AGD(model, **settings)
    for _ in range(3):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        optimiser.step()
    return model, optimiser


@needs_library
def test_the_passes_in_c_are_used_where_they_are_and_repeat_to_the_bit():
    (model, optimiser), (again, _), (readable, _) = a_step(), a_step(), a_step(foreach=False)
    assert type(backend_of(optimiser)) is Native
    for one, other, plain in zip(model.parameters(), again.parameters(), readable.parameters(), strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, plain, rtol=1e-5, atol=1e-6)


def test_without_the_library_torch_s_own_operations_serve(monkeypatch):
    monkeypatch.setattr("autogd.engine.library.library", lambda: None)
    assert type(backend_of(a_step()[1])) is Foreach


@needs_library
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_go_torch_s_way(dtype):
    model = nn.Linear(4, 4).to(dtype)
    optimiser = AGD(model)
    model.weight.grad = torch.randn_like(model.weight)
    optimiser.step()
    assert type(backend_of(optimiser)) is Foreach


@needs_library
def test_a_layout_that_changes_between_steps_is_noticed():
    models = [nn.Conv2d(8, 8, 3, bias=False) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimisers = [AGD(models[0]), AGD(models[1], foreach=False)]
    for layout in (torch.contiguous_format, torch.channels_last, torch.contiguous_format):
        grad = torch.randn(8, 8, 3, 3).to(memory_format=layout)
        for model, optimiser in zip(models, optimisers, strict=True):
            model.weight.grad = grad.clone(memory_format=torch.preserve_format)
            optimiser.step()
        models[0].to(memory_format=layout)  # the weight's own, one step later
    torch.testing.assert_close(models[0].weight, models[1].weight, rtol=1e-5, atol=1e-6)


@needs_library
def test_autograd_knows_that_the_weights_have_changed():
    model = nn.Linear(4, 4, bias=False)
    optimiser = AGD(model)
    kept = (torch.randn(2, 4, requires_grad=True) @ model.weight).sum()
    model.weight.grad = torch.randn(4, 4)
    optimiser.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()


def test_a_library_of_another_source_is_not_called(tmp_path, monkeypatch):
    if trouble := compile_passes():
        pytest.skip(trouble)
    for source in SOURCES.iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes() + b"/* changed */")
    monkeypatch.setattr("autogd.engine.library.SOURCES", tmp_path)
    assert library.__wrapped__() is None
    monkeypatch.undo()
    assert library.__wrapped__() is not None


def beside_the_readable(change, make=lambda: nn.Sequential(nn.Linear(40, 30), nn.Conv2d(8, 8, 3))):
    """Two steps of the fast and of the readable path, with something changed between them: both end alike."""
    torch.manual_seed(0)
    models = [make(), make()]
    models[1].load_state_dict(models[0].state_dict())
    optimisers = [AGD(models[0]), AGD(models[1], foreach=False)]
    for at in range(2):
        generator = torch.Generator().manual_seed(at)
        for p, q in zip(*(model.parameters() for model in models), strict=True):
            p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype, device="cpu")
            q.grad = p.grad.clone()
        for model, optimiser in zip(models, optimisers, strict=True):
            if at:
                change(model)
            optimiser.step()
    torch.testing.assert_close(optimisers[0].learning_rate, optimisers[1].learning_rate, check_dtype=False)
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@needs_library
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_type_of_new_tensors_is_of_no_account(dtype):
    before = torch.get_default_dtype()
    try:
        beside_the_readable(lambda _: torch.set_default_dtype(dtype))
    finally:
        torch.set_default_dtype(before)


@needs_library
def test_a_weight_that_was_cut_short_keeps_its_neighbours_safe():
    layer = nn.Linear(40, 30, bias=False)
    optimiser = AGD(layer)
    layer.weight.grad = torch.randn(30, 40)
    optimiser.step()
    rows = layer.weight.data.clone()
    before = rows.clone()
    layer.weight.grad = None
    layer.weight.data = rows[:4]
    layer.weight.grad = torch.randn(4, 40)
    optimiser.step()
    assert not torch.equal(rows[:4], before[:4])
    assert torch.equal(rows[4:], before[4:])


@needs_library
def test_gradients_of_another_type_go_torch_s_way(monkeypatch):
    monkeypatch.setattr("autogd.reading.catalogue._warned", False)  # it warns once only
    weight = nn.Parameter(torch.randn(8, 8))
    if not hasattr(weight, "grad_dtype"):
        pytest.skip("this torch has gradients of the weight's own type only")
    weight.grad_dtype = torch.bfloat16
    weight.grad = torch.full((8, 8), 2.0, dtype=torch.bfloat16)
    with pytest.warns(UserWarning, match="shape alone"):
        optimiser = AGD([weight])
    optimiser.step()
    assert float(optimiser.gradient_summary) == pytest.approx(16)


@needs_library
def test_weights_that_share_memory_are_not_written_to_by_two_threads():
    def tie(model):
        model[1].weight.data = model[0].weight.data

    beside_the_readable(tie, lambda: nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300)))


@needs_library
@pytest.mark.parametrize("optimiser_type", [AGD, StochasticAGD])
def test_a_step_keeps_no_gradient_alive(optimiser_type):
    model = nn.Linear(50, 50)
    optimiser = optimiser_type(model)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimiser.step()
    kept = [weakref.ref(p.grad) for p in model.parameters()]
    optimiser.zero_grad()
    assert [ref() for ref in kept] == [None, None]


def test_a_folder_that_may_not_be_written_to_is_no_failure(monkeypatch, tmp_path):
    monkeypatch.setattr("autogd.engine.library.LIBRARY", tmp_path / "absent" / "passes.library")
    assert "absent" in compile_passes("true")


@needs_library
def test_what_was_measured_before_is_looked_for_anew():
    plan = Plan([(torch.zeros(3, 3), matrix(torch.zeros(3, 3)), {}) for _ in range(3)])
    backend, grads = Native(plan, library(), "frobenius"), [torch.full((3, 3), float(i)) for i in range(3)]
    backend.measure(grads)
    grads[1] = torch.full((3, 3), 7.0)  # the same list, with the same ends
    assert backend.measure(grads).gradients.tolist() == [0.0, 21.0, 6.0]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(16, 16), (40, 40), (33, 100), (100, 33), (257, 260), (2, 3)])
@needs_library
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
    expected = orthogonalise(model.weight.grad[None])[0]
    expected *= direction.norm() / expected.norm()
    assert type(backend_of(optimiser)) is Native
    torch.testing.assert_close(direction, expected, rtol=0, atol=0.01 * float(expected.abs().max()))


@needs_library
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
        expected = orthogonalise(matrix[None])[0]
        expected *= got.norm() / expected.norm()
        assert float((got - expected).norm() / expected.norm()) < 0.01


@needs_library
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


@needs_library
def test_what_the_library_does_not_take_goes_torchs_way(monkeypatch):
    monkeypatch.setattr("autogd.geometry.direction.orthogonalise", orthogonalise)
    torch.manual_seed(0)
    model, twin = nn.Conv2d(4, 8, 3), nn.Conv2d(4, 8, 3)
    twin.load_state_dict(model.state_dict())
    optimisers = [StochasticAGD(model), StochasticAGD(twin)]
    for i in range(3):
        for m in (model, twin):
            for p in m.parameters():
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
        if i == 1:  # a state with another layout, and such gradients
            state = optimisers[0].state[model.weight]
            state["momentum"] = state["momentum"].to(memory_format=torch.channels_last)
        if i == 2:
            model.weight.grad = model.weight.grad.to(memory_format=torch.channels_last)
        for optimiser in optimisers:
            optimiser.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-2, atol=1e-3)


@needs_library
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


@needs_library
def test_a_batch_that_counts_for_less_moves_as_torch_moves_it(monkeypatch):
    monkeypatch.setattr("autogd.geometry.direction.orthogonalise", orthogonalise)
    torch.manual_seed(0)
    models = [nn.Linear(30, 20), nn.Linear(30, 20)]
    models[1].load_state_dict(models[0].state_dict())
    optimisers = [StochasticAGD(models[0]), StochasticAGD(models[1])]
    for i in range(3):
        for model in models:
            for p in model.parameters():
                p.grad = (1000.0 if i == 2 else 1.0) * torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
        if i == 2:
            backend_of(optimisers[1]).fits = False
        for optimiser in optimisers:
            optimiser.step()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)


@needs_library
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


@needs_library
def test_a_state_on_another_device_is_not_read():
    model = nn.Linear(6, 6)
    optimiser = StochasticAGD(model)
    for step in range(2):
        model.weight.grad, model.bias.grad = torch.randn(6, 6), torch.randn(6)
        if step:
            optimiser.state[model.weight]["average"] = torch.empty(6, 6, device="meta")
            backend = backend_of(optimiser)
            averages = [optimiser.state[p]["average"] for p in backend.plan.parameters]
            assert not backend._locate_states(averages, 3, torch.float32)
        else:
            optimiser.step()


@needs_library
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
