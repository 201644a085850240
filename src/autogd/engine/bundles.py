"""Bundles: stack small tensors of one shape, chunk large ones.

Many small tensors cost more in calls than in arithmetic. A copy of the table of a whole vocabulary would cost memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from torch import Tensor

from autogd.engine.plan import Plan
from autogd.geometry.atom import Atom
from autogd.geometry.direction import Geometry, direction_for

__all__ = ["ROOM", "Bundle", "alike", "bundles", "stacked"]

ROOM = 1 << 18  # numbers that a copy of a bundle may have
PIECES = 64  # or, if there are parts to cut by, this share of all weights


class Bundle:
    """Some tensors of a plan, all with one atom, to be stacked; or some rows of one tensor.

    A stack in the shape `shape`, permuted by `order` and viewed as `batch`, is a batch of matrices; `direction` brings
    each of them to operator norm one; `back` undoes the permutation.
    """

    def __init__(self, where: slice, atom: Atom, geometry: Geometry, rows: tuple[int, int] | None = None) -> None:
        atom = stacked(atom, where.stop - where.start)
        self.where, self.rows = where, rows  # of the only tensor: the first row, and how many
        self.shape, self.order = atom.shape, (*atom.grid, *atom.rows, *atom.columns)
        self.back = tuple(sorted(range(len(self.order)), key=self.order.__getitem__))
        self.batch = (atom.parts, atom.height, atom.fan_in)
        # the shape of one number per part, to multiply the stack
        self.each = tuple(1 if i in atom.inner else n for i, n in enumerate(atom.shape))
        self.direction = direction_for(atom, geometry)


def bundles(plan: Plan, geometry: Geometry) -> list[Bundle]:
    """Bundle the plan's tensors, in its order, each bundle as large as fits."""
    weights, found = plan.weights, []
    kinds = [(w.shape, w.dtype, w.device, atom) for w, atom in zip(weights, plan.atoms, strict=True)]
    for where in alike(weights, kinds, ROOM):
        weight, atom = weights[where.start], plan.atoms[where.start]
        parts = 1 if not atom.shape or 0 in atom.inner else atom.shape[0]
        if weight.numel() <= ROOM or parts == 1 or weight.shape[0] % parts:
            found.append(Bundle(where, atom, geometry))
            continue
        # its parts are successive in memory: cut between them
        room = max(ROOM, sum(w.numel() for w in weights) // PIECES)
        most = max(1, room * parts // weight.numel())
        each = weight.shape[0] // parts  # rows of one part
        for start in range(0, parts, most):
            count = min(most, parts - start)
            some = replace(atom, shape=(count, *atom.shape[1:]))
            found.append(Bundle(where, some, geometry, (start * each, count * each)))
    return found


def stacked(atom: Atom, times: int) -> Atom:
    """The atom of `times` such tensors, stacked.

    >>> stacked(Atom("matrix", (2, 3), (0,), (1,), 1.0), 4).parts
    4
    """
    rows, columns = (tuple(i + 1 for i in dims) for dims in (atom.rows, atom.columns))
    return replace(atom, shape=(times, *atom.shape), rows=rows, columns=columns)


def alike(tensors: Sequence[Tensor], kinds: Sequence[object], room: int) -> Iterator[slice]:
    """Cut a list between tensors of different kinds, and into slices of at most `room` numbers, or one tensor.

    >>> import torch
    >>> [where.stop for where in alike([torch.zeros(2)] * 4, "aaab", room=5)]
    [2, 3, 4]
    """
    for _, places in groupby(range(len(tensors)), key=kinds.__getitem__):
        first, *others = places
        most, stop = max(1, room // max(1, tensors[first].numel())), first + 1 + len(others)
        yield from (slice(start, min(start + most, stop)) for start in range(first, stop, most))
