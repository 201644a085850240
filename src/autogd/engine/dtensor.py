"""The backend for DTensors: each process holds a slice of every tensor."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autogd.engine.plan import Plan
from autogd.engine.shards import Slice
from autogd.engine.single_tensor import SingleTensor
from autogd.geometry.atom import Atom
from autogd.geometry.direction import Geometry, unit_direction

__all__ = ["Sharded", "is_sharded", "local", "slice_of", "spread_of"]


class Sharded(SingleTensor):
    """Sums over the slices here, one all-reduce, then each process moves its own slice.

    Which slice is here, and which part each of its rows belongs to, is worked out and sent to the device once. An
    orthogonalised direction needs the whole matrix: each process gathers it for a moment.
    """

    def __init__(self, grads: list[Tensor], plan: Plan, geometry: Geometry, momentum: float = 0.0) -> None:
        super().__init__(plan, geometry, momentum)
        self.places = [slice_of(grad) for grad in grads]
        self.groups = [(group, mask[plan.owner]) for group, mask in _groups(grads, self.places, plan)]

    def local(self, tensor: Tensor) -> Tensor:
        """The numbers of a tensor that are here."""
        return local(tensor)

    def norms(self, tensors: Sequence[Tensor]) -> Tensor:
        """The Frobenius norm of every part, as one vector."""
        mine = (local(tensor) for tensor in tensors)
        squares = (piece.to(self.plan.reach.dtype).square() for piece in mine)
        each = [self._sums(i, square).to(self.plan.reach) for i, square in enumerate(squares)]
        # add up the squares of all slices before taking roots
        return self.combined(torch.cat(each)).sqrt()

    def combined(self, sums: Tensor) -> Tensor:
        """Sums over parts, completed by what other processes have of the same parts."""
        for group, mask in self.groups:
            shared = torch.where(mask, sums, 0)
            torch.distributed.all_reduce(shared, group=group)
            sums = torch.where(mask, shared, sums)
        return sums

    def direction(self, i: int, tensor: Tensor) -> Tensor:
        """What is here of the direction of tensor i."""
        place = self.places[i]
        if place is None:
            return super().direction(i, tensor)
        whole = unit_direction(_gathered(tensor, self.plan.parameters[i]), self.plan.atoms[i], self.geometry)
        return whole.narrow(place.dim, place.offset, place.count)

    def slopes_of(self, i: int, direction: Tensor, grad: Tensor) -> Tensor:
        """⟨direction, gradient⟩ of every part of tensor i, over the slice here."""
        return self._sums(i, direction * grad)

    def scaled(self, i: int, direction: Tensor, coefficients: Tensor) -> Tensor:
        """The slice here of the direction of tensor i with every part times its coefficient."""
        place, atom, direction = self.places[i], self.plan.atoms[i], local(direction)
        if place is None:
            return super().scaled(i, direction, coefficients)
        piece = direction.contiguous()
        return (place.cut(piece, atom) * place.spread(coefficients, atom)).reshape(direction.shape)

    def _sums(self, i: int, values: Tensor) -> Tensor:
        place, atom = self.places[i], self.plan.atoms[i]
        return _sums_of_parts(values, atom) if place is None else place.sums(values, atom)


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "placements")  # told without importing its package


def spread_of(tensor: Tensor) -> object:
    """How a DTensor lies over the processes; nothing for any other tensor."""
    return getattr(tensor, "placements", None), getattr(tensor, "device_mesh", None)


def local(tensor: Any) -> Tensor:
    """What is here of a DTensor, as a view; any other tensor itself."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def slice_of(tensor: Any) -> Slice | None:
    """Which slice of a DTensor is here; None if it is whole."""
    if not is_sharded(tensor):
        return None
    sharded = [(axis, placement) for axis, placement in enumerate(tensor.placements) if not placement.is_replicate()]
    if not sharded:
        return None
    if len(sharded) > 1 or not sharded[0][1].is_shard():
        raise ValueError(
            f"a gradient has the placements {tensor.placements}; AGD takes one Shard, and Replicate for the rest "
            "(fully_shard gives that)"
        )
    axis, placement = sharded[0]
    dim = placement.dim
    # as torch.chunk cuts: equal pieces, the last ones shorter or empty
    size = -(-tensor.shape[dim] // tensor.device_mesh.size(axis))
    offset = min(size * tensor.device_mesh.get_local_rank(axis), tensor.shape[dim])
    return Slice(tuple(tensor.shape), dim, offset, tensor.to_local().shape[dim])


def _gathered(piece: Tensor, like: Any) -> Tensor:
    """All of a tensor of which `piece` is here, cut as the DTensor `like` is."""
    from torch.distributed.tensor import DTensor

    spread = DTensor.from_local(piece, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())
    return spread.full_tensor()


def _groups(grads: list[Any], places: list[Slice | None], plan: Plan) -> list[tuple[Any, Tensor]]:
    """The process groups over which tensors are cut, each with the mask of those tensors: as a rule, one."""
    members: dict[Any, list[bool]] = {}
    for i, (grad, place) in enumerate(zip(grads, places, strict=True)):
        if place is not None:
            axis = next(axis for axis, placement in enumerate(grad.placements) if placement.is_shard())
            members.setdefault(grad.device_mesh.get_group(axis), [False] * len(grads))[i] = True
    return [(group, torch.tensor(mask, device=plan.reach.device)) for group, mask in members.items()]


def _sums_of_parts(values: Tensor, atom: Atom) -> Tensor:
    cut = atom.cut(values)
    return (cut.sum(atom.inner) if atom.inner else cut).flatten()
