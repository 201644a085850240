"""The fast ways over the weights equal the readable one, on every atom and in every layout."""

import copy
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from autogd import AGD, StochasticAGD
from autogd.geometry.atoms import bias, matrix
from autogd.geometry.norms import frobenius
from autogd.optim.compile_passes import SOURCES, compile_passes
from autogd.optim.multi_tensor import MultiTensor
from autogd.optim.native import Native, library
from autogd.optim.plan import make_plan
from autogd.optim.readable import Readable
from drawn_tensors import LAYOUTS, laid_out, needs_library, tensors, viewable

PATHS = {"multi-tensor": MultiTensor, "native": lambda plan: Native(plan, library())}


@pytest.mark.parametrize("name", ["multi-tensor", pytest.param("native", marks=needs_library)])
@pytest.mark.parametrize("threads", [1, 2])
@given(
    kinds=st.lists(tensors(), min_size=1, max_size=6), layout=st.sampled_from(LAYOUTS), seed=st.integers(0, 2**16),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]), masked=st.sampled_from([None, True, False]),
)  # fmt: skip
def test_the_fast_paths_equal_the_readable_one(name, threads, kinds, layout, seed, dtype, masked):
    before = torch.get_num_threads()
    dtype = torch.float32 if name == "native" else dtype
    torch.manual_seed(seed)
    try:
        torch.set_num_threads(threads)
        other = "contiguous" if layout == "mixed" else layout
        entries = [(laid_out(shape, other, dtype), atom, {}) for shape, atom in kinds for _ in range(2)]
        entries = [entry for entry in entries if viewable(entry[0], entry[1])]
        if not entries:
            return
        plan = make_plan(entries)
        grads = [laid_out(tuple(p.shape), "reversed" if layout == "mixed" else layout, dtype) for p in plan.parameters]
        if not all(viewable(grad, atom) for grad, atom in zip(grads, plan.atoms, strict=True)):
            return
        twin = make_plan([(p.clone(), atom, {}) for p, atom, _ in entries])
        fast, plain = PATHS[name](plan), Readable()
        tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
        norms = plain.measure(grads, twin)
        accurate = min(tolerance, 1e-5)  # norms are accumulated in float32 at least
        torch.testing.assert_close(fast.measure(grads, plan), norms, rtol=accurate, atol=0)
        if masked is False:
            grads = [torch.full_like(grad, float("nan")) for grad in grads]
        finite = None if masked is None else torch.tensor(masked)
        coefficients = torch.randn(len(plan.owner), dtype=plan.reach.dtype)
        fast.apply(grads, coefficients, plan, finite)
        plain.apply(grads, coefficients, twin, finite)
        for mine, theirs in zip(plan.parameters, twin.parameters, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=4 * tolerance)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_norm_of_a_huge_tensor_keeps_its_digits(threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        grad = torch.ones(20_000_000)  # each sum of squares is exact; one float32 sum would end at 2**24 or drift
        atom = bias(grad)
        torch.testing.assert_close(frobenius(grad, atom), torch.tensor([20_000_000.0]).sqrt(), rtol=1e-6, atol=0)
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
    assert type(optimiser._plan().kept["path"]) is Native
    for one, other, plain in zip(model.parameters(), again.parameters(), readable.parameters(), strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, plain, rtol=1e-5, atol=1e-6)


def test_without_the_library_torch_s_own_operations_serve(monkeypatch):
    monkeypatch.setattr("autogd.optim.paths.library", lambda: None)
    assert type(a_step()[1]._plan().kept["path"]) is MultiTensor


@needs_library
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_go_torch_s_way(dtype):
    model = nn.Linear(4, 4).to(dtype)
    optimiser = AGD(model)
    model.weight.grad = torch.randn_like(model.weight)
    optimiser.step()
    assert type(optimiser._plan().kept["path"]) is MultiTensor


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
    monkeypatch.setattr("autogd.optim.compile_passes.SOURCES", tmp_path)
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
    monkeypatch.setattr("autogd.geometry.roles._warned", False)  # it warns once only
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
    monkeypatch.setattr("autogd.optim.compile_passes.LIBRARY", tmp_path / "absent" / "passes.library")
    assert "absent" in compile_passes("true")


@needs_library
def test_what_was_measured_before_is_looked_for_anew():
    plan = make_plan([(torch.zeros(3, 3), matrix(torch.zeros(3, 3)), {}) for _ in range(3)])
    path, grads = Native(plan, library()), [torch.full((3, 3), float(i)) for i in range(3)]
    path.measure(grads, plan)
    grads[1] = torch.full((3, 3), 7.0)  # the same list, with the same ends
    assert path.measure(grads, plan).tolist() == [0.0, 21.0, 6.0]
