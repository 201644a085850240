"""The two passes over the weights, measure and apply, written twice: to be read, and to be fast.

All take and give one number a part, in the plan's order; the tests hold them equal to rounding. A third way is for
tensors of which each process holds a slice.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.geometry.norms import frobenius
from autogd.geometry.shards import Slice
from autogd.optim.plan import Plan

__all__ = ["MultiTensor", "Path", "Readable", "Sharded", "choose_path", "over_parts"]


class Path(Protocol):
    """How a step touches the weights."""

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        ...

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        ...

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        ...


def choose_path(grads: list[Tensor], plan: Plan, foreach: bool | None) -> Path:
    """The fast path where it is possible and not declined."""
    if any(_is_sharded(grad) for grad in grads):
        return Sharded()
    if foreach is False or not plan.one_device or any(grad.is_sparse for grad in grads):
        return Readable()
    return MultiTensor()


class Readable:
    """One tensor at a time, each wherever it lives."""

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        return torch.cat([frobenius(grad, atom).to(plan.reach) for grad, atom in zip(grads, plan.atoms, strict=True)])

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        each = coefficients.split(plan.sizes)
        for parameter, grad, atom, c in zip(plan.parameters, grads, plan.atoms, each, strict=True):
            c = c.to(parameter.device)
            if grad.is_sparse:
                rows = grad._indices()[0]
                update = grad._values() * c[rows].unsqueeze(1)
                parameter.index_add_(0, rows, _masked(update, finite).to(parameter.dtype))
            else:
                atom.cut(parameter).add_(_masked(atom.cut(grad) * over_parts(c, atom), finite))

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        for parameter, factor in zip(plan.parameters, factors, strict=True):
            parameter.mul_(factor.to(parameter.device))


class MultiTensor:
    """All tensors in one call, and no temporary the size of a tensor."""

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        # the plan has the tensors of one part first
        whole, cut = grads[: plan.whole], grads[plan.whole :]
        norms = [frobenius(grad, atom) for grad, atom in zip(cut, plan.atoms[plan.whole :], strict=True)]
        if whole:
            norms.insert(0, torch.stack(torch._foreach_norm(whole, 2, plan.reach.dtype)))
        return torch.cat([norm.to(plan.reach.dtype) for norm in norms])

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        if finite is not None:
            # zero times a gradient that is not finite is not zero: mask the gradient itself, one tensor at a time
            return Readable().apply(grads, coefficients, plan, finite)
        each = zip(plan.parameters, grads, plan.atoms, coefficients.split(plan.sizes), strict=True)
        cut = [(atom.cut(p), atom.cut(grad), over_parts(c, atom)) for p, grad, atom, c in each]
        torch._foreach_addcmul_(*(list(column) for column in zip(*cut, strict=True)))

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        torch._foreach_mul_(plan.parameters, list(factors.unbind()))


class Sharded:
    """DTensors: squared norms of the slices here, one sum over the processes, then each its own slice."""

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        squares = []
        for grad, atom in zip(grads, plan.atoms, strict=True):
            place = _slice(grad)
            local = _local(grad)
            square = frobenius(local, atom).square() if place is None else place.squares(local, atom)
            squares.append(square.to(plan.reach))
        # norms must not be added, nor their roots taken, before the squares of all slices are together
        whole = torch.cat(squares)
        for group, mask in _groups(grads, plan):
            shared = torch.where(mask, whole, 0)
            torch.distributed.all_reduce(shared, group=group)
            whole = torch.where(mask, shared, whole)
        return whole.sqrt()

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        each = coefficients.split(plan.sizes)
        for parameter, grad, atom, c in zip(plan.parameters, grads, plan.atoms, each, strict=True):
            place, mine, slope = _slice(grad), _local(parameter), _local(grad)
            if place is None:
                atom.cut(mine).add_(_masked(atom.cut(slope) * over_parts(c, atom), finite))
            else:
                place.cut(mine, atom).add_(_masked(place.cut(slope, atom) * place.spread(c, atom), finite))

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        for parameter, factor in zip(plan.parameters, factors, strict=True):
            _local(parameter).mul_(factor)


def over_parts(values: Tensor, atom: Atom) -> Tensor:
    """One number a part, shaped to multiply the cut tensor."""
    return values.view([1 if i in atom.inner else n for i, n in enumerate(atom.shape)] if atom.parts > 1 else [])


def _masked(update: Tensor, finite: Tensor | None) -> Tensor:
    return update if finite is None else torch.where(finite.to(update.device), update, 0)


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "placements")  # a DTensor, told without importing its package


def _local(tensor: Any) -> Tensor:
    return tensor.to_local() if _is_sharded(tensor) else tensor


def _slice(tensor: Any) -> Slice | None:
    """Which slice of a DTensor is here; None where it is whole."""
    if not _is_sharded(tensor):
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


def _groups(grads: list[Any], plan: Plan) -> list[tuple[Any, Tensor]]:
    """The process groups over which tensors are cut, each with the mask of their parts: as a rule, one."""
    members: dict[Any, list[bool]] = {}
    for i, grad in enumerate(grads):
        if _slice(grad) is not None:
            axis = next(axis for axis, placement in enumerate(grad.placements) if placement.is_shard())
            members.setdefault(grad.device_mesh.get_group(axis), [False] * len(grads))[i] = True
    return [(group, torch.tensor(mask, device=plan.reach.device)[plan.owner]) for group, mask in members.items()]
