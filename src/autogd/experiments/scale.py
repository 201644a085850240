"""Bytes, FLOPs and memory of one optimiser step on every rank: planned, not run.

The numbers follow from the ownership plan alone, which the ranks also compute (`autogd.engine.distributed.owners`).
FLOPs are those of matrix products, as `FlopCounterMode` counts them. An all-reduce or all-gather of b bytes over N
ranks moves what a ring moves: 2b(N − 1)/N and b(N − 1)/N in and out of every rank. Weights and gradients are float32;
matrices are sent and multiplied in half precision, as on an accelerator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from torch import nn

from autogd.engine.distributed.owners import Block, Ownership, assign, flops, kept_cut, traffic
from autogd.engine.distributed.shards import Layout, Split
from autogd.geometry.atom import Atom
from autogd.reading.catalogue import read_roles

__all__ = ["METHODS", "Cost", "Load", "costs", "polar_flops", "tensors_of"]

WIRE, WIDE = 2, 4  # bytes of a number on the network, and in float32
NODE = 8  # ranks that HSDP shards over
LOW_RANK = 4  # the rank of a Dion-like step is the smaller side over this

Tensors = Sequence[tuple[tuple[int, ...], Atom]]


@dataclass(frozen=True)
class Load:
    """One rank's share of a step: bytes over the network, FLOPs, bytes of state, and bytes of temporary buffers."""

    rank: int
    sent: int
    received: int
    flops: int
    state: int
    temporary: int

    @property
    def peak(self) -> int:
        """Bytes held during the step, besides weights and gradients."""
        return self.state + self.temporary


@dataclass(frozen=True)
class Cost:
    """The loads of one method on a number of ranks."""

    method: str
    mesh: str
    ranks: int
    loads: tuple[Load, ...]

    def most(self, quantity: str) -> int:
        """The largest value of a quantity over the ranks."""
        return max(getattr(load, quantity) for load in self.loads)

    def mean(self, quantity: str) -> float:
        """The mean of a quantity over the ranks."""
        return sum(getattr(load, quantity) for load in self.loads) / len(self.loads)


def tensors_of(model: nn.Module) -> list[tuple[tuple[int, ...], Atom]]:
    """Shape and atom of every parameter."""
    return [(tuple(role.parameter.shape), role.atom) for role in read_roles(model)]


@lru_cache(maxsize=4096)
def polar_flops(atom: Atom) -> int:
    """FLOPs of the polar factors of an atom: the four steps of `orthogonalise` in half precision.

    Each step computes the Gram matrix, its square, and a product with the matrix. If the matrix is at least twice as
    long as high, products with the matrix are computed only after the second step and at the end, and Gram matrices
    only at the start and after the second step.

    >>> import torch
    >>> from autogd.geometry.atom import matrix
    >>> [polar_flops(matrix(torch.empty(2, length, device="meta"))) for length in (3, 4)]
    [256, 288]
    """
    side, length = sorted((atom.fan_out, atom.fan_in))
    if side < 2:
        return 0
    with_matrix, with_gram = (8, 20) if length >= 2 * side else (16, 8)
    return with_matrix * flops(atom) + with_gram * atom.parts * side**3


def costs(tensors: Tensors, ranks: int, mesh: str = "fsdp") -> list[Cost]:
    """The cost of a step of every method on a number of ranks.

    >>> from autogd.experiments.speed.tensors import SHAPES
    >>> ours, gathered, adamw, low_rank = costs(tensors_of(SHAPES["gpt2-small"]()), ranks=4)
    >>> ours.most("flops") < 1.25 / 4 * gathered.most("flops"), adamw.most("sent")
    (True, 0)
    """
    known = {shape: _layout(shape, ranks, mesh) for shape in {shape for shape, _ in tensors}}
    layouts = {number: known[shape] for number, (shape, _) in enumerate(tensors)}
    return [Cost(name, mesh, ranks, tuple(method(tensors, layouts, ranks))) for name, method in METHODS.items()]


