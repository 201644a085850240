r"""The other atoms, and the share of the depth of each. Users see this file as `autogd.atoms`, with all atoms."""

import math
from dataclasses import replace

from torch import Tensor, nn

from autogd.geometry.atom import Atom, Rule, Start, divide, kernel, matrix

__all__ = [
    "LOOKUP", "VECTOR", "Atom", "Rule", "beside", "bias", "bias_share", "bilinear", "embedding", "gain", "kernel",
    "matrix", "on_real_view", "scalars", "token",
]  # fmt: skip

# Depth shares: how many layers one part counts for. A matrix, or one tap of a kernel, counts for one. A matrix reaches
# its bound for one direction of its input only. A vector reaches it for any input, so it gets less (`docs/depth.md`).
VECTOR = 1 / 32
LOOKUP = 1 / 4


def bias(weight: Tensor, module: nn.Module | None = None, *, stack: int = 1) -> Atom:
    r"""A d × 1 matrix that acts on the constant input 1.

    A perturbation of norm √d moves each output by one unit of root-mean-square, like the weight it belongs to: the
    scale is √(d/1). It adds to that weight's output, so it starts at zero: the weight alone keeps the size right.

    >>> bias(nn.Linear(3, 16).bias).scale
    4.0
    """
    d = divide(weight.numel(), stack, weight)
    if stack == 1:
        return Atom("bias", tuple(weight.shape), tuple(range(weight.dim())), (), math.sqrt(d), "zeros", VECTOR)
    return Atom("bias", (stack, d), (1,), (), math.sqrt(d), "zeros", VECTOR, stack)


def bias_share(weights: int, outputs: int) -> float:
    """The depth share of a bias on minibatches: 1/d as one of its layer's d inputs, and at least 1/32.

    Args:
        weights: the number of weights of its layer.
        outputs: the number of outputs of its layer.

    >>> [bias_share(4 * d, outputs=4) for d in (1, 8, 1000)]
    [1.0, 0.125, 0.03125]
    """
    return max(VECTOR, min(1.0, outputs / weights))


def embedding(weight: Tensor, module: nn.Module | None = None) -> Atom:
    r"""A table of n vectors: one d × 1 matrix per row.

    The input is one-hot, of norm 1, and picks one row; the output should have norm √d. So each row is a matrix of its
    own with target √(d/1). A row that no input picked does not move.

    >>> atom = embedding(nn.Embedding(10, 4).weight)
    >>> atom.parts, atom.scale
    (10, 2.0)
    """
    n, d = weight.shape
    return Atom("embedding", (n, d), (1,), (), math.sqrt(d), depth_share=LOOKUP)


def gain(weight: Tensor, module: nn.Module | None = None, *, start: Start = "ones") -> Atom:
    r"""A diagonal matrix: the affine part of a norm layer, a layer-scale vector, the slopes of a PReLU.

    Ones keep the root-mean-square at one. The operator norm of a perturbation δ is ‖δ‖_∞, which the output reaches only
    for an input with all its energy in one coordinate. What enters a gain has just been normalised and is spread over
    all d coordinates, so ‖δ∘x‖ is about ‖δ‖₂, against √d for the output: a unit perturbation has ‖δ‖₂ = √d.

    >>> gain(nn.LayerNorm(16).weight).scale
    4.0
    """
    dims = tuple(range(weight.dim()))
    return Atom("gain", tuple(weight.shape), dims, (), math.sqrt(weight.numel()), start, VECTOR)


def bilinear(weight: Tensor, module: nn.Module | None = None) -> Atom:
    r"""A bilinear form, out × in_1 × in_2: a matrix on the outer product of its two inputs.

    ‖x ⊗ z‖ = ‖x‖‖z‖ = √(in_1 in_2) for inputs of unit root-mean-square, so the target is √(out/(in_1 in_2)).

    >>> bilinear(nn.Bilinear(2, 8, 4).weight).scale
    0.5
    """
    out, first, second = weight.shape
    return Atom("bilinear", (out, first, second), (0,), (1, 2), math.sqrt(out / (first * second)))


def token(weight: Tensor, module: nn.Module | None = None) -> Atom:
    r"""Learned vectors that join the activations: class and mask tokens, a table of positions.

    Each vector is a part. As for an embedding, a vector of d numbers among activations of unit root-mean-square has
    size √d. It is added to activations that have that size already, so it starts as its module has it.

    >>> token(nn.Parameter(__import__("torch").zeros(1, 7, 4))).parts
    7
    """
    last = weight.dim() - 1
    return Atom("token", tuple(weight.shape), (last,), (), math.sqrt(weight.shape[last]), "as it is", VECTOR)


def scalars(weight: Tensor, module: nn.Module | None = None) -> Atom:
    r"""A tensor of d numbers whose role is unknown: a gain that starts as its module has it.

    A vector in a module of unknown type shifts, scales or gates d activations. In each case, if its root-mean-square
    changes by one unit, they move by about one unit at most. A lone scalar is the case d = 1.

    >>> scalars(nn.Parameter(__import__("torch").tensor(2.6))).scale
    1.0
    """
    return replace(gain(weight, start="as it is"), kind="scalars")


def beside(atom: Atom, count: int) -> Atom:
    r"""The atom as one of `count` that act side by side on different channels, and so are one layer.

    Their outputs are not added, so a step may move each of them by a layer's full share. A Module does not show what
    acts side by side, so call this function.

    >>> beside(matrix(nn.Linear(4, 4).weight), 2).depth
    0.5
    """
    return replace(atom, stack=atom.stack / count)


def on_real_view(atom: Atom, parameter: Tensor) -> Atom:
    """The atom of a complex parameter's real view; of any other parameter, the atom as it is.

    >>> weight = nn.Linear(16, 4).weight.cfloat()
    >>> atom = on_real_view(matrix(weight), weight)
    >>> atom.shape, atom.fan_out, atom.scale
    ((4, 16, 2), 4, 0.5)
    """
    if not parameter.is_complex() or atom.complex:
        return atom
    return replace(atom, shape=(*atom.shape, 2), rows=(*atom.rows, len(atom.shape)), complex=True)
