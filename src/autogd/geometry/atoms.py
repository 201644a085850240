r"""The catalogue of atoms: how one parameter tensor enters the derivation.

A tensor matters to the bound on the network's output only through three things:

* how it is **cut** into linear maps, the parts;
* the **scale** of a unit perturbation of one part, chosen so that activations of unit root-mean-square move by at most
  one unit of root-mean-square;
* where it **starts**, so that activations keep unit root-mean-square.

All of it is data: an `Atom` is the tensor viewed as a grid of matrices, and a number. The norm of a perturbation is the
largest part's norm over the scale; its dual, the number that enters the gradient summary, is the sum over the parts of
scale × (dual norm of the part). A new layer type is a new function in this file, never a branch in an optimiser.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

__all__ = ["Atom", "Rule", "kernel", "matrix"]

Start = Literal["orthogonal", "ones", "zeros", "as it is"]


@dataclass(frozen=True)
class Atom:
    """One parameter tensor, cut into equal matrices.

    Args:
        kind: the name in the catalogue.
        shape: the tensor's shape when viewed as a grid of matrices; never a copy.
        rows: the dimensions of `shape` that index a matrix's outputs.
        columns: the dimensions of `shape` that index its inputs.
        scale: the size (operator norm) of a unit perturbation of one matrix.
        start: what `initialise_` puts there.
        depth: how many layers of the depth L the tensor stands for.
        diagonal: the vector is the diagonal of a matrix.

    >>> atom = matrix(nn.Linear(8, 2).weight)
    >>> atom.parts, atom.scale
    (1, 0.5)
    """

    kind: str
    shape: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    scale: float
    start: Start = "orthogonal"
    depth: float = 1.0
    diagonal: bool = False

    @property
    def inner(self) -> tuple[int, ...]:
        """The dimensions of `shape` within one part."""
        return self.rows + self.columns

    @property
    def grid(self) -> tuple[int, ...]:
        """The dimensions of `shape` that index the parts."""
        return tuple(i for i in range(len(self.shape)) if i not in self.inner)

    @property
    def parts(self) -> int:
        """How many matrices the tensor is cut into."""
        return math.prod(self.shape[i] for i in self.grid)

    @property
    def fan_out(self) -> int:
        """Rows of one matrix."""
        return math.prod(self.shape[i] for i in self.rows)

    @property
    def fan_in(self) -> int:
        """Columns of one matrix."""
        return math.prod(self.shape[i] for i in self.columns)

    @property
    def target(self) -> float:
        """The size of one part under Prescription 1, 0 where the atom starts at zero."""
        return 0.0 if self.start == "zeros" else self.scale

    def cut(self, tensor: Tensor) -> Tensor:
        """View a tensor of the parameter's shape as the grid of matrices."""
        return tensor.view(self.shape)

    def matrices(self, tensor: Tensor) -> Tensor:
        """The parts as a batch, parts × fan_out × fan_in; a copy where no view can serve."""
        order = (*self.grid, *self.rows, *self.columns)
        return self.cut(tensor).permute(order).reshape(self.parts, self.fan_out, self.fan_in)


Rule = Callable[[Tensor, nn.Module | None], Atom]
"""What the catalogue holds: a parameter and the module that owns it give an atom."""


def matrix(weight: Tensor, module: nn.Module | None = None, *, stack: int = 1, transposed: bool = False) -> Atom:
    r"""A linear map from d_in to d_out, or `stack` of them packed along the first dimension.

    Inputs of unit root-mean-square have norm √d_in, outputs should have √d_out, so ‖W‖_* = √(d_out/d_in) keeps the
    root-mean-square at one (Prescription 1), and a perturbation of that size moves it by at most one.

    >>> matrix(nn.Linear(16, 4).weight).scale
    0.5
    """
    first, second = weight.shape
    if transposed:
        return Atom("matrix", (first, second), (1,), (0,), math.sqrt(second / first))
    rows = first // stack
    scale = math.sqrt(rows / second)
    if stack == 1:
        return Atom("matrix", (first, second), (0,), (1,), scale)
    return Atom("matrix", (stack, rows, second), (1,), (2,), scale, depth=float(stack))


def kernel(weight: Tensor, module: nn.Module | None = None) -> Atom:
    r"""A convolution: one matrix per tap of the kernel, and per group.

    An output position adds up one matrix-vector product per tap. With inputs of unit root-mean-square, and products
    that add like independent numbers, root-mean-square one at the output asks of each tap 1/√taps of what a lone matrix
    may have: √(out/in)/√taps, out and in counted within a group.

    >>> kernel(nn.Conv2d(4, 16, 3, bias=False).weight).parts
    9
    """
    groups = getattr(module, "groups", 1)
    transposed = getattr(module, "transposed", False)
    lead, other, *taps = weight.shape
    spatial = tuple(taps)
    # a transposed convolution stores (in, out/groups, taps...): the first dimension is the input
    outputs, inputs = (other, lead // groups) if transposed else (lead // groups, other)
    scale = math.sqrt(outputs / inputs / math.prod(taps))
    if groups == 1:
        rows, columns = ((1,), (0,)) if transposed else ((0,), (1,))
        return Atom("kernel", (lead, other, *spatial), rows, columns, scale)
    rows, columns = ((2,), (1,)) if transposed else ((1,), (2,))
    return Atom("kernel", (groups, lead // groups, other, *spatial), rows, columns, scale)
