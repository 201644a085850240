"""What is worked on at a time: small tensors that are alike, as one, and of a large one the parts it has, some by some.

Where many are small, calls cost more than arithmetic; and a copy of a vocabulary's whole table would be a large one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.optim.plan import Plan

__all__ = ["Bundle", "apart", "bundles", "together"]

ROOM = 1 << 18  # numbers that a copy of a bundle may have
PIECES = 64  # or, where there are parts to cut by, this share of all weights


@dataclass(frozen=True)
class Bundle:
    """Which tensors of a plan these are, and the atom of all of them, one above the other; or some rows of one."""

    where: slice
    atom: Atom
    rows: tuple[int, int] | None = None  # of the only tensor: the first, and how many

    def cut(self, tensors: list[Tensor]) -> list[Tensor]:
        """What belongs to the bundle of its own tensors; views."""
        return tensors if self.rows is None else [tensor.narrow(0, *self.rows) for tensor in tensors]


def bundles(plan: Plan, alone: bool = False) -> list[Bundle]:
    """The plan's tensors, in its order, as many at a time as there is room for; or each by itself."""

    def kind(at: int) -> object:
        parameter = plan.parameters[at]
        if alone:
            return at
        return parameter.shape, parameter.dtype, parameter.device, plan.atoms[at], id(plan.own[at])

    found = []
    for _, alike in groupby(range(len(plan.parameters)), key=kind):
        places = list(alike)
        first = places[0]
        most = max(1, ROOM // max(1, plan.parameters[first].numel()))
        if most == 1 and not alone:
            found += [bundle for at in places for bundle in _pieces(at, plan)]
            continue
        for start in range(first, first + len(places), most):
            stop = min(start + most, first + len(places))
            found.append(Bundle(slice(start, stop), plan.atoms[first].repeated(stop - start)))
    return found


def _pieces(at: int, plan: Plan) -> list[Bundle]:
    """A large tensor, cut where its parts lie one after the other; whole where they do not."""
    parameter, atom = plan.parameters[at], plan.atoms[at]
    where, parts = slice(at, at + 1), 1 if not atom.shape or 0 in atom.inner else atom.shape[0]
    if parts == 1 or parameter.shape[0] % parts:
        return [Bundle(where, atom.repeated(1))]
    room = max(ROOM, sum(p.numel() for p in plan.parameters) // PIECES)
    most = max(1, room * parts // parameter.numel())
    each = parameter.shape[0] // parts  # rows of one part
    return [
        Bundle(where, replace(atom, shape=(count, *atom.shape[1:])).repeated(1), (start * each, count * each))
        for start in range(0, parts, most)
        if (count := min(most, parts - start))
    ]


def together(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape, stacked; a view where there is one only.

    >>> together([torch.zeros(3), torch.ones(3)]).shape
    torch.Size([2, 3])
    """
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(list(tensors))


def apart(stacked: Tensor, tensors: Sequence[Tensor]) -> None:
    """Put what was stacked back where it came from.

    >>> one, two = torch.zeros(3), torch.zeros(3)
    >>> apart(torch.ones(2, 3), [one, two])
    >>> two
    tensor([1., 1., 1.])
    """
    torch._foreach_copy_(list(tensors), list(stacked.unbind()))
