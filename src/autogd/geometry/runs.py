"""How a cut tensor lies in memory: blocks of parts, of rows, and runs of numbers that are read without a jump.

A kernel's taps are not one run each, but the rows over its outputs are: out × (in · taps). Channels-last, a row is
(taps · in). Passes over whole rows go at the speed of memory, passes over single taps do not.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor

from autogd.geometry.atoms import Atom

__all__ = ["Runs", "runs"]


@dataclass(frozen=True)
class Runs:
    """A cut tensor as a table: `blocks` × `rows` × run, where blocks index parts, and rows lie within one.

    Args:
        order: the dimensions of the atom's shape as they lie in memory, outermost first.
        blocks: how many numbers the leading dimensions of the grid have.
        rows: how many the dimension within a part has that comes next.
        rest: the dimensions that a run is made of; empty where a part is one run, and `rows` then counts its numbers.
    """

    order: tuple[int, ...]
    blocks: int
    rows: int
    rest: tuple[int, ...]

    def table(self, cut: Tensor) -> Tensor:
        """The tensor as blocks × rows × run; a view."""
        permuted = cut if self.order == tuple(range(cut.dim())) else cut.permute(self.order)
        return permuted.view(self.blocks, self.rows, -1)

    def spread(self, values: Tensor, atom: Atom) -> Tensor:
        """One number a part, to multiply the table: blocks × 1 × run."""
        if not self.rest:
            return values.view(-1, 1, 1)
        whole = [1 if i in atom.inner and i not in self.rest else n for i, n in enumerate(atom.shape)]
        return atom.spread(values).expand(whole).permute(self.order).reshape(self.blocks, 1, -1)

    def fold(self, table: Tensor, atom: Atom) -> Tensor:
        """From blocks × some rows × run, the sum within every part."""
        inner = [i + 2 for i, dim in enumerate(self.rest) if dim in atom.inner]
        shape = (self.blocks, table.shape[1], *(atom.shape[dim] for dim in self.rest))
        return table.view(shape).sum([1, *inner]).flatten()


def runs(cut: Tensor, atom: Atom) -> Runs | None:
    """How a tensor, in the shape that the atom cuts it to, lies in memory; None where it has gaps or its parts mingle.

    >>> import torch
    >>> from autogd.geometry.atoms import kernel
    >>> weight = torch.zeros(8, 4, 3, 3)
    >>> runs(weight, kernel(weight)).table(weight).shape
    torch.Size([1, 8, 36])
    """
    return _runs(cut.stride(), atom) if cut.numel() else None


@lru_cache(maxsize=4096)
def _runs(stride: tuple[int, ...], atom: Atom) -> Runs | None:
    shape = atom.shape
    # a dimension of one number may have any stride: put it last
    order = sorted(range(len(shape)), key=lambda i: (shape[i] == 1, -stride[i]))
    dense = 1
    for i in reversed(order):
        if shape[i] != 1 and stride[i] != dense:
            return None
        dense *= shape[i]
    whole, order = tuple(order), [i for i in order if shape[i] != 1]
    inner = [i in atom.inner for i in order]
    first = next((at for at, within in enumerate(inner) if within), len(order))
    # one dimension of a part is enough for rows, and leaves a long run
    last = len(order) if all(inner[first:]) else first + 1
    grid = [i for i, within in zip(order, inner, strict=True) if not within]
    if grid != sorted(grid):
        return None
    blocks = math.prod(shape[i] for i in order[:first])
    rows = math.prod(shape[i] for i in order[first:last])
    return Runs(whole, blocks, rows, tuple(order[last:]))
