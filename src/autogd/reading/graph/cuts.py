"""From the uses of a parameter to its atom; of a flat buffer that packs tensors of different shapes, too."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from autogd.geometry.atom import LAYERS, Atom
from autogd.geometry.atoms import LOOKUP, VECTOR
from autogd.reading.graph.axes import Factor, Picked
from autogd.reading.graph.computation import Graph, Value
from autogd.reading.graph.moves import CHOICES
from autogd.reading.graph.use import Use
from autogd.reading.graph.uses import uses_of

__all__ = ["atoms_of_uses", "flat_buffer", "same_cut"]


def atoms_of_uses(graph: Graph, shape: Sequence[int], uses: Sequence[Use]) -> list[Atom]:
    """The atoms that a parameter of that shape has by its uses, the one to take first.

    If several uses differ, the smallest unit perturbation counts: every use's bound must hold.
    """
    alike: dict[tuple[object, ...], list[Use]] = {}
    for use in uses:
        if use.kind != "unknown":
            picked = tuple(pick.of for pick in use.picked)
            key = (use.kind, use.rows, use.columns, use.grid, use.layers, picked, use.pair, use.scales)
            alike.setdefault(key, []).append(use)
    atoms = [atom for group in alike.values() if (atom := _atom(graph, tuple(shape), group)) is not None]
    return sorted(atoms, key=lambda atom: (round(atom.scale**2 * atom.parts, 9), atom.parts, -atom.stack))


def same_cut(first: Atom, second: Atom) -> bool:
    """Whether two atoms cut a tensor into the same matrices, at the same scale and depth.

    >>> from torch import nn
    >>> from autogd.geometry.atom import kernel, matrix
    >>> same_cut(matrix(nn.Linear(3, 2).weight), kernel(nn.Conv1d(3, 2, 1).weight))
    True
    """
    numbers = [(atom.scale, atom.depth_share, atom.stack) for atom in (first, second)]
    close = all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(*numbers, strict=True))
    return close and first.complex == second.complex and _layout(first) == _layout(second)


def _layout(atom: Atom) -> list[tuple[int, int, str]]:
    """The runs of memory of one role, as (size, stride, role), from the slowest on."""
    runs: list[tuple[int, int, str]] = []
    stride = 1
    for i in reversed(range(len(atom.shape))):
        size = atom.shape[i]
        role = "row" if i in atom.rows else "column" if i in atom.columns else "part"
        if size > 1:
            if runs and runs[-1][2] == role:
                runs[-1] = (runs[-1][0] * size, runs[-1][1], role)
            else:
                runs.append((size, stride, role))
        stride *= size
    return runs


def _atom(graph: Graph, shape: tuple[int, ...], uses: list[Use]) -> Atom | None:
    use = uses[0]
    picked = tuple(pick.of for pick in use.picked if pick.entry >= 0)
    beside = (*use.grid, *(pick.of for pick in use.picked if pick.entry < 0))
    cut = _cut(shape, use, (*beside, *picked), use.layers) or _cut(shape, use, (*beside, *picked), ())
    if cut is None:
        return None
    sizes, rows, columns, pair = cut
    fan_out, fan_in = (math.prod(sizes[i] for i in dims) for dims in (rows, columns))
    stack = math.prod(f.extent for f in use.layers) * _layers_picked(graph, uses)
    scale = math.sqrt(fan_out / fan_in)
    atom = Atom("matrix", sizes, (*rows, *pair), columns, scale, stack=stack, free=use.gate, complex=bool(pair))
    if use.kind == "matrix":
        return atom
    if use.kind == "kernel":
        return replace(atom, kind="kernel", scale=scale / math.sqrt(use.taps))
    size = math.sqrt(fan_out)
    if use.kind == "embedding":
        return replace(atom, kind="embedding", scale=size, depth_share=LOOKUP)
    if use.kind == "gain":
        length = min(1.0, math.sqrt(fan_out / use.scales)) if use.scales else 1.0
        return replace(atom, kind="gain", scale=size * length, depth_share=VECTOR, start="as it is")
    return replace(atom, kind=use.kind, scale=size, depth_share=VECTOR, start="as it is")


def _cut(
    shape: tuple[int, ...], use: Use, beside: tuple[Factor, ...], layers: tuple[Factor, ...]
) -> tuple[tuple[int, ...], ...] | None:
    """A view of the parameter with one role per dimension, and which are rows, columns and re/im; None if none."""
    # what counts parts comes before the rows or columns that contain it
    told = [("part", layers), ("part", beside), ("pair", use.pair), ("row", use.rows), ("column", use.columns)]
    sizes: list[int] = []
    roles: list[str] = []
    for dim, size in enumerate(shape):
        if size == 1:
            sizes.append(1)
            roles.append("")
            continue
        runs = [(f, role) for role, factors in told for f in factors if f.dim == dim]
        bounds = sorted({1, size, *(edge for f, _ in runs for edge in (f.stride, f.stride * f.extent))})
        first = len(sizes)
        for low, high in reversed(list(pairwise(bounds))):
            role = _role(low, high, runs)
            if high % low or role is None:
                return None
            if len(sizes) > first and roles[-1] == role:
                sizes[-1] *= high // low
            else:
                sizes.append(high // low)
                roles.append(role)
    _place_ones(roles, use.kind)
    each = (tuple(i for i, role in enumerate(roles) if role == name) for name in ("row", "column", "pair"))
    return tuple(sizes), *each


def _role(low: int, high: int, runs: Iterable[tuple[Factor, str]]) -> str | None:
    return next((role for f, role in runs if f.stride <= low and f.stride * f.extent >= high), None)


def _place_ones(roles: list[str], kind: str) -> None:
    """Dimensions of one number go wherever a role is missing."""
    for i, role in enumerate(roles):
        if role:
            continue
        if kind in ("bias", "gain") or "row" not in roles:
            roles[i] = "row"
        elif "column" not in roles and kind in ("matrix", "kernel"):
            roles[i] = "column"
        else:
            roles[i] = "part"


def _layers_picked(graph: Graph, uses: list[Use]) -> int:
    """How many layers the picked parts stand for.

    Parts that act on the same input (query, key, value), or one after the other, are as many layers as there are parts.
    Parts that act on different inputs, side by side, are one: a token goes through few of the experts.
    """
    factors = {pick.of for use in uses for pick in use.picked if pick.entry >= 0}
    count = math.prod(f.size for f in factors)
    indices = {tuple(pick.entry for pick in use.picked): use for use in uses}
    if count == 1 or len(indices) == 1:
        return 1
    first, second, *_ = sorted(indices.values(), key=lambda use: graph.order[use.node])
    same = first.source == second.source and first.source[0] is not None
    if not same and first.source[0] is None and second.source[0] is None:
        same = not graph.comes_after(second.node, first.node)  # both act on data; autograd does not show which
    return count if same or graph.comes_after(second.node, first.node) else 1


def flat_buffer(graph: Graph, leaf: Any) -> tuple[list[Use], Atom] | None:
    """The uses of all pieces of a flat buffer and one atom for them; None if it is no buffer of unequal pieces.

    One atom cannot cut matrices of different shapes. Measure them together, by the Frobenius norm, which is at least
    the operator norm of every piece. The smallest unit perturbation among the pieces is the buffer's.

    >>> import torch
    >>> buffer = torch.nn.Parameter(torch.ones(14))
    >>> first, second = buffer[:8].view(4, 2), buffer[8:].view(2, 3)
    >>> graph = Graph([torch.ones(5, 2) @ first.T, torch.ones(5, 3) @ second.T], [buffer])
    >>> uses, atom = flat_buffer(graph, graph.leaves[buffer])
    >>> atom.kind, round(atom.scale**2, 6), atom.stack
    ('flat', 0.666667, 2.0)
    """
    (size, *more) = graph.shape((leaf, 0)) or (1,)
    pieces = [] if more else _pieces(graph, leaf)
    if len({graph.shape(piece) for piece in pieces}) < 2:  # equal pieces are a stack, which an atom can cut
        return None
    uses: list[Use] = []
    atoms: list[Atom] = []
    for entry, piece in enumerate(pieces):
        shape = graph.shape(piece)
        found = uses_of(graph, piece)
        atoms += atoms_of_uses(graph, shape, found)[:1]
        picked = Picked(Factor(math.prod(shape), 0), entry)
        uses += [replace(use, picked=(picked,)) for use in found]
    if not any(atom.kind in LAYERS for atom in atoms):
        return None  # biases and gains in one vector are a vector
    smallest = min(atom.scale for atom in atoms)
    depth = sum(atom.depth for atom in atoms)
    return uses, Atom("flat", (size,), (0,), (), smallest, "as it is", stack=depth)


def _pieces(graph: Graph, leaf: Any) -> Sequence[Value]:
    """What is taken out of the leaf; empty if it is also used as a whole."""
    found: list[Value] = []
    for node, _ in graph.consumers((leaf, 0)):
        if graph.operation(node) not in {*CHOICES, "AsStrided"}:
            return []
        found += [(node, number) for number in range(len(node._input_metadata)) if graph.consumers((node, number))]
    return found
