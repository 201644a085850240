"""A flat buffer that packs tensors of different shapes, each taken out as a slice and viewed."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autogd.geometry.atom import LAYERS, Atom
from autogd.reading.graph.axes import Factor, Picked
from autogd.reading.graph.computation import Graph, Value
from autogd.reading.graph.cuts import atoms_of_uses
from autogd.reading.graph.moves import CHOICES
from autogd.reading.graph.use import Use
from autogd.reading.graph.uses import uses_of

__all__ = ["flat_buffer"]


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
