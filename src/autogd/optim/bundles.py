"""Tensors that are alike, worked on as one: where many are small, calls cost more than arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.optim.plan import Plan

__all__ = ["Bundle", "apart", "bundles", "together"]

ROOM = 1 << 17  # numbers that a copy of a bundle may have


@dataclass(frozen=True)
class Bundle:
    """Which tensors of a plan these are, and the atom of all of them, one above the other."""

    where: slice
    atom: Atom


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
        for start in range(first, first + len(places), most):
            stop = min(start + most, first + len(places))
            found.append(Bundle(slice(start, stop), plan.atoms[first].repeated(stop - start)))
    return found


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
