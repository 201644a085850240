"""Bundles: stack small tensors of one shape, chunk large ones.

Many small tensors cost more in calls than in arithmetic. A copy of a whole vocabulary's table would cost memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

from torch import Tensor

from autogd.engine.plan import Plan
from autogd.geometry.atom import Atom
from autogd.geometry.direction import Geometry, direction_for

__all__ = ["ROOM", "Bundle", "bundles", "stacked"]

ROOM = 1 << 18  # numbers that a copy of a bundle may have
PIECES = 64  # or, if there are parts to cut by, this share of all weights


@dataclass(frozen=True)
class Bundle:
    """Some tensors of a plan and the atom of their stack; or some rows of one tensor.

    A stack in the shape `shape`, permuted by `order` and viewed as `batch`, is a batch of matrices; `direction` brings
    each of them to operator norm one; `back` undoes the permutation.
    """

    where: slice
    shape: tuple[int, ...]
    each: tuple[int, ...]  # the shape that one number a part has, to multiply the stack
    order: tuple[int, ...]
    back: tuple[int, ...]
    batch: tuple[int, int, int]
    direction: Callable[[Tensor], Tensor]
    rows: tuple[int, int] | None = None  # of the only tensor: the first, and how many


def bundles(plan: Plan, geometry: Geometry) -> list[Bundle]:
    """Bundle the plan's tensors, in its order, each bundle as large as fits."""
    weights = plan.weights

    def kind(at: int) -> object:
        weight = weights[at]
        return weight.shape, weight.dtype, weight.device, plan.atoms[at]

    found = []
    for _, alike in groupby(range(len(weights)), key=kind):
        places = list(alike)
        first = places[0]
        most = max(1, ROOM // max(1, weights[first].numel()))
        if most == 1:
            found += [bundle for at in places for bundle in _chunks(at, plan, geometry)]
            continue
        for start in range(first, first + len(places), most):
            stop = min(start + most, first + len(places))
            found.append(_bundle(slice(start, stop), stacked(plan.atoms[first], stop - start), geometry))
    return found


def _bundle(where: slice, atom: Atom, geometry: Geometry, rows: tuple[int, int] | None = None) -> Bundle:
    order = (*atom.grid, *atom.rows, *atom.columns)
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    batch = (atom.parts, atom.height, atom.fan_in)
    each = tuple(1 if i in atom.inner else n for i, n in enumerate(atom.shape))
    return Bundle(where, atom.shape, each, order, back, batch, direction_for(atom, geometry), rows)


def stacked(atom: Atom, times: int) -> Atom:
    """The atom of `times` such tensors, stacked.

    >>> stacked(Atom("matrix", (2, 3), (0,), (1,), 1.0), 4).parts
    4
    """
    rows, columns = (tuple(i + 1 for i in dims) for dims in (atom.rows, atom.columns))
    return replace(atom, shape=(times, *atom.shape), rows=rows, columns=columns)


def _chunks(at: int, plan: Plan, geometry: Geometry) -> list[Bundle]:
    """A large tensor, cut between its parts if they lie one after the other; else whole."""
    weights, atom = plan.weights, plan.atoms[at]
    weight = weights[at]
    where, parts = slice(at, at + 1), 1 if not atom.shape or 0 in atom.inner else atom.shape[0]
    if parts == 1 or weight.shape[0] % parts:
        return [_bundle(where, stacked(atom, 1), geometry)]
    room = max(ROOM, sum(w.numel() for w in weights) // PIECES)
    most = max(1, room * parts // weight.numel())
    each = weight.shape[0] // parts  # rows of one part
    return [
        _bundle(
            where, stacked(replace(atom, shape=(count, *atom.shape[1:])), 1), geometry, (start * each, count * each)
        )
        for start in range(0, parts, most)
        if (count := min(most, parts - start))
    ]
