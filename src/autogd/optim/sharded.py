"""The two passes over weights of which each process holds a slice."""

from typing import Any

import torch
from torch import Tensor

from autogd.geometry.norms import squares
from autogd.geometry.shards import Slice
from autogd.optim.plan import Plan
from autogd.optim.readable import masked

__all__ = ["Sharded", "gathered", "is_sharded", "local", "slice_of", "whole"]


class Sharded:
    """DTensors: squared norms of the slices here, one sum over the processes, then each its own slice.

    Which slice is here, and which part each of its rows belongs to, is worked out and sent to the device once.
    """

    def __init__(self, grads: list[Tensor], plan: Plan) -> None:
        self.places = [slice_of(grad) for grad in grads]
        self.groups = [(group, mask[plan.owner]) for group, mask in _groups(grads, self.places, plan)]

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        each = []
        for grad, atom, place in zip(grads, plan.atoms, self.places, strict=True):
            mine = local(grad)
            each.append((squares(mine, atom) if place is None else place.squares(mine, atom)).to(plan.reach))
        # norms must not be added, nor their roots taken, before the squares of all slices are together
        together = torch.cat(each)
        for group, mask in self.groups:
            shared = torch.where(mask, together, 0)
            torch.distributed.all_reduce(shared, group=group)
            together = torch.where(mask, shared, together)
        return together.sqrt()

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        each = coefficients.split(plan.sizes)
        for parameter, grad, atom, c, place in zip(plan.parameters, grads, plan.atoms, each, self.places, strict=True):
            mine, slope = local(parameter), local(grad)
            if place is None:
                atom.cut(mine).add_(masked(atom.cut(slope) * atom.spread(c), finite))
            else:
                place.cut(mine, atom).add_(masked(place.cut(slope, atom) * place.spread(c, atom), finite))

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        for parameter, factor in zip(plan.parameters, factors, strict=True):
            local(parameter).mul_(factor)


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "placements")  # a DTensor, told without importing its package


def local(tensor: Any) -> Tensor:
    """What is here of a DTensor, as a view; any other tensor itself."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def whole(tensor: Any) -> Tensor:
    """All of a DTensor, gathered from the processes; of a sparse tensor, the dense one; any other tensor itself."""
    if tensor.is_sparse:
        return tensor.to_dense()
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def gathered(piece: Tensor, like: Any) -> Tensor:
    """All of a tensor of which `piece` is here, cut as the DTensor `like` is; the piece itself where nothing is cut."""
    if slice_of(like) is None:
        return piece
    from torch.distributed.tensor import DTensor

    spread = DTensor.from_local(piece, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())
    return spread.full_tensor()


def slice_of(tensor: Any) -> Slice | None:
    """Which slice of a DTensor is here; None where it is whole."""
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


def _groups(grads: list[Any], places: list[Slice | None], plan: Plan) -> list[tuple[Any, Tensor]]:
    """The process groups over which tensors are cut, each with the mask of those tensors: as a rule, one."""
    members: dict[Any, list[bool]] = {}
    for i, (grad, place) in enumerate(zip(grads, places, strict=True)):
        if place is not None:
            axis = next(axis for axis, placement in enumerate(grad.placements) if placement.is_shard())
            members.setdefault(grad.device_mesh.get_group(axis), [False] * len(grads))[i] = True
    return [(group, torch.tensor(mask, device=plan.reach.device)) for group, mask in members.items()]