@lru_cache(maxsize=256)
def _layout(shape: tuple[int, ...], ranks: int, mesh: str) -> Layout:
    if mesh == "fsdp":
        return Layout(shape, (Split(0, 0, ranks),), tuple((rank,) for rank in range(ranks)))
    if mesh == "hsdp":
        inner = min(NODE, ranks)
        if ranks % inner:
            raise ValueError(f"ranks: {ranks} cannot be copies over {NODE} ranks each; use a multiple of {NODE}")
        return Layout(shape, (Split(1, 0, inner),), tuple(divmod(rank, inner) for rank in range(ranks)))
    if mesh == "ddp":
        return Layout(shape, (), tuple((rank,) for rank in range(ranks)))
    raise ValueError(f"mesh: {mesh!r} is not known; use 'fsdp', 'hsdp' or 'ddp'")


def _held(tensors: Tensors, layouts: dict[int, Layout], rank: int) -> list[int]:
    """How many numbers of each tensor a rank holds."""
    each = {id(layout): layout for layout in layouts.values()}
    held = {key: layout.piece(rank).numel for key, layout in each.items()}
    return [held[id(layouts[number])] for number in range(len(tensors))]


def _ring(numbers: float, layout: Layout) -> int:
    """Bytes that a rank sends, and receives, in an all-reduce of float32 numbers over a tensor's shards."""
    ways = layout.splits[0].ways if layout.splits else 1
    return round(2 * WIDE * numbers * (ways - 1) / ways)


def _ours(tensors: Tensors, layouts: dict[int, Layout], ranks: int) -> list[Load]:
    matrices = [(number, layouts[number], atom) for number, (_, atom) in enumerate(tensors) if flops(atom)]
    kept = kept_cut(matrices)
    plan = assign([(n, layout.shape, atom) for n, layout, atom in matrices if n not in kept], ranks)
    moved = traffic(plan, layouts)
    # norms: of gradients, momenta and weights before the step, of the vectors' momenta during the step
    small = _ring(4 * sum(atom.parts for _, atom in tensors), layouts[0])
    # a matrix that stays sharded: two norms and two Gram matrices
    small += sum(_ring(2 + 2 * min(tensors[number][0]) ** 2, layouts[number]) for number in kept)
    work = [0] * ranks
    for block, owner in zip(plan.blocks, plan.owners, strict=True):
        work[owner] += polar_flops(block.atom)
    loads = []
    for rank in range(ranks):
        held = _held(tensors, layouts, rank)
        sent, received = (WIRE * numbers + small for numbers in (moved[rank].sent, moved[rank].received))
        slabs = sum(_slab_flops(min(tensors[number][0]), held[number]) for number in kept)
        vectors = WIDE * sum(n for n, (_, atom) in zip(held, tensors, strict=True) if not flops(atom))
        slab = max((vectors + _slab_room(min(tensors[n][0]), held[n]) for n in kept), default=0)
        room = max(_room(tensors, plan, held, rank), slab)
        loads.append(Load(rank, sent, received, work[rank] + slabs, 6 * sum(held), room))
    return loads


def _slab_flops(side: int, numbers: int) -> int:
    """FLOPs for the shard of a matrix that stays sharded: two Gram matrices, two products, squares."""
    return 8 * side * numbers + 20 * side**3


def _slab_room(side: int, numbers: int) -> int:
    """Bytes for such a shard: its direction and four copies to move it, or the buffers of the products."""
    products = (2 * WIDE + WIRE) * numbers + (5 * WIRE + WIDE) * side**2
    return max(5 * WIDE * numbers, products)


def _room(tensors: Tensors, plan: Ownership, held: Sequence[int], rank: int) -> int:
    """The most bytes that a rank holds besides the state: buffers of two rounds, and of the products."""
    vectors = WIDE * sum(n for n, (_, atom) in zip(held, tensors, strict=True) if not flops(atom))
    buffers, products = [], []
    for some in plan.rounds:
        mine = [plan.blocks[i] for i in some if plan.owners[i] == rank]
        here = sum(held[number] for number in {plan.blocks[i].tensor for i in some})
        buffers.append((here, sum(block.numel for block in mine)))
        products.append(_products(mine))
    # moving a tensor takes up to four copies of its local shard, one tensor at a time
    largest = [max((held[plan.blocks[i].tensor] for i in some), default=0) for some in plan.rounds]
    most = vectors + 4 * WIDE * max((n for n, (_, a) in zip(held, tensors, strict=True) if not flops(a)), default=0)
    none = (0, 0)
    for at, (here, owned) in enumerate(buffers):
        after = buffers[at + 1] if at + 1 < len(buffers) else none
        before = buffers[at - 1] if at else none
        now, coming, returning = (WIRE * sum(each) for each in ((here, owned), after, before))
        arriving = WIDE * here + now if at == 0 else 0  # the first round is packed before other buffers exist
        unpacking = now + WIDE * owned + returning
        packing = WIDE * (owned + after[0]) + coming + returning
        working = coming + returning + WIDE * owned + products[at]
        delivering = coming + now + returning + WIDE * (before[0] + 4 * largest[at - 1]) if at else 0
        last = now + WIDE * (here + 4 * largest[at])
        most = max(most, arriving, unpacking, packing, working, delivering, last)
    return most


