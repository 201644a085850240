"""Every backend does what the reference does: every atom, optimiser, type, layout and option. A backend is one line."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autogd.engine.backend import Average, SingleTensor, Step
from autogd.engine.distributed import polar as rational
from autogd.engine.distributed.dtensor import Sharded
from autogd.engine.distributed.shards import local
from autogd.engine.foreach import Foreach
from autogd.engine.library import library
from autogd.engine.native import Native
from autogd.engine.plan import Plan
from drawn_tensors import LAYOUTS, laid_out, needs_library, tensors, viewable

FLOATS = [torch.float64, torch.float32, torch.bfloat16]


def sharded(tensor):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return DTensor.from_local(tensor, init_device_mesh("cpu", (1,)), [Shard(0)]) if tensor.dim() else tensor


# name: what makes it, the types that it takes, and how a tensor gets to it
BACKENDS = {
    "foreach": (Foreach, FLOATS, lambda tensor: tensor),
    "native": (lambda plan, *rest: Native(plan, library(), *rest), [torch.float32], lambda tensor: tensor),
    "dtensor": (Sharded, FLOATS, sharded),
}
MARKS = {"native": needs_library}


@pytest.fixture(scope="module", autouse=True)
def _one_process():
    os.environ.setdefault("MASTER_ADDR", "localhost")
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in BACKENDS])
@settings(max_examples=60)
@given(
    kinds=st.lists(tensors(), min_size=1, max_size=5), layout=st.sampled_from(LAYOUTS), seed=st.integers(0, 2**16),
    optimiser=st.sampled_from(["AGD", "AGD averaging", "StochasticAGD"]), dtype=st.sampled_from(FLOATS),
    geometry=st.sampled_from(["frobenius", "spectral"]), sign=st.sampled_from([1, -1]), decay=st.booleans(),
    finite=st.sampled_from([None, True, False]), still=st.booleans(),
)  # fmt: skip
def test_it_measures_and_moves_as_the_reference_does(
    name, threads, kinds, layout, seed, optimiser, dtype, geometry, sign, decay, finite, still
):
    make, types, place = BACKENDS[name]
    dtype = dtype if dtype in types else types[0]
    torch.manual_seed(seed)
    shapes = [(shape, atom) for shape, atom in kinds for _ in range(2)]
    if name == "dtensor":  # a slice of a tensor is contiguous
        layout = "contiguous"
    drawn = [(laid_out(shape, "contiguous" if layout == "mixed" else layout, dtype), atom) for shape, atom in shapes]
    drawn = [(tensor, atom) for tensor, atom in drawn if viewable(tensor, atom)]
    other = "reversed" if layout == "mixed" else layout
    grads = [laid_out(tuple(tensor.shape), other, dtype) for tensor, _ in drawn]
    if not drawn or not all(viewable(grad, atom) for grad, (_, atom) in zip(grads, drawn, strict=True)):
        return
    with_momentum, averaging = optimiser == "StochasticAGD", optimiser != "AGD"
    wide, half = torch.promote_types(dtype, torch.float32), torch.float32 if dtype == torch.float64 else torch.bfloat16
    momenta = [torch.empty_like(t, dtype=half).copy_(torch.randn(t.shape)) for t, _ in drawn]
    averages = [torch.empty_like(t, dtype=wide).copy_(torch.randn(t.shape)) for t, _ in drawn]

    def run(make, place):
        entries = []
        for (tensor, atom), grad in zip(drawn, grads, strict=True):
            parameter = place(tensor.clone(memory_format=torch.preserve_format) if layout != "gaps" else tensor.clone())
            if place is sharded or make is not SingleTensor:
                parameter = parameter.detach()
            parameter.grad = place(grad.clone())
            entries.append((parameter, atom, {}))
        order = [entry[0] for entry in entries]
        plan = Plan(entries)
        where = [next(i for i, p in enumerate(order) if p is q) for q in plan.parameters]
        slopes = [parameter.grad for parameter in plan.parameters]
        held = [place(momenta[i].clone(memory_format=torch.preserve_format)) for i in where] if with_momentum else []
        means = [place(averages[i].clone(memory_format=torch.preserve_format)) for i in where] if averaging else []
        backend = make(plan, geometry, 0.9 if with_momentum else 0.0)
        supported.append(getattr(backend, "fits", True))
        norms = backend.measure(slopes, held)
        parts, count = len(plan.owner), len(plan.parameters)
        coefficients = -sign * torch.where(torch.arange(parts) % 3 == 2, 0, plan.reach / plan.depth)
        coefficients = coefficients if with_momentum else coefficients / norms.gradients.clamp(min=1e-9)
        some = torch.tensor([0.0 if still and i % 2 else 0.4 for i in range(count)], dtype=plan.reach.dtype)
        coefficients = coefficients * (some[plan.owner] > 0)
        mean = Average(None, some, some) if with_momentum else Average(some / 2, some, some / 3) if averaging else None
        mask = None if finite is None else torch.tensor(finite)
        keeps = torch.full((count,), 0.9 if decay else 1.0, dtype=plan.reach.dtype)
        if with_momentum:  # maps are held one by one
            maps = torch.arange(len(plan.map_owner)) % 4
            keeps = (keeps[plan.map_owner] * (1 - maps / 40))[plan.map_of]
        if finite is False:  # as the rules have it
            slopes = [place(torch.full_like(local(grad), torch.nan)) for grad in slopes]
            mean = mean and Average(mean.along and 0 * mean.along, 0 * some, 0 * some) if with_momentum else None
            means, keeps = (means if with_momentum else []), torch.ones_like(keeps)
            if not with_momentum and geometry == "spectral":
                backend.measure([place(torch.ones_like(local(grad))) for grad in slopes])
        gradient_factor = torch.tensor(0.5, dtype=plan.reach.dtype) if with_momentum else None
        step = Step(coefficients, keeps if decay or with_momentum else None, mask, gradient_factor, mean)
        backend.update(slopes, step, held, means)
        weights = torch.where(plan.held_at < torch.inf, norms.weights, 0) if with_momentum else norms.gradients
        found = [norms.gradients, norms.momenta if with_momentum else norms.gradients, weights]
        return [local(tensor).float() for tensor in (*found, *plan.parameters, *held, *means)]

    supported: list[bool] = []
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        mine = run(make, place)
        with pytest.MonkeyPatch.context() as patch:
            inverses = name == "native" and supported[0] and finite is None and layout != "mixed"  # else it falls back
            inverses |= name == "dtensor" and dtype == torch.float32 and library() is not None
            inverses &= not any(atom.complex for _, atom in drawn)  # the library has no complex matrices
            if inverses and with_momentum and geometry == "spectral":
                patch.setattr("autogd.geometry.direction.orthogonalise", rational.orthogonalise)
            reference = run(SingleTensor, lambda tensor: tensor)
    finally:
        torch.set_num_threads(before)
    error = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 2e-2}[dtype]
    if geometry == "spectral" and dtype != torch.float64:
        error = max(error, 1e-2)  # the smallest singular values of a matrix that is close to singular are rounding's
    for one, two in zip(mine, reference, strict=True):
        # momentum is held in half as many bits, and rounds to either side
        loose = error if not with_momentum else 1e-6 if dtype == torch.float64 else 2e-2
        torch.testing.assert_close(one, two, rtol=loose, atol=loose, equal_nan=finite is False, check_dtype=False)
