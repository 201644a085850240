r"""Atoms: how one parameter tensor enters the derivation.

A tensor matters to the bound on the network's output only through three things:

* how it is **cut** into linear maps, the parts;
* the **scale** of a unit perturbation of one part, chosen so that activations of unit root-mean-square move by at most
  one unit of root-mean-square;
* the **start**, which keeps activations at unit root-mean-square.

An `Atom` is a view of the tensor as a grid of matrices, and their scale. The norm of a perturbation is the largest norm
of a part over the scale; its dual, which enters the gradient summary, is the sum over the parts of scale × dual norm. A
new layer type is a new function in `autogd.geometry.atoms`, never a branch in an optimiser.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor, nn

from autogd.geometry.complex import as_real

__all__ = ["LAYERS", "Atom", "Rule", "Start", "divide", "kernel", "matrix"]

LAYERS = ("matrix", "kernel", "bilinear", "experts")  # the kinds that map a layer's inputs to its outputs

Start = Literal["orthogonal", "ones", "zeros", "as it is"]


@dataclass(frozen=True)
class Atom:
    """One parameter tensor, cut into equal matrices.

    Args:
        kind: the name in the catalogue.
        shape: the shape in which the tensor is viewed as a grid of matrices, never copied.
        rows: the dimensions of `shape` that index a matrix's outputs.
        columns: the dimensions of `shape` that index its inputs.
        scale: the size (operator norm) of a unit perturbation of one matrix.
        start: what `initialise_` puts there.
        depth_share: how many layers one part counts for; a step moves each part by depth_share · η/L of its size.
        stack: how many layers the tensor packs, or its share of one layer; depth_share · stack is added to L.
        free: whether its size carries information (a readout, a gate), so that StochasticAGD does not hold it.
        complex: whether the matrices are complex; the last of `rows` then holds real and imaginary parts.

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
    depth_share: float = 1.0
    stack: float = 1
    free: bool = False
    complex: bool = False

    @property
    def depth(self) -> float:
        """How many layers of the depth L the tensor stands for."""
        return self.depth_share * self.stack

    @cached_property
    def inner(self) -> tuple[int, ...]:
        """The dimensions of `shape` within one part."""
        return self.rows + self.columns

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """The dimensions of `shape` that index the parts."""
        return tuple(i for i in range(len(self.shape)) if i not in self.inner)

    @cached_property
    def parts(self) -> int:
        """How many matrices the tensor is cut into."""
        return math.prod(self.shape[i] for i in self.grid)

    @cached_property
    def fan_out(self) -> int:
        """Rows of one matrix."""
        return self.height // (2 if self.complex else 1)

    @cached_property
    def height(self) -> int:
        """Rows of one matrix as real numbers: a complex row has two."""
        return math.prod(self.shape[i] for i in self.rows)

    @cached_property
    def fan_in(self) -> int:
        """Columns of one matrix."""
        return math.prod(self.shape[i] for i in self.columns)

    @property
    def target(self) -> float:
        """The size of one part under Prescription 1, 0 if the atom starts at zero."""
        return 0.0 if self.start == "zeros" else self.scale

    @property
    def maps(self) -> int:
        """How many linear maps the parts form: one each, but the taps and groups of a kernel form `stack`."""
        return self.parts if self.kind != "kernel" else max(1, int(self.stack))

    @property
    def held_at(self) -> float:
        """The Frobenius norm of one hidden map under Prescription 1; infinite for other atoms."""
        hidden = self.start == "orthogonal" and self.fan_in > 1 and self.fan_out > 1 and not self.free
        return self.scale * math.sqrt(min(self.fan_in, self.fan_out) * self.parts / self.maps) if hidden else math.inf

    def cut(self, tensor: Tensor) -> Tensor:
        """View a tensor of the parameter's shape as the grid of matrices; a complex one is viewed as real."""
        tensor = as_real(tensor)
        return tensor if tensor.shape == self.shape else tensor.view(self.shape)

    def spread(self, values: Tensor) -> Tensor:
        """One number per part, shaped to multiply the cut tensor."""
        return values.view([1 if i in self.inner else n for i, n in enumerate(self.shape)] if self.parts > 1 else [])

    def matrices(self, tensor: Tensor) -> Tensor:
        """The parts as a batch, parts × height × fan_in; a copy if no view can serve."""
        order = (*self.grid, *self.rows, *self.columns)
        return self.cut(tensor).permute(order).reshape(self.parts, self.height, self.fan_in)

    def join(self, matrices: Tensor) -> Tensor:
        """Undo `matrices`: bring a batch to the shape that `cut` gives."""
        order = (*self.grid, *self.rows, *self.columns)
        back = sorted(range(len(order)), key=order.__getitem__)
        return matrices.reshape([self.shape[i] for i in order]).permute(back)


Rule = Callable[[Tensor, nn.Module | None], Atom]
"""From a parameter and the module that owns it to an atom. `autogd.reading.catalogue` has one for each layer type."""


def matrix(weight: Tensor, module: nn.Module | None = None, *, stack: int = 1, transposed: bool = False) -> Atom:
    r"""A linear map from d_in to d_out, or `stack` of them packed along the output dimension.

    Inputs of unit root-mean-square have norm √d_in; outputs should have √d_out. So an operator norm of √(d_out/d_in)
    keeps the root-mean-square at one (Prescription 1), and a perturbation of that size moves the output's by at most
    one. `transposed` tensors are stored d_in × d_out. Packed maps (query, key and value; the gates of a cell) count as
    separate matrices and layers.

    >>> matrix(nn.Linear(16, 4).weight).scale
    0.5
    """
    first, second = weight.shape
    outputs, inputs = (second, first) if transposed else (first, second)
    outputs = divide(outputs, stack, weight)
    scale = math.sqrt(outputs / inputs)
    if stack == 1:
        rows, columns = ((1,), (0,)) if transposed else ((0,), (1,))
        return Atom("matrix", (first, second), rows, columns, scale)
    if transposed:
        return Atom("matrix", (inputs, stack, outputs), (2,), (0,), scale, stack=stack)
    return Atom("matrix", (stack, outputs, inputs), (1,), (2,), scale, stack=stack)


def kernel(weight: Tensor, module: nn.Module | None = None) -> Atom:
    r"""A convolution: one matrix per tap of the kernel, and per group.

    An output sums one product per tap. We treat these as independent, so each tap's scale is √(out/in)/√taps, with out
    and in counted within a group. Groups act side by side on different channels, so all groups are one layer.

    >>> kernel(nn.Conv2d(4, 16, 3, bias=False).weight).parts
    9
    """
    groups = getattr(module, "groups", 1)
    transposed = getattr(module, "transposed", False)
    lead, other, *taps = weight.shape
    within = divide(lead, groups, weight)
    # a transposed convolution stores (in, out/groups, taps...): the first dimension is the input
    outputs, inputs = (other, within) if transposed else (within, other)
    scale = math.sqrt(outputs / inputs / math.prod(taps))
    if groups == 1:
        rows, columns = ((1,), (0,)) if transposed else ((0,), (1,))
        return Atom("kernel", (lead, other, *taps), rows, columns, scale)
    rows, columns = ((2,), (1,)) if transposed else ((1,), (2,))
    return Atom("kernel", (groups, within, other, *taps), rows, columns, scale)


def divide(size: int, stack: int, weight: Tensor) -> int:
    """The size of one of `stack` equal parts."""
    if size % stack:
        raise ValueError(f"a tensor of shape {tuple(weight.shape)} cannot be cut into {stack} equal parts")
    return size // stack
