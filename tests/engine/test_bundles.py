"""Small tensors that are alike move together as each would by itself."""

import copy

import pytest
import torch
from torch import nn

from autogd import StochasticAGD
from autogd.engine import bundles, foreach
from autogd.engine.backend import Step
from autogd.engine.plan import Plan
from autogd.geometry.atom import matrix


class Scalars(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return x * self.scale + self.shift


def network():
    torch.manual_seed(0)
    blocks = [nn.Conv2d(3, 6, 3), nn.ReLU(), *(nn.Conv2d(6, 6, 3, padding=1) for _ in range(3)), nn.Flatten()]
    layers = [nn.Linear(216, 8), *(nn.Linear(8, 8) for _ in range(4)), nn.LayerNorm(8), nn.Linear(8, 8, bias=False)]
    return nn.Sequential(*blocks, *layers, Scalars()).double()


def trained(model, groups, **settings):
    optimiser = StochasticAGD(model if groups is None else groups(model), **settings)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        x = torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=generator)
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()
    with optimiser.averaged():
        averages = [p.detach().clone() for p in model.parameters()]
    return [p.detach() for p in model.parameters()] + averages


class Reader(nn.Module):
    """A table, packed attention and grouped kernels: what has parts that lie one after the other."""

    def __init__(self):
        super().__init__()
        self.table, self.attention = nn.Embedding(40, 12), nn.MultiheadAttention(12, 2, batch_first=True)
        self.kernels = nn.Conv1d(12, 24, 3, groups=4)

    def forward(self, x):
        seen = self.table((x.flatten(1)[:, :16].abs() * 1e4).long() % 40)
        return self.kernels(self.attention(seen, seen, seen)[0].mT)


def two_groups(model):
    return [{"params": model[:7]}, {"params": model[7:], "lr": 0.5, "weight_decay": 0.1}]


@pytest.mark.parametrize("geometry", ["frobenius", "spectral"])
@pytest.mark.parametrize("groups", [None, two_groups])
@pytest.mark.parametrize("channels_last", [False, True])
def test_together_they_move_as_each_would_alone(monkeypatch, geometry, groups, channels_last):
    model = network()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    other = copy.deepcopy(model)
    moved = trained(model, groups, geometry=geometry)
    monkeypatch.setattr(bundles, "ROOM", 0)
    alone = trained(other, groups, geometry=geometry)
    for one, two in zip(moved, alone, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)


def test_a_model_that_changes_its_type_and_back_keeps_its_momentum():
    # each type has a plan of its own, and the first is found again
    model = nn.Linear(1, 1, bias=False)
    optimiser = StochasticAGD(model)
    held = []
    for dtype in (torch.float32, torch.float64, torch.float32):
        model.to(dtype)
        model.weight.grad = torch.full_like(model.weight, 5.0)
        optimiser.step()
        held.append(optimiser.state[model.weight]["momentum"])
    assert [momentum.dtype for momentum in held] == [torch.bfloat16, torch.float64, torch.bfloat16]
    assert float(held[-1]) == pytest.approx(1 - 0.9**3, rel=0.01)  # in units of a typical gradient


def test_a_state_that_was_cleared_is_begun_anew():
    model = nn.Linear(2, 2)
    optimiser = StochasticAGD(model)
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
        optimiser.step()
        optimiser.state.clear()
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_no_bundle_is_larger_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(bundles, "ROOM", 200)
    model = network()
    model(torch.randn(5, 3, 8, 8, dtype=torch.float64)).sum().backward()
    optimiser = StochasticAGD(model)
    plan = optimiser._new_backend().plan
    found = bundles.bundles(plan, "spectral")
    assert [at for bundle in found for at in range(bundle.where.start, bundle.where.stop)] == list(
        range(len(plan.parameters))
    )
    counts = [bundle.where.stop - bundle.where.start for bundle in found]
    assert max(counts) > 1
    for bundle, count in zip(found, counts, strict=True):
        assert count == 1 or sum(p.numel() for p in plan.parameters[bundle.where]) <= 200


@pytest.mark.parametrize("geometry", ["frobenius", "spectral"])
def test_a_large_tensor_moves_by_pieces_as_it_would_whole(monkeypatch, geometry):
    torch.manual_seed(0)
    model = Reader().double()
    other = copy.deepcopy(model)
    # all of them are large now, and may be cut
    monkeypatch.setattr(bundles, "ROOM", 30)
    monkeypatch.setattr(bundles, "PIECES", 1000)
    optimiser = StochasticAGD(model)
    model(torch.randn(5, 3, 8, 8).double()).sum().backward()
    plan = optimiser._new_backend().plan
    cut = bundles.bundles(plan, geometry)
    assert len(cut) > len(list(model.parameters()))
    assert sum(bundle.batch[0] for bundle in cut) == len(plan.owner)
    model.zero_grad()
    by_pieces = trained(model, None, geometry=geometry)
    monkeypatch.setattr(bundles, "ROOM", 1 << 30)
    for one, two in zip(by_pieces, trained(other, None, geometry=geometry), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-12)


def test_a_vocabulary_s_table_is_never_copied_whole():
    table = nn.Embedding(4000, 500)
    optimiser = StochasticAGD(table)
    table.weight.grad = torch.randn(4000, 500)
    largest = max(bundle.batch[0] * 500 for bundle in optimiser._new_backend().bundles)
    assert largest <= max(bundles.ROOM, table.weight.numel() // 64)


def test_a_stack_whose_parts_are_not_rows_of_the_tensor_stays_whole():
    weight = nn.Parameter(torch.randn(1, 3 * 300, 300))
    packed = matrix(torch.empty(900, 300), stack=3)  # of shape 3 × 300 × 300, which the tensor's one row is not cut by
    optimiser = StochasticAGD([("packed", weight)], atoms={"packed": lambda *_: packed})
    before = weight.detach().clone()
    weight.grad = torch.randn_like(weight)
    optimiser.step()
    assert not torch.equal(weight, before)


def test_momentum_by_pieces_is_that_of_the_whole(monkeypatch):
    monkeypatch.setattr(foreach, "ROOM", 10)
    monkeypatch.setattr(foreach, "PIECES", 1000)
    for shape in ((1, 7, 5), (3, 4), (2, 9, 2, 2), (5,)):
        held, grad = torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
        kept = held.clone()
        step = Step(torch.zeros(1), gradient_factor=torch.tensor(0.5, dtype=torch.float64))
        weight = torch.zeros(2, 2)
        backend = foreach.Foreach(Plan([(weight, matrix(weight), {})]), "frobenius", momentum=0.9)
        ahead = backend._look_ahead(kept, grad, step)
        torch.testing.assert_close(kept, 0.9 * held + 0.05 * grad)
        torch.testing.assert_close(ahead, 0.81 * held + 0.095 * grad)
