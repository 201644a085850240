"""The squared Frobenius norm of every part of a tensor, in one pass over memory.

On the CPU, torch's vector norm of one run of memory keeps one thread busy, however many there are, and where a part is
not one run, as the taps of a kernel are not, it takes several times as long. A dot product uses all threads; and the
sum of x·x over rows, each one run, goes at the speed of memory. Elsewhere the library's own reduction serves.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.geometry.runs import runs

__all__ = ["accumulation_dtype", "piecewise", "squares", "squares_of_runs"]

RUN = 1 << 20  # a float32 sum of many more squares than this loses digits
PIECES = 24  # rows are added up in so many pieces at most: what they are added to is 4% of a large tensor
PIECE = 1 << 17  # numbers; smaller pieces cost more in calls than they save in memory
WHOLE = 1 << 18  # numbers up to which a copy of the squares is small enough, and fastest
SHARED = 1 << 16  # numbers from which on a second thread pays


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which norms of tensors of `dtype` are summed: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def squares(grad: Tensor, atom: Atom) -> Tensor:
    """The squared Frobenius norm of every part, as a vector; a sparse gradient's parts are its rows.

    >>> from autogd.geometry.atoms import matrix
    >>> weight = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> squares(weight, matrix(weight))
    tensor([25.])
    """
    dtype = accumulation_dtype(grad.dtype)
    if grad.is_sparse:
        rows = grad._values().to(dtype).square().sum(1)
        return torch.zeros(atom.parts, dtype=dtype, device=grad.device).index_copy_(0, grad._indices()[0], rows)
    if atom.parts == 1 and grad.is_contiguous() and piecewise(grad):
        return squares_of_runs([grad], dtype)
    cut = atom.cut(grad)
    if not atom.inner:  # numbers, each a part of its own
        return cut.to(dtype).square().flatten()
    lie = runs(cut, atom) if grad.device.type == "cpu" and atom.parts > 1 else None
    if lie is None or not lie.rest:
        return torch.linalg.vector_norm(cut, dim=atom.inner, dtype=dtype).square().flatten()
    return lie.fold(_over_pieces(lie.table(cut), dtype), atom)


def piecewise(tensor: Tensor) -> bool:
    """Whether a tensor's sum of squares is better taken in pieces: for its digits, or to keep all threads busy.

    >>> piecewise(torch.zeros(10))
    False
    """
    if tensor.device.type != "cpu":
        return False
    return tensor.numel() > RUN or (tensor.numel() >= SHARED and torch.get_num_threads() > 1)


def squares_of_runs(grads: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The squared norm of every tensor, as a vector; each must be contiguous.

    >>> squares_of_runs([torch.tensor([[3.0, 4.0]]), torch.tensor([2.0])], torch.float32)
    tensor([25.,  4.])
    """
    return torch.stack([_dot(grad.view(-1), dtype) for grad in grads])


def _dot(run: Tensor, dtype: torch.dtype) -> Tensor:
    if run.dtype == dtype and run.numel() <= RUN:
        return torch.dot(run, run)
    pieces = (piece.to(dtype) for piece in run.split(RUN if run.dtype == dtype else PIECE))
    return torch.stack([torch.dot(piece, piece) for piece in pieces]).sum()


def _over_pieces(table: Tensor, dtype: torch.dtype) -> Tensor:
    """From blocks × rows × run, the sum of squares over pieces of the rows: blocks × fewer rows × run."""
    blocks, rows, run = table.shape
    if table.numel() <= WHOLE:
        return table.to(dtype).square().sum(1, keepdim=True)
    step = max(-(-rows // PIECES), PIECE // (blocks * run), 1)
    first, *others = table.split(step, dim=1)
    total = first.to(dtype).square()
    for piece in others:
        if piece.dtype != dtype:
            piece = piece.to(dtype)
        (total if piece.shape[1] == step else total[:, : piece.shape[1]]).addcmul_(piece, piece)
    return total
