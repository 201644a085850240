"""One owner per matrix: which rank orthogonalises what, and what that costs each rank.

Every rank works out the same plan, from shapes and placements alone. A tensor is cut into blocks of whole matrices. The
most expensive blocks are assigned first, each to the rank with the least work so far. So equal shapes are spread over
the ranks. No tensor's numbers are read here.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from autogd.engine.distributed.shards import Layout
from autogd.geometry.atom import Atom

__all__ = [
    "ROOM",
    "Block",
    "Ownership",
    "Traffic",
    "assign",
    "blocks_of",
    "flops",
    "is_local",
    "kept_cut",
    "traffic",
]

ROOM = 1 << 26  # numbers that a rank may receive in one round, unless a single matrix has more


@dataclass(frozen=True)
class Block:
    """Whole matrices of one tensor: `count` rows of its first dimension from `first` on, and the atom of these rows."""

    tensor: int
    first: int
    count: int
    atom: Atom
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Numbers in the block."""
        return math.prod(self.shape)

    @property
    def flops(self) -> int:
        """Floating-point operations to orthogonalise it, in units of what one product of side² × length takes."""
        return flops(self.atom)


@dataclass(frozen=True)
class Ownership:
    """Blocks, the owner of each, and the rounds in which they are exchanged; a tensor's blocks share a round."""

    blocks: tuple[Block, ...]
    owners: tuple[int, ...]
    rounds: tuple[tuple[int, ...], ...]
    ranks: int

    def load(self, rank: int) -> int:
        """What a rank has to orthogonalise, in the units of `Block.flops`."""
        return sum(block.flops for block, owner in zip(self.blocks, self.owners, strict=True) if owner == rank)


@dataclass
class Traffic:
    """Numbers that a rank sends to others and receives from them, in one step."""

    sent: int = 0
    received: int = 0
    owned: int = 0


@lru_cache(maxsize=4096)
def flops(atom: Atom) -> int:
    """Side² × length, summed over the matrices of an atom; 0 if its parts are vectors.

    >>> import torch
    >>> from autogd.geometry.atom import matrix
    >>> flops(matrix(torch.zeros(6, 4), stack=2))
    72
    """
    side, length = sorted((atom.fan_out, atom.fan_in))
    return atom.parts * side * side * length if side > 1 else 0


def blocks_of(tensor: int, shape: Sequence[int], atom: Atom, ranks: int) -> list[Block]:
    """A tensor as blocks of whole matrices: at most one per rank, cut between successive parts.

    >>> import torch
    >>> from autogd.geometry.atom import matrix
    >>> [(b.first, b.count) for b in blocks_of(0, (6, 4), matrix(torch.zeros(6, 4), stack=3), ranks=2)]
    [(0, 4), (4, 2)]
    """
    shape = tuple(shape)
    parts = atom.shape[0] if 0 in atom.grid else 1
    if parts == 1 or shape[0] % parts:
        return [Block(tensor, 0, shape[0], atom, shape)]
    each, step = shape[0] // parts, -(-parts // ranks)
    found = []
    for start in range(0, parts, step):
        count = min(step, parts - start)
        some = replace(atom, shape=(count, *atom.shape[1:]))
        found.append(Block(tensor, start * each, count * each, some, (count * each, *shape[1:])))
    return found


def is_local(layout: Layout, atom: Atom) -> bool:
    """Whether each matrix is whole on some rank, as with experts that are cut along the first dimension.

    Then nothing is exchanged. This excludes a tensor that is whole on all ranks: they share the work on its copies.
    """
    if not layout.splits:
        return False
    return not any(layout.piece(rank).cuts_parts(atom) for rank in range(len(layout.coordinates)))


