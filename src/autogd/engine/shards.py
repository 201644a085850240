"""Parts of a tensor of which only a slice is here: the arithmetic of sharded training.

A slice is a run of rows, from `offset` on, along one dimension of the tensor. A part's squared norm and its slope are
sums, so the slices' sums add up to the whole's over all processes.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autogd.geometry.atom import Atom

__all__ = ["Slice"]


@dataclass(frozen=True)
class Slice:
    """Where a piece of a tensor lies in it: `count` rows from `offset` on, along dimension `dim` of `shape`.

    >>> from autogd.geometry.atom import matrix
    >>> whole = torch.ones(4, 2)
    >>> atom = matrix(whole, stack=2)  # two matrices of 2 × 2
    >>> Slice((4, 2), dim=0, offset=1, count=3).sums(whole[1:], atom)
    tensor([2., 4.])
    """

    shape: tuple[int, ...]
    dim: int
    offset: int
    count: int
    # what an atom's view of the piece comes to, worked out once
    _known: dict[Any, tuple[list[int], list[int], Tensor | None]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def sums(self, piece: Tensor, atom: Atom) -> Tensor:
        """What the piece adds to the sum over every part."""
        view, grid, rows = self._view(atom, piece.device)
        inner = [i for i in range(len(view)) if i not in grid]
        sums = piece.reshape(view)
        sums = sums.sum(inner) if inner else sums
        if rows is None:
            return sums.flatten()
        whole = sums.new_zeros([atom.shape[i] for i in atom.grid])
        return whole.index_add_(grid.index(self._place(atom)), rows, sums).flatten()

    def spread(self, values: Tensor, atom: Atom) -> Tensor:
        """One number a part, shaped to multiply the piece in the shape that `cut` gives it."""
        view, grid, rows = self._view(atom, values.device)
        values = values.view([atom.shape[i] for i in atom.grid])
        if rows is not None:
            values = values.index_select(grid.index(self._place(atom)), rows)
        return values.reshape([n if i in grid else 1 for i, n in enumerate(view)])

    def cut(self, piece: Tensor, atom: Atom) -> Tensor:
        """View the piece as the atom views the whole, but for the dimension that is sliced."""
        return piece.view(self._view(atom, piece.device)[0])

    def _place(self, atom: Atom) -> int:
        return sum(len(dims) for dims in self._dims(atom)[: self.dim])

    def _view(self, atom: Atom, device: torch.device) -> tuple[list[int], list[int], Tensor | None]:
        """The piece's shape, which of its dimensions index parts, and the part of each row if the slice cuts parts."""
        if (atom, device) not in self._known:
            self._known[atom, device] = self._work_out(atom, device)
        return self._known[atom, device]

    def _work_out(self, atom: Atom, device: torch.device) -> tuple[list[int], list[int], Tensor | None]:
        view: list[int] = []
        grid: list[int] = []
        rows = None
        for dim, dims in enumerate(self._dims(atom)):
            if dim != self.dim:
                grid += [len(view) + i for i, d in enumerate(dims) if d in atom.grid]
                view += [atom.shape[d] for d in dims]
                continue
            first = next((i for i, d in enumerate(dims) if d in atom.grid), None)
            if first is not None:
                within = math.prod(atom.shape[d] for d in dims[first + 1 :])
                rows = torch.arange(self.offset, self.offset + self.count, device=device) // within
                grid.append(len(view))
            view.append(self.count)
        return view, grid, rows

    def _dims(self, atom: Atom) -> list[list[int]]:
        """For each dimension of the tensor, the dimensions of the atom's view that it was split into."""
        split: list[list[int]] = []
        place = 0
        for size in self.shape:
            dims: list[int] = []
            while place < len(atom.shape) and (not dims or math.prod(atom.shape[d] for d in dims) < size):
                dims.append(place)
                place += 1
            split.append(dims)
        return split
