"""How StochasticAGD touches the weights: two passes, measure and update.

One way is of torch's operations, for any device, and the other in C, for the CPU; the tests hold them equal to
rounding.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.geometry.directions import Geometry, unit_direction
from autogd.geometry.norms import accumulation_dtype
from autogd.optim.bundles import Bundle, apart, bundles, together
from autogd.optim.momentum import look_ahead
from autogd.optim.native import library, plain
from autogd.optim.native_turning import NativeTurning
from autogd.optim.paths import choose_path
from autogd.optim.plan import Plan
from autogd.optim.rate import MOMENTUM
from autogd.optim.sharded import SpreadTurning, is_sharded, local

__all__ = ["Bundled", "NativeTurning", "Norms", "Turning", "choose_turning"]


class Norms(NamedTuple):
    """What a step must know before it moves anything."""

    gradients: Tensor  # of every part
    momenta: Tensor  # of every part
    weights: Tensor  # of every tensor; zero where none is held


class Turning(Protocol):
    """How a step touches the weights, their momenta and averages."""

    state: Any

    def measure_gradients(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector; no state is needed."""
        ...

    def measure(self, grads: list[Tensor], plan: Plan) -> Norms:
        """The norms of gradients, momenta and weights."""
        ...

    def update(
        self,
        grads: list[Tensor],
        sizes: Tensor,
        factor: Tensor,
        steps: Tensor,
        keeps: Tensor,
        share: Tensor,
        plan: Plan,
    ) -> None:
        """Every tensor's new momentum, weights and average.

        Args:
            grads: the gradients that were measured.
            sizes: of every part, the operator norm of its direction.
            factor: what the gradients are multiplied by.
            steps: how far each tensor goes along its direction; 0 leaves weights and averages alone.
            keeps: what each tensor is multiplied by before.
            share: that of the new weights in their average.
            plan: whose tensors they are.
        """
        ...


def choose_turning(grads: list[Tensor], plan: Plan, geometry: Geometry, state: Any, copies: Any = None) -> Turning:
    """The fast one where it is possible; it holds for all steps of the plan."""
    if any(is_sharded(parameter) for parameter in plan.parameters) or (copies is not None and geometry == "spectral"):
        return SpreadTurning(plan, geometry, state, copies)
    otherwise = Bundled(grads, plan, geometry, state)
    # power iterations go on from a vector of their own
    if geometry != "operator" and plain(plan) and (passes := library()) is not None:
        return NativeTurning(plan, passes, geometry == "spectral", state, otherwise)
    return otherwise


class Bundled:
    """Small tensors that are alike together, large ones by their parts."""

    def __init__(self, grads: list[Tensor], plan: Plan, geometry: Geometry, state: Any) -> None:
        self.geometry, self.state, self.path = geometry, state, choose_path(grads, plan, None)
        self.holds = any(atom.held_at < float("inf") for atom in plan.atoms)
        # power iterations go on from a vector that each tensor keeps for itself
        self.bundles = bundles(plan, alone=geometry == "operator")

    def measure_gradients(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector; no state is needed."""
        return self.path.measure(grads, plan)

    def measure(self, grads: list[Tensor], plan: Plan) -> Norms:
        """The norms of gradients, momenta and weights."""
        momenta = self.path.measure([self.state[parameter]["momentum"] for parameter in plan.parameters], plan)
        weights = torch.zeros_like(plan.weights)
        if self.holds:
            weights = plan.per_owner(self.path.measure(plan.parameters, plan).square()).sqrt()
        return Norms(self.measure_gradients(grads, plan), momenta, weights)

    def update(
        self,
        grads: list[Tensor],
        sizes: Tensor,
        factor: Tensor,
        steps: Tensor,
        keeps: Tensor,
        share: Tensor,
        plan: Plan,
    ) -> None:
        """Every tensor's new momentum, weights and average."""
        sizes_each = sizes.split([bundle.atom.parts for bundle in self.bundles])
        steps_each, keeps_each = steps.unbind(), keeps.unbind()
        for bundle, size in zip(self.bundles, sizes_each, strict=True):
            parameters, first = plan.parameters[bundle.where], bundle.where.start
            momenta, averages = self._held(bundle, plan, "momentum", "average")
            weights = bundle.cut([local(parameter) for parameter in parameters])
            slope, momentum = together(bundle.cut([local(grad) for grad in grads[bundle.where]])), together(momenta)
            sign = -1.0 if plan.own[first]["maximize"] else 1.0
            wanted, trusted = share.to(slope.device), factor.to(slope.device)
            take: float | Tensor = 1 - MOMENTUM
            if not plan.looks:  # a gradient that is not finite changes nothing, and zero times it would not be zero
                slope = torch.where(trusted == 0, 0, slope)
                take = torch.where(trusted == 0, 0, 1 - MOMENTUM).to(accumulation_dtype(slope.dtype))
            ahead = look_ahead(momentum, slope, sign * trusted, take)
            if len(momenta) > 1:
                apart(momentum, momenta)
            directions = self._direction(ahead, parameters, bundle.atom, size.to(slope.device)).unbind()
            for at, (weight, average, direction) in enumerate(zip(weights, averages, directions, strict=True), first):
                step, keep = steps_each[at].to(slope.device), keeps_each[at].to(slope.device)
                dtype = accumulation_dtype(weight.dtype)
                # in half precision, a factor and a step would be too coarse one after the other
                moved = weight if weight.dtype == dtype else weight.to(dtype)
                moved.mul_(keep.to(dtype)).sub_(direction.to(dtype) * step.to(dtype))
                if moved is not weight:
                    weight.copy_(moved)
                average.lerp_(weight.to(average.dtype), torch.where(step == 0, 0, wanted).to(average.dtype))

    def _direction(self, ahead: Tensor, parameters: list[Tensor], atom: Atom, size: Tensor) -> Tensor:
        """What is here of the directions of stacked tensors: every part at operator norm `size`."""
        state = self.state[parameters[0]]
        turned, vector = unit_direction(ahead, atom, self.geometry, state.get("vector"), overwrite=True)
        if vector is not None:
            state["vector"] = vector
        atom.cut(turned).mul_(atom.spread(size))
        return turned

    def _held(self, bundle: Bundle, plan: Plan, *names: str) -> list[list[Tensor]]:
        """What is here of a bundle's states, by name."""
        own = [self.state[parameter] for parameter in plan.parameters[bundle.where]]
        return [bundle.cut([local(state[name]) for state in own]) for name in names]
