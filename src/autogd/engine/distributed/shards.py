"""Which rows of a tensor each rank holds, and the arithmetic on such a piece.

A DTensor is cut along some of its dimensions, by one or several axes of a device mesh. A rank's piece is then a product
of row sets, one set a dimension. Squared norms of pieces add up to the whole tensor's over the ranks.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from autogd.geometry.atom import Atom
from autogd.geometry.norms import accumulation_dtype

__all__ = [
    "Box",
    "Piece",
    "Rows",
    "Split",
    "aligned",
    "cut_rows",
    "is_sharded",
    "local",
    "piece_at",
    "piece_of",
    "splits_of",
]

Rows = tuple[range, ...]
"""Global row numbers along one dimension, in the order in which a rank holds them."""


@dataclass(frozen=True)
class Split:
    """A mesh axis that cuts a tensor: along which dimension, into how many, and with what stride (FSDP2 beside TP)."""

    axis: int
    dim: int
    ways: int
    factor: int = 1


@dataclass(frozen=True)
class Box:
    """A block of a tensor without gaps: where it starts in the whole and in the piece, and its size."""

    start: tuple[int, ...]
    here: tuple[int, ...]
    size: tuple[int, ...]

    def of_whole(self, tensor: Tensor) -> Tensor:
        """The block, as a view of the whole tensor."""
        return _narrowed(tensor, self.start, self.size)

    def of_piece(self, tensor: Tensor) -> Tensor:
        """The block, as a view of the piece."""
        return _narrowed(tensor, self.here, self.size)


@dataclass(frozen=True)
class Piece:
    """What a rank holds of a tensor of this shape: some rows of each dimension.

    >>> from autogd.geometry.atom import matrix
    >>> whole = torch.ones(4, 2)
    >>> atom = matrix(whole, stack=2)  # two matrices of 2 × 2
    >>> Piece((4, 2), ((range(1, 4),), (range(2),))).squares(whole[1:], atom)
    tensor([2., 4.])
    """

    shape: tuple[int, ...]
    rows: tuple[Rows, ...]
    # what an atom's view of the piece comes to, worked out once
    _known: dict[Any, "_View"] = field(default_factory=dict, repr=False, compare=False)

    @property
    def size(self) -> tuple[int, ...]:
        """The shape of what is here."""
        return tuple(sum(map(len, rows)) for rows in self.rows)

    @property
    def numel(self) -> int:
        """How many numbers are here."""
        return math.prod(self.size)

    @property
    def whole(self) -> bool:
        """Whether all of the tensor is here, in order."""
        return all(_is_all(rows, n) for rows, n in zip(self.rows, self.shape, strict=True))

    def boxes(self, first: int = 0, count: int | None = None) -> Iterator[Box]:
        """The piece as blocks without gaps; with `first` and `count`, what lies in these rows of the first dimension.

        `start` is then counted from `first`.

        >>> [(box.start, box.here, box.size) for box in Piece((6,), ((range(1, 3), range(4, 6)),)).boxes(2, 3)]
        [((0,), (1,), (1,)), ((2,), (2,), (1,))]
        """
        each: list[list[tuple[int, int, int]]] = []
        for dim, rows in enumerate(self.rows):
            low, high = (first, self.shape[0] if count is None else first + count) if dim == 0 else (0, self.shape[dim])
            runs, here = [], 0
            for run in rows:
                start, stop = max(run.start, low), min(run.stop, high)
                if start < stop:
                    runs.append((start - low, here + start - run.start, stop - start))
                here += len(run)
            each.append(runs)
        for chosen in product(*each):
            yield Box(*(tuple(run[i] for run in chosen) for i in range(3)))

    def numbers(self, first: int, count: int) -> int:
        """How many numbers of these rows of the first dimension are here."""
        return sum(math.prod(box.size) for box in self.boxes(first, count))

    def cuts_parts(self, atom: Atom) -> bool:
        """Whether some part of the atom lies here only partly."""
        return any(_cuts(self.rows[dim], n, atom, dims) for dim, (n, dims) in enumerate(self._split(atom)))

    def squares(self, piece: Tensor, atom: Atom) -> Tensor:
        """What the piece adds to the squared Frobenius norm of every part."""
        return self.sums(piece.to(accumulation_dtype(piece.dtype)).square(), atom)

    def sums(self, piece: Tensor, atom: Atom) -> Tensor:
        """What the piece adds to the sum of every part."""
        view = self._view(atom, piece.device)
        inner = [i for i in range(len(view.shape)) if i not in view.grid]
        sums = piece.reshape(view.shape)
        sums = sums.sum(inner) if inner else sums
        for at, (rows, parts) in view.parts.items():
            sizes = list(sums.shape)
            sizes[at] = parts
            sums = sums.new_zeros(sizes).index_add_(at, rows, sums)
        return sums.flatten()

    def spread(self, values: Tensor, atom: Atom) -> Tensor:
        """One number a part, shaped to multiply the piece in the shape that `cut` gives it."""
        view = self._view(atom, values.device)
        values = values.view(view.counts)
        for at, (rows, _) in view.parts.items():
            values = values.index_select(at, rows)
        return values.reshape([n if i in view.grid else 1 for i, n in enumerate(view.shape)])

    def cut(self, piece: Tensor, atom: Atom) -> Tensor:
        """View the piece as the atom views the whole, but for the dimensions that are cut."""
        return piece.view(self._view(atom, piece.device).shape)

    def atom_here(self, atom: Atom) -> Atom:
        """The atom of a piece that consists of whole parts: fewer of them.

        >>> from autogd.geometry.atom import matrix
        >>> atom = matrix(torch.zeros(6, 2), stack=3)
        >>> Piece((6, 2), ((range(2, 6),), (range(2),))).atom_here(atom).shape
        (2, 2, 2)
        """
        shape: list[int] = []
        moved: dict[int, int] = {}
        for rows, (n, dims) in zip(self.rows, self._split(atom), strict=True):
            inner = [d for d in dims if d not in atom.grid]
            if not _is_all(rows, n):  # counts of parts alone are cut, and stand first
                shape.append(sum(map(len, rows)) // math.prod(atom.shape[d] for d in inner))
                dims = inner
            for d in dims:
                moved[d] = len(shape)
                shape.append(atom.shape[d])
        rows_, columns = (tuple(moved[d] for d in each) for each in (atom.rows, atom.columns))
        return replace(atom, shape=tuple(shape), rows=rows_, columns=columns)

    def _view(self, atom: Atom, device: torch.device) -> "_View":
        if (atom, device) not in self._known:
            self._known[atom, device] = self._work_out(atom, device)
        return self._known[atom, device]

    def _work_out(self, atom: Atom, device: torch.device) -> "_View":
        shape: list[int] = []
        grid: list[int] = []
        counts: list[int] = []
        parts: dict[int, tuple[Tensor, int]] = {}
        for rows, (n, dims) in zip(self.rows, self._split(atom), strict=True):
            if _is_all(rows, n):
                grid += [len(shape) + i for i, d in enumerate(dims) if d in atom.grid]
                counts += [atom.shape[d] for d in dims if d in atom.grid]
                shape += [atom.shape[d] for d in dims]
                continue
            if any(d in atom.grid for d in dims):
                here = torch.cat([torch.arange(r.start, r.stop) for r in rows] or [torch.empty(0, dtype=torch.int64)])
                index = _part_of_row(here, atom, dims)
                parts[len(grid)] = index.to(device), math.prod(atom.shape[d] for d in dims if d in atom.grid)
                counts.append(parts[len(grid)][1])
                grid.append(len(shape))
            shape.append(sum(map(len, rows)))
        return _View(shape, grid, counts, parts)

    def _split(self, atom: Atom) -> list[tuple[int, list[int]]]:
        """Of each dimension of the tensor, its size, and the dimensions of the atom's view that it was split into."""
        split: list[tuple[int, list[int]]] = []
        place = 0
        for n in self.shape:
            dims: list[int] = []
            while place < len(atom.shape) and (not dims or math.prod(atom.shape[d] for d in dims) < n):
                dims.append(place)
                place += 1
            split.append((n, dims))
        return split


