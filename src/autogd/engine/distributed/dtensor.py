"""The backend for tensors on several ranks: DTensors, and copies under DDP."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autogd.engine.backend import Norms, SingleTensor, Step
from autogd.engine.distributed.owners import flops
from autogd.engine.distributed.polar import orthogonalise as rational
from autogd.engine.distributed.ranks import SAME
from autogd.engine.distributed.shards import is_sharded, local
from autogd.engine.distributed.spread import Spread
from autogd.engine.plan import Plan
from autogd.geometry.direction import Geometry
from autogd.geometry.norms import accumulation_dtype

__all__ = ["Sharded", "is_native", "shares_work"]


def is_native(plan: Plan) -> bool:
    """Whether one process would take the native backend for these tensors."""
    from autogd.engine.library import library  # not before it can be run as a program

    ours = all(local(parameter).dtype == torch.float32 for parameter in plan.parameters)
    ours &= not any(atom.complex for atom in plan.atoms)
    return ours and plan.on_cpu and plan.one_device and library() is not None


def shares_work(plan: Plan, geometry: Geometry, momentum: float, copies: Any) -> bool:
    """Whether ranks that all hold copies of the plan's tensors share the work on its matrices.

    They do not if each has the native backend: to work alone then costs less than to exchange matrices.
    """
    if copies is None or geometry != "spectral" or not plan.one_device or not any(flops(a) for a in plan.atoms):
        return False
    return not (momentum and is_native(plan))


class Sharded(SingleTensor):
    """Each rank sums over its own piece, all-reduces the sums, and moves its own piece.

    An orthogonalised direction needs the whole matrix. One rank owns it, receives its pieces, and sends the direction
    back in pieces. Layouts and owners are worked out once.

    Args:
        plan: the tensors.
        geometry: how a direction is normalised.
        momentum: the share of the momentum that a step keeps.
        copies: the group whose ranks all hold the plain tensors of the plan, and share the work on them.
    """

    def __init__(self, plan: Plan, geometry: Geometry, momentum: float = 0.0, copies: Any = None) -> None:
        super().__init__(plan, geometry, momentum)
        self.spread = Spread(plan.weights, plan.atoms, copies, rational if momentum and is_native(plan) else None)
        self.copies = copies if any(not is_sharded(parameter) for parameter in plan.parameters) else None
        self.alike: Tensor | None = None  # whether the copies still are copies

    def measure(self, grads: list[Tensor], momenta: Sequence[Tensor] = ()) -> Norms:
        """The norms of gradients, momenta and held weights: one sum over the ranks."""
        self._compare_copies(grads)
        if not momenta:
            return self._mask_if_different(super().measure(grads))
        plan = self.plan
        measured = [grads, momenta, plan.weights] if plan.holds else [grads, momenta]
        sums = self.all_reduce(torch.stack([self.spread.squares(each).to(plan.reach) for each in measured]))
        weights = plan.map_sums(sums[2]).sqrt() if plan.holds else plan.reach.new_zeros(())
        return self._mask_if_different(Norms(sums[0].sqrt(), sums[1].sqrt(), weights))

    def _compare_copies(self, grads: list[Tensor]) -> None:
        """Copies that share the work must stay copies: their gradients are equal on all ranks, in every step."""
        if self.copies is None:
            return
        plain = [local(grad) for grad in grads if not is_sharded(grad)]
        norms = torch._foreach_norm(
            [grad._values() if grad.is_sparse else grad for grad in plain], 2, self.plan.reach.dtype
        )
        here = torch.nan_to_num(torch.stack([norm.to(plain[0].device) for norm in norms]).norm())
        extremes = torch.stack([here, -here])
        torch.distributed.all_reduce(extremes, torch.distributed.ReduceOp.MAX, group=self.copies)
        self.alike = extremes.sum() <= SAME * extremes[0]
        if self.plan.on_cpu and not self.alike:
            raise ValueError(
                "the gradients differ from rank to rank, and did not in the first step; no weight was changed. Average "
                "them in every step, or pass process_group=False if every rank trains a model of its own"
            )

    def _mask_if_different(self, norms: Norms) -> Norms:
        """Copies that differ raise an error on the CPU. On an accelerator the step is masked and counted instead."""
        if self.alike is None or self.plan.on_cpu:
            return norms
        return norms._replace(gradients=torch.where(self.alike, norms.gradients, torch.nan))

    def update(
        self, grads: list[Tensor], step: Step, momenta: Sequence[Tensor] = (), averages: Sequence[Tensor] = ()
    ) -> None:
        """Move the piece here of every tensor, its momentum and its average."""
        if not momenta:
            return super().update(grads, step, momenta, averages)
        coefficients = step.coefficients.split(self.plan.sizes)

        def deliver(i: int, direction: Tensor) -> None:
            self._move(i, self.spread.scale_(i, direction, coefficients[i]), step, averages)

        self.spread.directions(lambda i: self._ahead(grads[i], momenta[i], step), deliver, self.geometry)

    def local(self, tensor: Tensor) -> Tensor:
        """The local shard of a tensor."""
        return local(tensor)

    def norms(self, tensors: Sequence[Tensor]) -> Tensor:
        """The Frobenius norm of every part, as one vector."""
        # add up the squares of all pieces before taking roots
        return self.all_reduce(self.spread.squares(tensors).to(self.plan.reach)).sqrt()

    def all_reduce(self, sums: Tensor) -> Tensor:
        """Sums over parts, completed by the other ranks."""
        return self.spread.reduce(sums)

    def slopes_of(self, i: int, direction: Tensor, grad: Tensor) -> Tensor:
        """⟨direction, gradient⟩ of every part of tensor i, over the piece here."""
        return self.spread.sums(i, direction * grad)

    def scaled(self, i: int, direction: Tensor, coefficients: Tensor) -> Tensor:
        """The piece here of the direction of tensor i with every part times its coefficient."""
        piece = local(direction)
        wide = torch.promote_types(piece.dtype, coefficients.dtype)
        piece = piece.to_dense() if piece.is_sparse else piece
        return self.spread.scale_(i, piece.to(wide, copy=True).contiguous(), coefficients)

    def _directions(self, grads: list[Tensor]) -> list[Tensor]:
        found: dict[int, Tensor] = {}
        wide = [grad.to(accumulation_dtype(grad.dtype), copy=True) for grad in grads]
        self.spread.directions(wide.__getitem__, found.__setitem__, self.geometry)
        return [found[i] for i in range(len(grads))]
