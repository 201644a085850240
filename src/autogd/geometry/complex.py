r"""Complex tensors: a step is carried out on their real and imaginary parts.

A complex matrix C = A + iB, out × in, acts on the real and imaginary parts of its input as

.. math:: \begin{pmatrix} A & -B \\ B & A \end{pmatrix}.

That real matrix has the singular values of C, each twice: the operator norm is that of C, and so is √(out/in), since
both sides double. So the derivation holds word for word with the norms of C: the slope along a direction D is
Re tr(Dᴴ∇), the unit directions are ∇/‖∇‖_F and the polar factor UVᴴ of C itself. (The real matrix has stable rank two
at least; Assumption 2 is about C.) PyTorch's gradient of a complex parameter is ∂𝓛/∂A + i ∂𝓛/∂B, so −∇ descends.

All operations but the polar factor work number by number, so they use the real view, whose last dimension holds the
real and the imaginary part. In an atom that is `complex`, this dimension is the last of `rows`.
"""

import torch
from torch import Tensor

__all__ = ["as_real", "from_rows", "to_rows"]


def as_real(tensor: Tensor) -> Tensor:
    """A complex tensor's real view; any other tensor as it is.

    >>> as_real(torch.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """
    if not tensor.is_complex():
        return tensor
    return torch.view_as_real(tensor.resolve_conj() if tensor.is_conj() else tensor)


def from_rows(matrices: Tensor) -> Tensor:
    """From a batch whose rows are real and imaginary parts in turn to a batch of complex matrices.

    >>> from_rows(torch.tensor([[[1.0], [2.0]]]))
    tensor([[[1.+2.j]]])
    """
    return torch.complex(matrices[:, ::2], matrices[:, 1::2])


def to_rows(matrices: Tensor) -> Tensor:
    """Undo `from_rows`: real and imaginary parts as rows in turn.

    >>> to_rows(torch.tensor([[[1 + 2j]]]))
    tensor([[[1.],
             [2.]]])
    """
    return as_real(matrices).movedim(-1, -2).flatten(1, 2)
