"""How a step is carried out on tensors: the protocol that every backend follows, and the reference.

A step has two stages. `measure` gives the rule the norms that it needs; `update` applies the step. The backends are
`single_tensor` (`SingleTensor` below: the reference, to be read), `foreach` (fast on any device), `native` (in C, on
the CPU) and `dtensor` (each process holds a shard). The tests compare all of them with the reference. To add one, write
a file here and choose it in `choose_backend` (`engine/steps.py`).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from autogd.engine.plan import Plan
from autogd.geometry.direction import Geometry, unit_direction
from autogd.geometry.norms import accumulation_dtype, frobenius

__all__ = ["Average", "Backend", "Norms", "SingleTensor", "Step"]


class Norms(NamedTuple):
    """What the rule must know before anything moves."""

    gradients: Tensor  # per part: the norm of its gradient; for `spectral` without momentum the slope, the nuclear norm
    momenta: Tensor  # per part: the norm of its momentum; zero without momentum
    weights: Tensor  # per map: its norm; zero if none is held


class Average(NamedTuple):
    """How an average x moves with the weights y, one number per tensor.

    With D = y − x before the step: y ← y + along·D, then the step δ; x ← x + beside·D + share·δ.
    """

    along: Tensor | None  # None is zero, and `beside` is then `share`: x ← x + share·(y − x) after the step
    beside: Tensor
    share: Tensor


class Step(NamedTuple):
    """What the rule decided: W ← keep·W + coefficient·direction, and what becomes of momentum and average.

    Without momentum, coefficients are meant for gradients: a unit direction is multiplied by its slope as well.
    """

    coefficients: Tensor  # per part
    keeps: Tensor | None = None  # with momentum per part, since maps are held one by one; else per tensor; None is 1
    finite: Tensor | None = None  # false: nothing changes; None: checked already
    gradient_factor: Tensor | None = None  # what gradients are multiplied by before they join the momentum
    average: Average | None = None


class Backend(Protocol):
    """Carries out the steps of one plan."""

    plan: Plan

    def measure(self, grads: list[Tensor], momenta: Sequence[Tensor] = ()) -> Norms:
        """The norms of gradients, momenta and held weights."""

    def update(
        self, grads: list[Tensor], step: Step, momenta: Sequence[Tensor] = (), averages: Sequence[Tensor] = ()
    ) -> None:
        """Move every tensor, its momentum and its average; `grads` are those that were measured."""


class SingleTensor:
    """The reference backend: one tensor at a time, each on its own device.

    Args:
        plan: the tensors.
        geometry: how a direction is normalised.
        momentum: the share of the momentum that a step keeps; 0 takes directions from gradients alone.
    """

    def __init__(self, plan: Plan, geometry: Geometry, momentum: float = 0.0) -> None:
        self.plan, self.geometry, self.momentum = plan, geometry, momentum
        self.slopes = plan.reach.new_zeros(())
        self.directions: list[Tensor] = []  # from `measure` to `update`, if directions are not the gradients themselves

    def measure(self, grads: list[Tensor], momenta: Sequence[Tensor] = ()) -> Norms:
        """The norms of gradients, momenta and held weights."""
        none = self.plan.reach.new_zeros(())
        if not self.momentum:
            return Norms(self.norms(grads) if self.geometry == "frobenius" else self._slopes(grads), none, none)
        weights = self.plan.map_sums(self.norms(self.plan.weights).square()).sqrt() if self.plan.holds else none
        return Norms(self.norms(grads), self.norms(momenta) if momenta else none, weights)

    def update(
        self, grads: list[Tensor], step: Step, momenta: Sequence[Tensor] = (), averages: Sequence[Tensor] = ()
    ) -> None:
        """Move every tensor, its momentum and its average."""
        coefficients = step.coefficients
        if self.directions:  # these are unit directions, but the coefficients expect gradients
            coefficients = coefficients * torch.where(self.slopes > 0, self.slopes, 0)
        for i, some in enumerate(coefficients.split(self.plan.sizes)):
            if self.directions:
                direction = self.directions[i]
            elif momenta:
                direction = self.direction(i, self._ahead(grads[i], momenta[i], step))
            else:
                direction = grads[i]
            self._move(i, self.scaled(i, direction, some), step, averages)
        self.directions = []

    # Overridden by backends for sharded tensors.

    def local(self, tensor: Tensor) -> Tensor:
        """The local shard of a tensor."""
        return tensor

    def norms(self, tensors: Sequence[Tensor]) -> Tensor:
        """The Frobenius norm of every part, as one vector."""
        each, like = zip(tensors, self.plan.atoms, strict=True), self.plan.reach
        return torch.cat([like[:0], *(frobenius(tensor, atom, like.dtype).to(like) for tensor, atom in each)])

    def direction(self, i: int, tensor: Tensor) -> Tensor:
        """The direction of tensor i, every part at norm one."""
        return unit_direction(tensor, self.plan.atoms[i], self.geometry)

    def slopes_of(self, i: int, direction: Tensor, grad: Tensor) -> Tensor:
        """⟨direction, gradient⟩ of every part of tensor i."""
        return self.plan.atoms[i].matrices(direction * grad).sum((1, 2))

    def all_reduce(self, sums: Tensor) -> Tensor:
        """Sums over parts, completed by the other processes."""
        return sums

    def scaled(self, i: int, direction: Tensor, coefficients: Tensor) -> Tensor:
        """The direction of tensor i with every part times its coefficient."""
        atom, coefficients = self.plan.atoms[i], coefficients.to(direction.device)
        if direction.is_sparse:
            rows = direction._values() * coefficients[direction._indices()[0]].unsqueeze(1)
            return torch.sparse_coo_tensor(
                direction._indices(), rows, direction.shape, is_coalesced=True, check_invariants=False
            )
        return (atom.cut(direction) * atom.spread(coefficients)).reshape(direction.shape)

    # The arithmetic of one tensor.

    def _slopes(self, grads: list[Tensor]) -> Tensor:
        """Take the directions, which `update` uses too, and the slope of every part along its own."""
        grads = [grad.to_dense() if grad.is_sparse else self.local(grad) for grad in grads]
        self.directions = self._directions(grads)
        pairs = zip(self.directions, grads, strict=True)
        each = (self.slopes_of(i, *pair).to(self.plan.reach) for i, pair in enumerate(pairs))
        slopes = self.all_reduce(torch.cat([self.plan.reach[:0], *each]))
        # a slope may be finite although the norm overflows: refuse it, as for `frobenius`
        self.slopes = torch.where(self.norms(grads).isfinite(), slopes, torch.inf)
        return self.slopes

    def _directions(self, grads: list[Tensor]) -> list[Tensor]:
        return [self.direction(i, grad) for i, grad in enumerate(grads)]

    def _ahead(self, grad: Tensor, momentum: Tensor, step: Step) -> Tensor:
        """Renew the momentum, and return Nesterov's view of it: one step further along the same gradient."""
        grad, momentum = self.local(grad), self.local(momentum)
        wide = accumulation_dtype(grad.dtype)
        assert step.gradient_factor is not None
        fresh, take = grad.to(wide) * step.gradient_factor.to(grad.device, wide), 1 - self.momentum
        if step.finite is not None:  # 0 × nan is nan
            fresh = torch.where(step.finite.to(grad.device), fresh, momentum.to(wide))
        renewed = momentum.to(wide).lerp(fresh, take)
        momentum.copy_(renewed)
        return renewed.lerp_(fresh, take)

    def _move(self, i: int, change: Tensor, step: Step, averages: Sequence[Tensor]) -> None:
        """W ← keep·W + change, in float32 at least, and the average."""
        weight = self.local(self.plan.weights[i])
        wide = accumulation_dtype(weight.dtype)
        if step.finite is not None:
            change = torch.where(step.finite.to(weight.device), change.to_dense() if change.is_sparse else change, 0)
        moved = weight if weight.dtype == wide else weight.to(wide)
        if step.average is not None:
            average, along = self.local(averages[i]), step.average.along
            beside, share = (each[i].to(weight.device, wide) for each in (step.average.beside, step.average.share))
            difference = moved - average
            if along is not None:
                moved.add_(difference * along[i].to(weight.device, wide))
            average.add_(difference * beside)
            before = moved.clone()
        if step.keeps is not None and self.momentum:
            moved.copy_(self.scaled(i, moved, step.keeps.to(wide).split(self.plan.sizes)[i]))
        elif step.keeps is not None:
            moved.mul_(step.keeps[i].to(weight.device, wide))
        moved.add_(change.to(wide))
        if moved is not weight:
            weight.copy_(moved)
        if step.average is not None:
            average.add_((weight.to(wide) - before) * share)