def _products(blocks: Sequence[Block]) -> int:
    """Bytes besides a stack of equal matrices: two copies of it and three squares, or its factors."""
    stacks: dict[Atom, int] = {}
    for block in blocks:
        stacks[block.atom] = stacks.get(block.atom, 0) + 1
    most = 0
    for atom, count in stacks.items():
        numbers, side = atom.fan_out * atom.fan_in, min(atom.fan_out, atom.fan_in)
        working = WIRE * (2 * numbers + 3 * side * side)
        most = max(most, count * atom.parts * max(working, 2 * WIDE * numbers))
    return most


def _gathered(tensors: Tensors, layouts: dict[int, Layout], ranks: int) -> list[Load]:
    """Every rank gathers all tensors, one at a time, in float32, and orthogonalises all of them."""
    work = sum(polar_flops(atom) for _, atom in tensors)
    small = _ring(3 * sum(atom.parts for _, atom in tensors), layouts[0])
    largest = max(_numel(shape) for shape, _ in tensors)
    room = max(_products([Block(0, 0, shape[0], atom, shape)]) + WIDE * _numel(shape) for shape, atom in tensors)
    loads = []
    for rank in range(ranks):
        held = _held(tensors, layouts, rank)
        away = WIDE * sum(_numel(shape) - n for n, (shape, _) in zip(held, tensors, strict=True))
        loads.append(Load(rank, away + small, away + small, work, 6 * sum(held), max(room, WIDE * largest)))
    return loads


def _adamw(tensors: Tensors, layouts: dict[int, Layout], ranks: int) -> list[Load]:
    """Two moments in float32, nothing to exchange, no matrix product."""
    return [Load(rank, 0, 0, 0, 2 * WIDE * sum(_held(tensors, layouts, rank)), 0) for rank in range(ranks)]


def _low_rank(tensors: Tensors, layouts: dict[int, Layout], ranks: int) -> list[Load]:
    """A power iteration on sharded rows: M Q, its orthonormal basis P, Mᵀ P, and two products of both.

    P is orthonormalised by Cholesky factors of its Gram matrix, twice. Mᵀ P and the Gram matrices are
    summed over the ranks.
    """
    summed = 0
    for _, atom in tensors:
        if flops(atom):
            side = min(atom.fan_out, atom.fan_in)
            low = max(1, side // LOW_RANK)
            summed += atom.parts * (atom.fan_in * low + 2 * low * low)
    small = _ring(summed, layouts[0])
    loads = []
    for rank in range(ranks):
        held, work, basis = _held(tensors, layouts, rank), 0, 0
        for n, (shape, atom) in zip(held, tensors, strict=True):
            if flops(atom):
                low = max(1, min(atom.fan_out, atom.fan_in) // LOW_RANK)
                work += 8 * n * low + 8 * n // atom.fan_in * low * low
                basis += WIDE * atom.parts * atom.fan_in * low * n // _numel(shape)
        loads.append(Load(rank, small, small, work, WIDE * sum(held) + basis, WIDE * max(held)))
    return loads


def _numel(shape: Sequence[int]) -> int:
    product = 1
    for n in shape:
        product *= n
    return product


METHODS = {
    "one owner a matrix": _ours,
    "gather everything": _gathered,
    "AdamW": _adamw,
    "low rank (Dion-like)": _low_rank,
}
"""The methods that are compared."""
