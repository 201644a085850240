"""A step along other directions than the gradient's own: each tensor as a whole, turned as its geometry says."""

from typing import Any

import torch
from torch import Tensor

from autogd.geometry.directions import Geometry, unit_direction
from autogd.geometry.norms import accumulation_dtype
from autogd.optim.plan import Plan
from autogd.optim.readable import masked
from autogd.optim.sharded import Spread, is_sharded, local, part_of, spread_of, whole

__all__ = ["Turned"]


class Turned:
    """Directions of unit size take the gradients' place; their slopes, ⟨direction, gradient⟩, are the dual norms.

    Between the two passes the directions are held, as large as the weights. Of a tensor that is spread over processes
    each gathers the whole for a moment: a product of its parts would need it anyway.
    """

    def __init__(self, geometry: Geometry, state: Any, copies: Any = None) -> None:
        self.geometry, self.state, self.copies = geometry, state, copies
        self.turned: list[Tensor] = []
        self.spread: Spread | None = None

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The slope of every part along its direction, as one vector."""
        cut = any(is_sharded(parameter) for parameter in plan.parameters)
        if self.geometry == "spectral" and (cut or self.copies is not None):
            return self._measure_spread(grads, plan)
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

    def _measure_spread(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The same, with one owner a matrix."""
        spread = self.spread = spread_of(plan, self.copies)
        found: dict[int, Tensor] = {}

        def prepare(number: int) -> Tensor:
            grad = local(grads[number])
            grad = grad.to_dense() if grad.is_sparse else grad
            return grad.to(accumulation_dtype(grad.dtype), copy=True)

        spread.directions(prepare, found.__setitem__)
        self.turned = [found[number] for number in range(len(grads))]
        slopes = [
            spread.slopes(
                number, turned, local(grads[number]).to_dense() if grads[number].is_sparse else local(grads[number])
            )
            for number, turned in enumerate(self.turned)
        ]
        self.slopes = spread.reduce(torch.cat([slope.to(plan.reach) for slope in slopes]))
        return self.slopes

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its direction times its coefficient, which is meant for a gradient of its slope."""
        each = (coefficients * torch.where(self.slopes > 0, self.slopes, 0)).split(plan.sizes)
        for number, (parameter, turned, c) in enumerate(zip(plan.parameters, self.turned, each, strict=True)):
            atom = plan.atoms[number]
            if self.spread is not None:
                step = self.spread.scale_(number, turned, c.to(turned))
            else:
                step = part_of((atom.cut(turned) * atom.spread(c.to(turned.device))).reshape(turned.shape), parameter)
            local(parameter).add_(masked(step, finite))
        self.turned = []

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        for parameter, factor in zip(plan.parameters, factors, strict=True):
            local(parameter).mul_(factor.to(parameter.device))
