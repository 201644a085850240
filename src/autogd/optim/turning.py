"""How StochasticAGD touches the weights: two passes, look and turn.

One way is of torch's operations, for any device, and the other in C, for the CPU; the tests hold them equal to
rounding.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.geometry.directions import Geometry, unit_direction
from autogd.geometry.norms import accumulation_dtype
from autogd.optim.bundles import Bundle, apart, bundles, together
from autogd.optim.momentum import MOMENTUM, look_ahead, slope_along
from autogd.optim.native import library, plain
from autogd.optim.native_turning import NativeTurning
from autogd.optim.paths import choose_path
from autogd.optim.plan import Plan
from autogd.optim.sharded import added_up, gathered, is_sharded, local, slice_of

__all__ = ["Bundled", "NativeTurning", "Turning", "choose_turning"]


class Turning(Protocol):
    """How a step touches the weights, their momentum, directions and averages."""

    state: Any

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector; no state is needed."""
        ...

    def look(self, grads: list[Tensor], plan: Plan) -> tuple[Tensor, Tensor]:
        """The norm of every part's gradient, as one vector; and the slope along the last directions."""
        ...

    def turn(
        self, grads: list[Tensor], sizes: Tensor, factor: Tensor, steps: Tensor, share: Tensor, plan: Plan
    ) -> Tensor:
        """Every tensor's new momentum, direction, weights and average; gives the batch's slope along the directions.

        Args:
            grads: the gradients that were looked at.
            sizes: of every part, the operator norm of its direction.
            factor: what the gradients are multiplied by.
            steps: how far each tensor goes along its direction, or all of them; 0 leaves weights and averages alone.
            share: that of the new weights in their average.
            plan: whose tensors they are.
        """
        ...


def choose_turning(grads: list[Tensor], plan: Plan, geometry: Geometry, state: Any) -> Turning:
    """The fast one where it is possible; it holds for all steps of the plan."""
    otherwise = Bundled(grads, plan, geometry, state)
    # power iterations go on from a vector of their own
    if geometry != "operator" and plain(plan) and (passes := library()) is not None:
        return NativeTurning(plan, passes, geometry == "spectral", state, otherwise)
    return otherwise


class Bundled:
    """Small tensors that are alike together, large ones by their parts."""

    def __init__(self, grads: list[Tensor], plan: Plan, geometry: Geometry, state: Any) -> None:
        self.geometry, self.state, self.path = geometry, state, choose_path(grads, plan, None)
        # power iterations go on from a vector that each tensor keeps for itself, and slices are summed by tensor
        alone = geometry == "operator" or any(is_sharded(parameter) for parameter in plan.parameters)
        self.bundles = bundles(plan, alone)

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector; no state is needed."""
        return self.path.measure(grads, plan)

    def look(self, grads: list[Tensor], plan: Plan) -> tuple[Tensor, Tensor]:
        """The norm of every part's gradient, as one vector; and the slope along the last directions."""
        slopes = []
        for bundle in self.bundles:
            (directions,) = self._held(bundle, plan, "direction")
            own = bundle.cut([local(grad) for grad in grads[bundle.where]])
            fresh = slope_along(together(directions), together(own))
            slopes.append(-fresh if plan.own[bundle.where.start]["maximize"] else fresh)
        return self.measure(grads, plan), added_up(slopes, plan, self.path)

    def turn(
        self, grads: list[Tensor], sizes: Tensor, factor: Tensor, steps: Tensor, share: Tensor, plan: Plan
    ) -> Tensor:
        """Every tensor's new momentum, direction, weights and average; gives the batch's slope along the directions."""
        slopes = []
        sizes_each = sizes.split([bundle.atom.parts for bundle in self.bundles])
        each = steps.expand(len(grads)).unbind()
        for bundle, size in zip(self.bundles, sizes_each, strict=True):
            first, parameters = bundle.where.start, plan.parameters[bundle.where]
            group, step = plan.own[first], each[first]
            momenta, directions, averages = self._held(bundle, plan, "momentum", "direction", "average")
            weights = bundle.cut([local(parameter) for parameter in parameters])
            slope, momentum = together(bundle.cut([local(grad) for grad in grads[bundle.where]])), together(momenta)
            sign = -1.0 if group["maximize"] else 1.0
            step, wanted, trusted = (value.to(slope.device) for value in (step, share, factor))
            take: float | Tensor = 1 - MOMENTUM
            if not plan.looks:  # a gradient that is not finite changes nothing, and zero times it would not be zero
                slope = torch.where(trusted == 0, 0, slope)
                take = torch.where(trusted == 0, 0, 1 - MOMENTUM).to(accumulation_dtype(slope.dtype))
            ahead = look_ahead(momentum, slope, sign * trusted, take)
            if len(momenta) > 1:
                apart(momentum, momenta)
            turned = self._direction(ahead, parameters, bundle.atom, size.to(slope.device))
            apart(turned, directions)
            slopes.append(slope_along(turned, slope) * sign)
            if group["weight_decay"]:
                shrink = 1 - step * group["weight_decay"] * plan.atoms[first].weight / plan.depth
                for weight in weights:  # each by itself: a factor in half precision would be too coarse
                    weight.mul_(shrink)
            dtype = weights[0].dtype
            steps_each = [-step.to(dtype)] * len(weights)
            torch._foreach_addcmul_(weights, list(turned.to(dtype).unbind()), steps_each)
            moved = torch.where(step == 0, 0, wanted).to(averages[0].dtype)
            torch._foreach_lerp_(averages, [w.to(moved.dtype) for w in weights], [moved] * len(weights))
        return added_up(slopes, plan, self.path)

    def _direction(self, ahead: Tensor, parameters: list[Tensor], atom: Atom, size: Tensor) -> Tensor:
        """What is here of the directions of stacked tensors: every part at operator norm `size`."""
        first, place = parameters[0], slice_of(parameters[0])
        state = self.state[first]
        full = ahead if place is None else gathered(ahead[0], first).unsqueeze(0)
        turned, vector = unit_direction(full, atom, self.geometry, state.get("vector"), overwrite=True)
        if vector is not None:
            state["vector"] = vector
        atom.cut(turned).mul_(atom.spread(size))
        return turned if place is None else turned.narrow(place.dim + 1, place.offset, place.count)

    def _held(self, bundle: Bundle, plan: Plan, *names: str) -> list[list[Tensor]]:
        """What is here of a bundle's states, by name."""
        own = [self.state[parameter] for parameter in plan.parameters[bundle.where]]
        return [bundle.cut([local(state[name]) for state in own]) for name in names]
