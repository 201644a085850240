"""The ownership plan: every matrix has one owner, the work is balanced, and all ranks come to the same plan."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from autogd.engine.distributed.owners import assign, blocks_of, is_local, traffic
from autogd.engine.distributed.shards import Layout, Split, cut_rows, piece_at
from autogd.geometry.atom import matrix

sides = st.integers(2, 9)
tensors = st.lists(st.tuples(sides, sides, st.integers(1, 3)), min_size=1, max_size=12)


def entries(drawn):
    shapes = [(stack * rows, columns) for rows, columns, stack in drawn]
    atoms = [matrix(torch.empty(shape), stack=drawn[i][2]) for i, shape in enumerate(shapes)]
    return [(i, shape, atom) for i, (shape, atom) in enumerate(zip(shapes, atoms, strict=True))]


@given(drawn=tensors, ranks=st.integers(1, 9), room=st.integers(1, 200))
def test_every_matrix_has_one_owner(drawn, ranks, room):
    plan = assign(entries(drawn), ranks, room)
    assert sorted(i for some in plan.rounds for i in some) == list(range(len(plan.blocks)))
    for number, shape, atom in entries(drawn):
        mine = sorted((b for b in plan.blocks if b.tensor == number), key=lambda b: b.first)
        assert [row for b in mine for row in range(b.first, b.first + b.count)] == list(range(shape[0]))
        assert sum(b.atom.parts for b in mine) == atom.parts
        assert len({at for at, some in enumerate(plan.rounds) for i in some if plan.blocks[i].tensor == number}) == 1
    assert all(0 <= owner < ranks for owner in plan.owners)


@given(drawn=tensors, ranks=st.integers(1, 9))
def test_no_rank_has_more_to_do_than_the_mean_and_one_block(drawn, ranks):
    plan = assign(entries(drawn), ranks)
    loads = [plan.load(rank) for rank in range(ranks)]
    largest = max(block.flops for block in plan.blocks)
    assert sum(loads) == sum(block.flops for block in plan.blocks)
    assert max(loads) <= sum(loads) / ranks + largest


@given(drawn=tensors, ranks=st.integers(1, 9), seed=st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_the_tensors(drawn, ranks, seed):
    here = entries(drawn)
    there = list(here)
    seed.shuffle(there)
    assert assign(here, ranks) == assign(there, ranks)


def test_gpt2_small_on_four_ranks_is_balanced():
    shapes = [((2304, 768), 3), ((768, 768), 1), ((3072, 768), 1), ((768, 3072), 1)] * 12
    plan = assign([(i, s, matrix(torch.empty(s, device="meta"), stack=k)) for i, (s, k) in enumerate(shapes)], 4)
    loads = [plan.load(rank) for rank in range(4)]
    assert max(loads) <= 1.25 / 4 * sum(loads)


@given(n=st.integers(0, 40), ways=st.integers(1, 6), factor=st.integers(1, 4))
def test_rows_are_cut_as_torch_cuts_them(n, ways, factor):
    from torch.distributed.tensor.placement_types import Shard, _StridedShard

    placement = Shard(0) if factor == 1 else _StridedShard(0, split_factor=factor)
    expected, _ = placement._split_tensor(torch.arange(n), ways, with_padding=False)
    found = [cut_rows((range(n),) if n else (), ways, which, factor) for which in range(ways)]
    assert [[row for run in rows for row in run] for rows in found] == [chunk.tolist() for chunk in expected]


@st.composite
def layouts(draw, shape):
    mesh = draw(st.sampled_from([(1,), (2,), (3,), (2, 2), (3, 2)]))
    splits = []
    for axis, ways in enumerate(mesh):
        dim = draw(st.sampled_from([None, *range(len(shape))]))
        if dim is not None:
            splits.append(Split(axis, dim, ways, draw(st.integers(1, 2)) if axis == 0 else 1))
    coordinates = tuple(tuple(c) for c in torch.cartesian_prod(*map(torch.arange, mesh)).view(-1, len(mesh)).tolist())
    return Layout(shape, tuple(splits), coordinates)


@given(data=st.data(), rows=st.integers(1, 9), columns=st.integers(1, 9), stack=st.integers(1, 3))
def test_norms_of_pieces_add_up_to_those_of_the_whole(data, rows, columns, stack):
    shape = (rows * stack, columns)
    layout = data.draw(layouts(shape))
    whole = torch.arange(1.0, 1 + math.prod(shape)).double().view(shape)
    atom = matrix(whole, stack=stack)
    total, rebuilt = torch.zeros(stack).double(), torch.zeros(shape).double()
    factors = torch.arange(1.0, 1 + stack).double()
    copies = len(layout.coordinates) // math.prod(split.ways for split in layout.splits)
    for rank in range(len(layout.coordinates)):
        piece = layout.piece(rank)
        index = [torch.tensor([row for run in runs for row in run], dtype=torch.int64) for runs in piece.rows]
        here = whole[index[0]][:, index[1]]
        total += piece.squares(here, atom)
        scaled = (piece.cut(here, atom) * piece.spread(factors, atom)).view(here.shape)
        for box in piece.boxes():
            box.of_whole(rebuilt).add_(box.of_piece(scaled))
    expected = whole.square().view(stack, -1).sum(1)
    torch.testing.assert_close(total, expected * copies)
    torch.testing.assert_close(rebuilt, (whole.view(stack, -1) * factors.view(-1, 1)).view(shape) * copies)


@given(data=st.data(), drawn=tensors)
def test_what_is_sent_is_received(data, drawn):
    here = entries(drawn)
    first = data.draw(layouts(here[0][1]))
    ranks = len(first.coordinates)
    placed = {number: Layout(shape, first.splits, first.coordinates) for number, shape, _ in here}
    found = traffic(assign(here, ranks), placed)
    assert sum(t.sent for t in found) == sum(t.received for t in found)
    assert sum(t.owned for t in found) == sum(math.prod(shape) for _, shape, _ in here)


def test_experts_cut_along_the_first_dimension_stay_where_they_are():
    experts = torch.empty(8, 6, 4)
    from dataclasses import replace

    atom = replace(matrix(torch.empty(6, 4)), shape=(8, 6, 4), rows=(1,), columns=(2,))
    ranks = tuple((i,) for i in range(4))
    assert is_local(Layout(tuple(experts.shape), (Split(0, 0, 4),), ranks), atom)
    assert not is_local(Layout(tuple(experts.shape), (Split(0, 1, 4),), ranks), atom)
    assert not is_local(Layout((24, 4), (Split(0, 0, 4),), ranks), matrix(torch.empty(24, 4)))
    assert is_local(Layout((24, 4), (Split(0, 0, 4),), ranks), matrix(torch.empty(24, 4), stack=4))
    assert not is_local(Layout((24, 4), (Split(0, 0, 4),), ranks), matrix(torch.empty(24, 4), stack=3))


def test_a_rank_owns_at_most_its_share_of_a_stack():
    blocks = blocks_of(0, (24, 4), matrix(torch.empty(24, 4), stack=12), ranks=4)
    assert [block.count for block in blocks] == [6, 6, 6, 6]
    assert piece_at((24, 4), [], ()).whole
