"""The passes over tensors that lie over several ranks."""

from typing import Any

import torch
from torch import Tensor

from autogd.engine.shards import is_sharded, local, piece_of
from autogd.engine.spread import Spread
from autogd.geometry.directions import Geometry, unit_direction
from autogd.geometry.norms import accumulation_dtype
from autogd.optim.momentum import look_ahead
from autogd.optim.plan import Plan
from autogd.optim.rate import MOMENTUM
from autogd.optim.readable import masked

__all__ = ["Sharded", "Spread", "SpreadTurning", "gathered", "is_sharded", "local", "part_of", "spread_of", "whole"]


def spread_of(plan: Plan, copies: Any = None) -> Spread:
    """How the plan's tensors lie over the ranks, worked out once."""
    if "spread" not in plan.kept:
        plan.kept["spread"] = Spread(plan.parameters, plan.atoms, copies)
    spread: Spread = plan.kept["spread"]
    return spread


class Sharded:
    """DTensors: squared norms of the pieces here, one sum over the ranks, then each its own piece."""

    def __init__(self, grads: list[Tensor], plan: Plan) -> None:
        self.spread = spread_of(plan)

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        # norms must not be added, nor their roots taken, before the squares of all pieces are together
        return self.spread.reduce(self.spread.squares(grads)).sqrt().to(plan.reach)

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        each = coefficients.split(plan.sizes)
        for number, (parameter, grad, c) in enumerate(zip(plan.parameters, grads, each, strict=True)):
            slope = local(grad)
            step = slope.to(torch.promote_types(slope.dtype, c.dtype), copy=True)
            local(parameter).add_(masked(self.spread.scale_(number, step, c), finite))

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        for parameter, factor in zip(plan.parameters, factors, strict=True):
            local(parameter).mul_(factor)


class SpreadTurning:
    """StochasticAGD's two passes over tensors that lie over several ranks: one owner a matrix."""

    def __init__(self, plan: Plan, geometry: Geometry, state: Any, copies: Any) -> None:
        self.spread, self.geometry, self.state = spread_of(plan, copies), geometry, state
        self.holds = any(atom.held_at < float("inf") for atom in plan.atoms)

    def measure_gradients(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector; no state is needed."""
        return self.spread.reduce(self.spread.squares(grads)).sqrt().to(plan.reach)

    def measure(self, grads: list[Tensor], plan: Plan) -> Any:
        """The norms of gradients, momenta and weights: one sum over the ranks."""
        from autogd.optim.turning import Norms

        momenta = [self.state[parameter]["momentum"] for parameter in plan.parameters]
        measured = [grads, momenta, plan.parameters] if self.holds else [grads, momenta]
        sums = self.spread.reduce(torch.stack([self.spread.squares(each).to(plan.reach) for each in measured]))
        weights = plan.per_owner(sums[2]).sqrt() if self.holds else torch.zeros_like(plan.weights)
        return Norms(sums[0].sqrt(), sums[1].sqrt(), weights)

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
        sizes_each, steps_each, keeps_each = sizes.split(plan.sizes), steps.unbind(), keeps.unbind()

        def prepare(number: int) -> Tensor:
            slope, held = local(grads[number]), local(self.state[plan.parameters[number]]["momentum"])
            sign = -1.0 if plan.own[number]["maximize"] else 1.0
            trusted = factor.to(slope.device)
            take: float | Tensor = 1 - MOMENTUM
            if not plan.looks:  # a gradient that is not finite changes nothing, and zero times it would not be zero
                slope = torch.where(trusted == 0, 0, slope)
                take = torch.where(trusted == 0, 0, 1 - MOMENTUM).to(accumulation_dtype(slope.dtype))
            return look_ahead(held.unsqueeze(0), slope.unsqueeze(0), sign * trusted, take)[0]

        def deliver(number: int, direction: Tensor) -> None:
            parameter = plan.parameters[number]
            weight, average = local(parameter), local(self.state[parameter]["average"])
            self.spread.scale_(number, direction, sizes_each[number].to(direction))
            step, keep = steps_each[number].to(weight.device), keeps_each[number].to(weight.device)
            dtype = accumulation_dtype(weight.dtype)
            # in half precision, a factor and a step would be too coarse one after the other
            moved = weight if weight.dtype == dtype else weight.to(dtype)
            moved.mul_(keep.to(dtype)).sub_(direction.to(dtype) * step.to(dtype))
            if moved is not weight:
                weight.copy_(moved)
            average.lerp_(weight.to(average.dtype), torch.where(step == 0, 0, share.to(step.device)).to(average.dtype))

        if self.geometry == "operator":
            self._by_gathering(prepare, deliver, plan)
        else:
            self.spread.directions(prepare, deliver, self.geometry == "spectral")

    def _by_gathering(self, prepare: Any, deliver: Any, plan: Plan) -> None:
        """Power iterations go on from a vector, which every rank keeps."""
        for number, parameter in enumerate(plan.parameters):
            state, atom = self.state[parameter], plan.atoms[number]
            full = gathered(prepare(number), parameter)
            direction, vector = unit_direction(full, atom, self.geometry, state.get("vector"), overwrite=True)
            if vector is not None:
                state["vector"] = vector
            deliver(number, part_of(direction, parameter))


def whole(tensor: Any) -> Tensor:
    """All of a DTensor, gathered from the processes; of a sparse tensor, the dense one; any other tensor itself."""
    if tensor.is_sparse:
        return tensor.to_dense()
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def gathered(piece: Tensor, like: Any) -> Tensor:
    """All of a tensor of which `piece` is here, cut as the DTensor `like` is; the piece itself where nothing is cut."""
    if piece_of(like) is None:
        return piece
    from torch.distributed.tensor import DTensor

    spread = DTensor.from_local(piece, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())
    return spread.full_tensor()


def part_of(full: Tensor, like: Any) -> Tensor:
    """This rank's piece of a whole tensor, cut as the DTensor `like` is."""
    piece = piece_of(like)
    if piece is None:
        return full
    found = full.new_empty(piece.size)
    for box in piece.boxes():
        box.of_piece(found).copy_(box.of_whole(full))
    return found