@dataclass(frozen=True)
class _View:
    """An atom's view of a piece: its shape, which dimensions count parts, how many, and the part of each cut row."""

    shape: list[int]
    grid: list[int]
    counts: list[int]
    parts: dict[int, tuple[Tensor, int]]  # by the place in `grid`


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "placements")  # told without importing its package


def local(tensor: Any) -> Tensor:
    """What is here of a DTensor, as a view; any other tensor itself."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def aligned(grad: Any, parameter: Any) -> Tensor:
    """A gradient, cut as its parameter is: some layers leave it as a sum that is still to be taken."""
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


def _is_all(rows: Rows, n: int) -> bool:
    return rows == (range(n),) or (n == 0 and not rows)


def _part_of_row(rows: Tensor, atom: Atom, dims: list[int]) -> Tensor:
    """Of rows of one tensor dimension, the number of the part that each belongs to, as far as this dimension tells."""
    part = torch.zeros_like(rows)
    for i, d in enumerate(dims):
        if d in atom.grid:
            within = math.prod(atom.shape[later] for later in dims[i + 1 :])
            part = part * atom.shape[d] + rows // within % atom.shape[d]
    return part


def _cuts(rows: Rows, n: int, atom: Atom, dims: list[int]) -> bool:
    if _is_all(rows, n):
        return False
    inner = math.prod(atom.shape[d] for d in dims if d not in atom.grid)
    if inner == 1:
        return False
    first = next((i for i, d in enumerate(dims) if d not in atom.grid), 0)
    if any(d in atom.grid for d in dims[first:]):  # parts are interleaved along this dimension
        return True
    return any(run.start % inner or run.stop % inner for run in rows)


def _narrowed(tensor: Tensor, start: tuple[int, ...], size: tuple[int, ...]) -> Tensor:
    for dim, (first, count) in enumerate(zip(start, size, strict=True)):
        if tensor.shape[dim] != count:
            tensor = tensor.narrow(dim, first, count)
    return tensor
