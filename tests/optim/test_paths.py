"""The fast ways over the weights equal the readable one, on every atom and in every layout."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from autogd import AGD
from autogd.geometry.atoms import Atom, bias, bilinear, embedding, gain, kernel, matrix, scalars, token
from autogd.geometry.norms import frobenius
from autogd.optim.multi_tensor import MultiTensor
from autogd.optim.plan import make_plan
from autogd.optim.readable import Readable

small = st.integers(1, 5)
LAYOUTS = ("contiguous", "channels last", "reversed", "gaps", "mixed")


def convolution(groups: int, transposed: bool) -> nn.Module:
    make = nn.ConvTranspose2d if transposed else nn.Conv2d
    return make(groups, groups, 1, groups=groups)


@st.composite
def tensors(draw: st.DrawFn) -> tuple[tuple[int, ...], Atom]:
    a, b, c, d, stack = (draw(small) for _ in range(5))
    empty = torch.zeros
    return draw(
        st.sampled_from(
            [
                ((a, b), matrix(empty(a, b))),
                ((300, 41), matrix(empty(300, 41))),  # large enough to be measured on its own
                ((stack * a, b), matrix(empty(stack * a, b), stack=stack)),
                ((a, stack * b), matrix(empty(a, stack * b), stack=stack, transposed=True)),
                ((a, b), matrix(empty(a, b), transposed=True)),
                ((a, b, c, d), kernel(empty(a, b, c, d))),
                ((64, 80, 5, c), kernel(empty(64, 80, 5, c))),  # large enough for several pieces
                ((stack * a, b, c, d), kernel(empty(stack * a, b, c, d), convolution(stack, False))),
                ((stack * a, b, c, d), kernel(empty(stack * a, b, c, d), convolution(stack, True))),
                ((a, b, c), kernel(empty(a, b, c))),
                ((a, b, c, d, 2), kernel(empty(a, b, c, d, 2))),
                ((a, b, c), bilinear(empty(a, b, c))),
                ((a, b), embedding(empty(a, b))),
                ((1, a, b), token(empty(1, a, b))),
                ((a,), bias(empty(a))),
                ((stack * a,), bias(empty(stack * a), stack=stack)),
                ((a, b), gain(empty(a, b))),
                ((), scalars(torch.tensor(1.0))),
            ]
        )
    )


def laid_out(shape: tuple[int, ...], layout: str, dtype: torch.dtype) -> torch.Tensor:
    values = torch.randn(shape, dtype=torch.float64).to(dtype)
    if layout == "channels last" and len(shape) == 4:
        return values.to(memory_format=torch.channels_last)
    if layout == "reversed":
        back = tuple(reversed(range(len(shape))))
        return values.permute(back).contiguous().permute(back)
    if layout == "gaps" and shape:
        return torch.stack([values, values], dim=-1)[..., 0]
    return values


def viewable(tensor: torch.Tensor, atom: Atom) -> bool:
    try:
        atom.cut(tensor)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("threads", [1, 2])
@given(
    kinds=st.lists(tensors(), min_size=1, max_size=6), layout=st.sampled_from(LAYOUTS), seed=st.integers(0, 2**16),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]), masked=st.sampled_from([None, True, False]),
)  # fmt: skip
def test_the_multi_tensor_path_equals_the_readable_one(threads, kinds, layout, seed, dtype, masked):
    before = torch.get_num_threads()
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
        fast, plain = MultiTensor(plan), Readable()
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
