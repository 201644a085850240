"""How a cut tensor lies in memory, and sums of squares at the speed of memory.

A tap of a kernel is not one run of memory, but a row, of one output, is: out × (in · taps). Channels-last, a row is
(taps · in). Passes over whole rows run at the speed of memory, passes over single taps do not.

On the CPU, torch's vector norm of one run keeps one thread busy, however many there are, and takes several times as
long if a part is not one run. Norms of the rows of a table use all threads, and so does the sum of x·x over rows. In
both, one thread computes a whole sum, so the result does not depend on the number of threads; that of a dot product
does. On other devices, use torch's own reduction.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from autogd.geometry.atom import Atom
from autogd.geometry.norms import accumulation_dtype

__all__ = ["Runs", "piecewise", "runs", "squares"]

RUN = 1 << 20  # a float32 sum of many more squares than this loses digits
PIECES = 24  # the most pieces in which rows are summed: the sums then take 4% of a large tensor
PIECE = 1 << 17  # numbers; smaller pieces cost more in calls than they save in memory
WHOLE = 1 << 18  # numbers up to which a copy of the squares is small enough, and fastest
SHARED = 1 << 16  # numbers from which on a second thread pays
ROW = 1 << 12  # numbers that one thread sums


@dataclass(frozen=True)
class Runs:
    """A cut tensor as a table: `blocks` × `rows` × run. Blocks index parts, and rows lie within one part.

    Args:
        order: the dimensions of the atom's shape as they lie in memory, outermost first.
        blocks: the product of the leading dimensions of the grid.
        rows: the size of the next dimension, which lies within a part.
        rest: the dimensions of a run; empty if a part is one run, and `rows` then counts its numbers.
    """

    order: tuple[int, ...]
    blocks: int
    rows: int
    rest: tuple[int, ...]

    def table(self, cut: Tensor) -> Tensor:
        """The tensor as blocks × rows × run; a view."""
        return cut.permute(self.order).view(self.blocks, self.rows, -1)

    def spread(self, values: Tensor, atom: Atom) -> Tensor:
        """One number per part, to multiply the table: blocks × 1 × run."""
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
    """How a tensor, in the shape that the atom cuts it to, lies in memory; None if it has gaps or its parts mix.

    >>> import torch
    >>> from autogd.geometry.atom import kernel
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
    # one dimension of a part gives enough rows, and leaves a long run
    last = len(order) if all(inner[first:]) else first + 1
    grid = [i for i, within in zip(order, inner, strict=True) if not within]
    if grid != sorted(grid):
        return None
    blocks = math.prod(shape[i] for i in order[:first])
    rows = math.prod(shape[i] for i in order[first:last])
    return Runs(whole, blocks, rows, tuple(order[last:]))


def squares(grad: Tensor, atom: Atom, dtype: torch.dtype | None = None) -> Tensor:
    """The squared Frobenius norm of every part, as a vector.

    >>> from autogd.geometry.atom import matrix
    >>> weight = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> squares(weight, matrix(weight))
    tensor([25.])
    """
    dtype = dtype or accumulation_dtype(grad.dtype)
    if atom.parts == 1 and grad.is_contiguous() and piecewise(grad):
        return _squares_of_run(grad.view(-1), dtype).view(1)
    cut = atom.cut(grad)
    if not atom.inner:  # numbers, each a part of its own
        return cut.to(dtype).square().flatten()
    layout = runs(cut, atom) if grad.device.type == "cpu" and atom.parts > 1 else None
    if layout is None or not layout.rest:
        return torch.linalg.vector_norm(cut, dim=atom.inner, dtype=dtype).square().flatten()
    return layout.fold(_over_pieces(layout.table(cut), dtype), atom)


def piecewise(tensor: Tensor) -> bool:
    """Whether a tensor's sum of squares is better taken in pieces: for its digits, or to keep all threads busy.

    >>> piecewise(torch.zeros(10))
    False
    """
    return tensor.device.type == "cpu" and tensor.numel() >= SHARED


def _squares_of_run(run: Tensor, dtype: torch.dtype) -> Tensor:
    if run.dtype == dtype and run.numel() <= RUN:
        return _over_rows(run)
    pieces = (piece.to(dtype) for piece in run.split(RUN if run.dtype == dtype else PIECE))
    return torch.stack([_over_rows(piece) for piece in pieces]).sum()


def _over_rows(run: Tensor) -> Tensor:
    """The sum of squares of a run, as a table of short rows."""
    whole = run.numel() // ROW * ROW
    rows = torch.linalg.vector_norm(run[:whole].view(-1, ROW), dim=1)
    return rows.square().sum() + torch.linalg.vector_norm(run[whole:]).square()


def _over_pieces(table: Tensor, dtype: torch.dtype) -> Tensor:
    """From blocks × rows × run, the sum of squares over pieces of the rows: blocks × fewer rows × run."""
    blocks, rows, run = table.shape
    if table.numel() <= WHOLE:
        return table.to(dtype).square().sum(1, keepdim=True)
    step = max(-(-rows // PIECES), PIECE // (blocks * run), 1)
    first, *others = table.split(step, dim=1)
    total = first.to(dtype).square()
    for piece in others:
        piece = piece.to(dtype)
        (total if piece.shape[1] == step else total[:, : piece.shape[1]]).addcmul_(piece, piece)
    return total
