"""The fast backend of torch's operations: few calls, and no temporary the size of all weights."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from autogd.engine.backend import Norms, SingleTensor, Step
from autogd.engine.bundles import PIECES, ROOM, Bundle, alike, bundles
from autogd.engine.layout import piecewise, runs, squares
from autogd.engine.plan import Plan
from autogd.geometry.direction import Geometry

__all__ = ["Foreach"]

SMALL = 1 << 12  # tensors of fewer numbers are stacked, to be measured in one call
STACKED = 1 << 16  # so many numbers at a time
_BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}


class Foreach(SingleTensor):
    """All tensors in few calls; they share a device. The plan has those of one part first, the small ones by shape."""

    def __init__(self, plan: Plan, geometry: Geometry, momentum: float = 0.0) -> None:
        super().__init__(plan, geometry, momentum)
        self.bundles = bundles(plan, geometry) if momentum else []
        small = [w for w in plan.weights[: plan.whole] if w.numel() < SMALL and w.device.type == "cpu"]
        self.stacks, self.small = list(alike(small, [(w.shape, w.dtype) for w in small], STACKED)), len(small)
        # tensors from `small` to `middle` are measured in one call; those after it, in pieces
        large = (at for at in range(self.small, plan.whole) if piecewise(plan.weights[at]))
        self.middle = next(large, plan.whole)

    def measure(self, grads: list[Tensor], momenta: Sequence[Tensor] = ()) -> Norms:
        """The norms of gradients, momenta and held weights."""
        if self.geometry == "spectral" and not self.momentum:
            return super().measure(grads)
        plan, none = self.plan, self.plan.reach.new_zeros(())
        weights = plan.map_sums(self.norms(plan.weights).square()).sqrt() if momenta and plan.holds else none
        return Norms(self.norms(grads), self.norms(momenta) if momenta else none, weights)

    def norms(self, tensors: Sequence[Tensor]) -> Tensor:
        """The Frobenius norm of every part, as one vector."""
        plan, dtype, tensors = self.plan, self.plan.reach.dtype, list(tensors)
        norms = []
        for stack in self.stacks:
            flat = torch.stack(tensors[stack]).view(stack.stop - stack.start, -1)
            norms.append(torch.linalg.vector_norm(flat, dim=1, dtype=dtype))
        if self.small < self.middle:
            norms.append(torch.stack(torch._foreach_norm(tensors[self.small : self.middle], 2, dtype)))
        rest = zip(tensors[self.middle :], plan.atoms[self.middle :], strict=True)
        return torch.cat(norms + [squares(each, atom, dtype).sqrt() for each, atom in rest])

    def update(
        self, grads: list[Tensor], step: Step, momenta: Sequence[Tensor] = (), averages: Sequence[Tensor] = ()
    ) -> None:
        """Move every tensor, its momentum and its average."""
        if self.momentum:
            coefficients = step.coefficients
            if step.finite is not None:
                coefficients = torch.where(step.finite, coefficients, 0)
            assert step.keeps is not None
            parts = [bundle.batch[0] for bundle in self.bundles]
            each = zip(self.bundles, coefficients.split(parts), step.keeps.split(parts), strict=True)
            for bundle, some, keeps in each:
                self._move_bundle(bundle, some, keeps, grads, step, momenta, averages)
            return
        half = any(weight.dtype.itemsize == 2 for weight in self.plan.weights)
        if self.directions or (averages and half):
            super().update(grads, step, momenta, averages)
            return
        if step.average is not None:
            self._mix(step, averages)
        if step.keeps is not None:
            torch._foreach_mul_(self.plan.weights, list(step.keeps.unbind()))
        self._add(self.plan.weights, grads, step.coefficients, step.finite)
        if step.average is not None:
            self._add(list(averages), grads, step.average.share[self.plan.owner] * step.coefficients, step.finite)

    def _move_bundle(
        self, bundle: Bundle, coefficients: Tensor, keeps: Tensor, grads: list[Tensor], step: Step,
        momenta: Sequence[Tensor], averages: Sequence[Tensor],
    ) -> None:  # fmt: skip
        """Momentum, direction, weights and averages of the tensors of a bundle."""
        where, rows = bundle.where, bundle.rows
        slopes, held, weights, means = (
            list(each[where]) if rows is None else [tensor.narrow(0, *rows) for tensor in each[where]]
            for each in (grads, momenta, self.plan.weights, averages)
        )
        slope, momentum = _stack(slopes), _stack(held)
        ahead = self._look_ahead(momentum, slope, step)
        if len(held) > 1:
            torch._foreach_copy_(held, list(momentum.unbind()))
        parts = ahead.view(bundle.shape).permute(bundle.order).reshape(bundle.batch)
        for some in parts.split(max(1, ROOM // max(1, parts[0].numel()))) if len(parts) > 1 else (parts,):
            some.copy_(bundle.direction(some))
        parts.mul_(coefficients.to(parts).view(-1, 1, 1))
        changes = parts.reshape([bundle.shape[i] for i in bundle.order]).permute(bundle.back).reshape(slope.shape)
        assert step.average is not None
        each = zip(weights, means, changes.unbind(), keeps.to(parts).view(bundle.each).unbind(), strict=True)
        for at, (weight, mean, change, keep) in enumerate(each, where.start):
            # in half precision, round once, after the factor and the step
            moved = weight if weight.dtype == change.dtype else weight.to(change.dtype)
            moved.view(bundle.shape[1:]).mul_(keep)
            moved.add_(change)
            if moved is not weight:
                weight.copy_(moved)
            mean.lerp_(weight.to(mean.dtype), step.average.share[at].to(mean))

    def _look_ahead(self, momentum: Tensor, grad: Tensor, step: Step) -> Tensor:
        """Renew the momentum of stacked tensors, and return Nesterov's view of it; chunked to fit a cache."""
        wide = torch.promote_types(grad.dtype, torch.float32)
        ahead = torch.empty_like(grad, dtype=wide)
        assert step.gradient_factor is not None
        gradient_factor = step.gradient_factor.to(grad.device, wide)
        dim = min(1, ahead.dim() - 1)  # the first counts the tensors of the stack
        rows = max(1, ahead.shape[dim] * max(ROOM, ahead.numel() // PIECES) // max(1, ahead.numel()))
        for some, kept, slope in zip(*(each.split(rows, dim) for each in (ahead, momentum, grad)), strict=True):
            some.copy_(kept)
            fresh = slope.to(wide) * gradient_factor
            if step.finite is not None:  # zero times a number that is not finite is not zero
                fresh = torch.where(step.finite.to(grad.device), fresh, some)
            kept.copy_(some.lerp_(fresh, 1 - self.momentum))
            some.lerp_(fresh, 1 - self.momentum)
        return ahead

    def _mix(self, step: Step, averages: Sequence[Tensor]) -> None:
        """Move weights and averages along their difference, and decay the averages in proportion; in place."""
        average = step.average
        assert average is not None
        assert average.along is not None
        for i, (weight, mean) in enumerate(zip(self.plan.weights, averages, strict=True)):
            weight.lerp_(mean, -average.along[i].to(weight))
            # the line before has lengthened y − x
            mean.lerp_(weight, (average.beside[i] / (1 + average.along[i])).to(mean))
            if step.keeps is not None:
                mean.addcmul_(weight, (average.share[i] * (step.keeps[i] - 1)).to(mean))

    def _add(self, targets: list[Tensor], grads: list[Tensor], coefficients: Tensor, finite: Tensor | None) -> None:
        """Add to every part of the targets its gradient times its coefficient; nothing at all if `finite` is false."""
        plan, whole = self.plan, self.plan.whole
        into, slopes, factors = targets[:whole], grads[:whole], list(coefficients[:whole].unbind())
        each = zip(
            targets[whole:], grads[whole:], plan.atoms[whole:],
            coefficients[whole:].split(plan.sizes[whole:]), strict=True,
        )  # fmt: skip
        for tensor, grad, atom, c in each:
            target, slope = atom.cut(tensor), atom.cut(grad)
            layout = runs(target, atom) if slope.stride() == target.stride() else None
            into.append(target if layout is None else layout.table(target))
            slopes.append(slope if layout is None else layout.table(slope))
            factors.append(atom.spread(c) if layout is None else layout.spread(c.to(tensor.dtype), atom))
        # start with what was measured last: it may still be in a cache
        into, slopes, factors = into[::-1], slopes[::-1], factors[::-1]
        if finite is None:
            torch._foreach_addcmul_(into, slopes, factors)
            return
        for some in _batches(slopes):
            torch._foreach_addcmul_(into[some], _zero_unless(finite, slopes[some]), factors[some])


def _stack(tensors: list[Tensor]) -> Tensor:
    """Tensors of one shape, stacked; a view if there is one only."""
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(tensors)


def _batches(tensors: list[Tensor]) -> Iterator[slice]:
    """Cut a list into batches, each small enough to copy: at most a twentieth of all numbers, or one tensor."""
    most = sum(tensor.numel() for tensor in tensors) // 20
    start, held = 0, 0
    for at, tensor in enumerate(tensors):
        if at > start and held + tensor.numel() > most:
            yield slice(start, at)
            start, held = at, 0
        held += tensor.numel()
    yield slice(start, len(tensors))


def _zero_unless(finite: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """Copies of the tensors, or zeros, without waiting for the device.

    Zero times a number that is not finite is not zero, but zero times its bits is.
    """
    bits = [tensor.view(_BITS[tensor.element_size()]) for tensor in tensors]
    kept = torch._foreach_mul(bits, [finite.to(bit.dtype) for bit in bits])
    return [keep.view(tensor.dtype) for keep, tensor in zip(kept, tensors, strict=True)]
