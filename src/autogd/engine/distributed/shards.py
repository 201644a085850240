"""Shards: how a tensor is cut along some of its dimensions, by one or several axes of a device mesh."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from torch import Tensor

from autogd.engine.distributed.pieces import Piece, Rows

__all__ = [
    "Layout", "Split", "aligned", "cut_rows", "is_sharded", "local", "piece_at", "piece_of", "placement_of",
    "splits_of",
]  # fmt: skip


@dataclass(frozen=True)
class Split:
    """A mesh axis that cuts a tensor: along which dimension, into how many, and with what stride (FSDP2 beside TP)."""

    axis: int
    dim: int
    ways: int
    factor: int = 1


@dataclass(frozen=True)
class Layout:
    """The shards of a tensor on the ranks of a group.

    Args:
        shape: of the whole tensor.
        splits: the mesh axes that cut it.
        coordinates: the mesh coordinate of each rank of the group.

    >>> rows = Layout((4, 2), (Split(axis=0, dim=0, ways=2),), ((0,), (1,)))
    >>> rows.piece(1).rows[0], rows.same_copy(0, 1)
    ((range(2, 4),), True)
    """

    shape: tuple[int, ...]
    splits: tuple[Split, ...]
    coordinates: tuple[tuple[int, ...], ...]

    def piece(self, rank: int) -> Piece:
        """What a rank of the group holds."""
        place = self.coordinates[rank]
        return _piece(self.shape, self.splits, tuple(0 if i in self._uncut else c for i, c in enumerate(place)))

    def same_copy(self, one: int, other: int) -> bool:
        """Whether two ranks hold pieces of the same copy of the tensor; HSDP and DDP have several copies."""
        here, there = self.coordinates[one], self.coordinates[other]
        return all(here[axis] == there[axis] for axis in self._uncut)

    @cached_property
    def _uncut(self) -> tuple[int, ...]:
        """The mesh axes along which there are copies."""
        cut = {split.axis for split in self.splits}
        return tuple(axis for axis in range(len(self.coordinates[0])) if axis not in cut)


@lru_cache(maxsize=1 << 16)
def _piece(shape: tuple[int, ...], splits: tuple[Split, ...], coordinate: tuple[int, ...]) -> Piece:
    return piece_at(shape, splits, coordinate)


def placement_of(tensor: Tensor) -> object:
    """The placements and the mesh of a DTensor; a pair of None for any other tensor."""
    return getattr(tensor, "placements", None), getattr(tensor, "device_mesh", None)


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "placements")  # recognised without importing its package


def local(tensor: Any) -> Tensor:
    """The local shard of a DTensor, as a view; any other tensor as it is."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def aligned(grad: Any, parameter: Any) -> Tensor:
    """A gradient, sharded as its parameter is: some layers leave it as a partial sum."""
    if not is_sharded(grad) or grad.placements == parameter.placements:
        return grad
    return grad.redistribute(placements=parameter.placements)


def splits_of(tensor: Any) -> list[Split]:
    """Which mesh axes cut a DTensor, in the mesh's order."""
    found = []
    for axis, placement in enumerate(tensor.placements):
        if placement.is_replicate():
            continue
        if placement.is_partial():
            raise ValueError(
                f"a tensor has the placements {tensor.placements}; a parameter's must be Shard or Replicate"
            )
        dim = placement.dim % tensor.dim()
        found.append(Split(axis, dim, tensor.device_mesh.size(axis), int(getattr(placement, "split_factor", 1))))
    return found


def piece_of(tensor: Any) -> Piece | None:
    """This rank's piece of a DTensor; None if the tensor is whole here."""
    if not is_sharded(tensor) or not (splits := splits_of(tensor)):
        return None
    piece = piece_at(tuple(tensor.shape), splits, tensor.device_mesh.get_coordinate())
    here = tuple(tensor.to_local().shape)
    if math.prod(here) != math.prod(piece.size) or (math.prod(here) and here != piece.size):
        raise ValueError(f"{tensor.placements}: expected {piece.size} of {tuple(tensor.shape)} here, found {here}")
    return piece


def piece_at(shape: Sequence[int], splits: Sequence[Split], coordinate: Sequence[int]) -> Piece:
    """The piece of the rank at a mesh coordinate.

    >>> piece_at((5, 2), [Split(axis=0, dim=0, ways=2)], (1,)).rows
    ((range(3, 5),), (range(0, 2),))
    """
    rows: list[Rows] = [(range(n),) if n else () for n in shape]
    for split in splits:
        rows[split.dim] = cut_rows(rows[split.dim], split.ways, coordinate[split.axis], split.factor)
    return Piece(tuple(shape), tuple(rows))


def cut_rows(rows: Rows, ways: int, which: int, factor: int = 1) -> Rows:
    """One cut of rows as `Shard` cuts them (`torch.chunk`); with a factor above 1, as `_StridedShard` does.

    >>> [cut_rows((range(9),), 4, i) for i in range(4)]
    [(range(0, 3),), (range(3, 6),), (range(6, 9),), ()]
    >>> [cut_rows((range(8),), 2, i, factor=2) for i in range(2)]
    [(range(0, 2), range(4, 6)), (range(2, 4), range(6, 8))]
    """
    if factor == 1:
        return _chunk(rows, ways, which)
    each = [_chunk(_chunk(rows, factor, i), ways, which) for i in range(factor)]
    return _joined(run for chunk in each for run in chunk)


def _chunk(rows: Rows, ways: int, which: int) -> Rows:
    total = sum(map(len, rows))
    most = max(1, -(-total // ways))
    return _between(rows, min(which * most, total), min((which + 1) * most, total))


def _between(rows: Rows, start: int, stop: int) -> Rows:
    """The rows from one place in the list to another."""
    found, at = [], 0
    for run in rows:
        some = run[max(start - at, 0) : max(stop - at, 0)]
        if len(some):
            found.append(some)
        at += len(run)
    return tuple(found)


def _joined(runs: Iterator[range]) -> Rows:
    found: list[range] = []
    for run in runs:
        if found and found[-1].stop == run.start:
            found[-1] = range(found[-1].start, run.stop)
        else:
            found.append(run)
    return tuple(found)