def kept_cut(tensors: Sequence[tuple[int, Layout, Atom]]) -> list[int]:
    """The matrices that get no owner: they stay cut, and the ranks sum their grams (`autogd.engine.distributed.polar`).

    Such a matrix is cut along its longer side alone. An owner of it would have more work than each rank has if all
    ranks multiply their slabs and each repeats the work on the gram, side³.

    >>> import torch
    >>> from autogd.geometry.atom import matrix
    >>> from autogd.engine.distributed.shards import Split
    >>> ranks = tuple((rank,) for rank in range(8))
    >>> rows = {n: Layout((n, 4), (Split(axis=0, dim=0, ways=8),), ranks) for n in (4, 4000)}
    >>> kept_cut([(number, rows[n], matrix(torch.zeros(n, 4))) for number, n in enumerate((4, 4000, 4))])
    [1]
    """
    ranks = len(tensors[0][1].coordinates)
    each = [
        (max(b.flops for b in blocks_of(n, layout.shape, atom, ranks)), n, layout, atom) for n, layout, atom in tensors
    ]
    each.sort(key=lambda entry: (-entry[0], entry[1]))
    left, kept = sum(flops(atom) for *_, atom in each), []
    for (most, number, layout, atom), after in zip(each, [*(entry[0] for entry in each[1:]), 0], strict=True):
        here = most // math.prod(split.ways for split in layout.splits) + min(layout.shape) ** 3
        before, left = left, left - flops(atom)
        if not _is_slab(layout, atom) or here + max(after, left // ranks) >= max(most, before // ranks):
            break
        kept.append(number)
    return kept


def _is_slab(layout: Layout, atom: Atom) -> bool:
    """Whether a tensor is one matrix, at least twice as long as high, and is cut along its longer side alone."""
    if atom.parts > 1 or len(layout.shape) != 2 or max(layout.shape) < 2 * min(layout.shape) or not layout.splits:
        return False
    return all(layout.shape[split.dim] == max(layout.shape) for split in layout.splits)


def assign(tensors: Sequence[tuple[int, Sequence[int], Atom]], ranks: int, room: int = ROOM) -> Ownership:
    """Give every matrix of the tensors one owner.

    Args:
        tensors: number in the plan, shape and atom of each.
        ranks: how many can own.
        room: numbers that a rank may receive in one round.

    >>> import torch
    >>> from autogd.geometry.atom import matrix
    >>> shapes = [(8, 8), (8, 8), (4, 4)]
    >>> assign([(i, shape, matrix(torch.zeros(shape))) for i, shape in enumerate(shapes)], ranks=2).owners
    (0, 1, 0)
    """
    # sort equal tensors next to each other: all ranks get some of them, in the same round
    each = [(tuple(shape), atom, blocks_of(number, shape, atom, ranks)) for number, shape, atom in tensors]
    each.sort(key=lambda e: (-max(block.flops for block in e[2]), e[0], e[1].shape, e[1].rows, e[2][0].tensor))
    cut = [blocks for _, _, blocks in each]
    blocks = [block for some in cut for block in some]
    waiting = [(0, rank) for rank in range(ranks)]
    owners = []
    for block in blocks:
        load, rank = heapq.heappop(waiting)
        owners.append(rank)
        heapq.heappush(waiting, (load + block.flops, rank))
    return Ownership(tuple(blocks), tuple(owners), _rounds(cut, ranks, room), ranks)


def _rounds(cut: Sequence[Sequence[Block]], ranks: int, room: int) -> tuple[tuple[int, ...], ...]:
    """Fill a round with tensors until every rank has a block and the room is used up."""
    rounds: list[tuple[int, ...]] = []
    some: list[int] = []
    held = at = 0
    for blocks in cut:
        size = sum(block.numel for block in blocks)
        if len(some) >= ranks and held + size > room * ranks:
            rounds.append(tuple(some))
            some, held = [], 0
        some += range(at, at + len(blocks))
        held += size
        at += len(blocks)
    return (*rounds, tuple(some)) if some else tuple(rounds)


def traffic(ownership: Ownership, layouts: dict[int, Layout]) -> list[Traffic]:
    """What each rank sends and receives in a step: pieces to the owners, directions back.

    >>> import torch
    >>> from autogd.geometry.atom import matrix
    >>> from autogd.engine.distributed.shards import Split
    >>> rows = Layout((4, 4), (Split(axis=0, dim=0, ways=2),), ((0,), (1,)))
    >>> [(t.sent, t.received) for t in traffic(assign([(0, (4, 4), matrix(torch.zeros(4, 4)))], 2), {0: rows})]
    [(8, 8), (8, 8)]
    """
    found = [Traffic() for _ in range(ownership.ranks)]
    known: dict[Any, list[tuple[int, int]]] = {}  # equal layouts and rows have equal numbers
    for block, owner in zip(ownership.blocks, ownership.owners, strict=True):
        layout = layouts[block.tensor]
        found[owner].owned += block.numel
        key = layout.shape, layout.splits, id(layout.coordinates), block.first, block.count
        if key not in known:
            held = [layout.piece(rank).numbers(block.first, block.count) for rank in range(ownership.ranks)]
            known[key] = [(rank, numbers) for rank, numbers in enumerate(held) if numbers]
        owners = found[owner]
        for rank, numbers in known[key]:
            if rank == owner:
                continue
            there = layout.same_copy(rank, owner)  # the owner's own copy supplies it; directions go to all copies
            found[rank].sent += numbers * there
            owners.received += numbers * there
            owners.sent += numbers
            found[rank].received += numbers
    return found
