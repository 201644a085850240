"""A step along other directions than the gradient's own: each tensor as a whole, turned as its geometry says."""

from typing import Any

import torch
from torch import Tensor

from autogd.geometry.directions import Geometry, unit_direction
from autogd.optim.plan import Plan
from autogd.optim.readable import masked
from autogd.optim.sharded import local, slice_of, whole

__all__ = ["Turned"]


class Turned:
    """Directions of unit size take the gradients' place; their slopes, ⟨direction, gradient⟩, are the dual norms.

    Between the two passes the directions are held, as large as the weights. Of a tensor that is spread over processes
    each gathers the whole for a moment: a product of its parts would need it anyway.
    """

    def __init__(self, geometry: Geometry, state: Any) -> None:
        self.geometry, self.state = geometry, state
        self.turned: list[Tensor] = []

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The slope of every part along its direction, as one vector."""
        self.turned, slopes = [], []
        for parameter, grad, atom in zip(plan.parameters, grads, plan.atoms, strict=True):
            full = whole(grad)
            turned, vector = unit_direction(full, atom, self.geometry, self.state[parameter].get("vector"))
            if vector is not None:
                self.state[parameter]["vector"] = vector
            products = atom.cut(turned) * atom.cut(full)
            slopes.append((products.sum(atom.inner) if atom.inner else products).flatten().to(plan.reach))
            self.turned.append(turned)
        self.slopes = torch.cat(slopes)
        return self.slopes

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its direction times its coefficient, which is meant for a gradient of its slope."""
        each = (coefficients * torch.where(self.slopes > 0, self.slopes, 0)).split(plan.sizes)
        for parameter, turned, atom, c in zip(plan.parameters, self.turned, plan.atoms, each, strict=True):
            step = (atom.cut(turned) * atom.spread(c.to(turned.device))).reshape(turned.shape)
            place = slice_of(parameter)
            step = step if place is None else step.narrow(place.dim, place.offset, place.count)
            local(parameter).add_(masked(step, finite))
        self.turned = []

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        for parameter, factor in zip(plan.parameters, factors, strict=True):
            local(parameter).mul_(factor.to(parameter.device))
