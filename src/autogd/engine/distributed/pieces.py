"""A rank's piece of a tensor, and the arithmetic on it.

A piece is a product of row sets, one set for each dimension of the tensor. Summed over the ranks, the
squared norms of the pieces are that of the tensor.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from autogd.geometry.atom import Atom
from autogd.geometry.norms import accumulation_dtype

__all__ = ["Box", "Piece", "Rows"]

Rows = tuple[range, ...]
"""Global row numbers along one dimension, in the order in which a rank holds them."""


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
    # each atom's view of the piece, worked out once
    _known: dict[Any, "_View"] = field(default_factory=dict, repr=False, compare=False)

    @property
    def size(self) -> tuple[int, ...]:
        """The shape of the piece."""
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
        """One number per part, shaped to multiply the piece in the shape that `cut` gives it."""
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
        """For each dimension of the tensor: its size, and the dimensions of the atom's view that it was split into."""
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


def _is_all(rows: Rows, n: int) -> bool:
    return rows == (range(n),) or (n == 0 and not rows)


def _part_of_row(rows: Tensor, atom: Atom, dims: list[int]) -> Tensor:
    """The part that each row of one tensor dimension belongs to, as far as this dimension tells."""
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
