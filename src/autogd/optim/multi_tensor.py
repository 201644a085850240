"""The two passes over the weights at the speed of memory: few calls, and no temporary the size of a tensor."""

from collections.abc import Iterator
from itertools import groupby

import torch
from torch import Tensor

from autogd.geometry.norms import accumulation_dtype, frobenius
from autogd.geometry.runs import runs
from autogd.geometry.squares import piecewise, squares_of_runs
from autogd.optim.plan import Plan

__all__ = ["MultiTensor"]

SMALL = 1 << 12  # tensors of fewer numbers are copied together, to be measured in one call
TOGETHER = 1 << 16  # so many numbers at a time
_BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}


class MultiTensor:
    """All tensors in one call, where they share a device; small ones of a shape are measured together.

    The plan has the tensors of one part first, and among these the small ones by shape; what belongs together is worked
    out once.
    """

    def __init__(self, plan: Plan) -> None:
        self.stacks: list[slice] = []
        small = [p for p in plan.parameters[: plan.whole] if p.numel() < SMALL and p.device.type == "cpu"]
        start = 0
        for _, alike in groupby(small, key=lambda p: (p.shape, p.dtype)):
            same = list(alike)
            most = max(1, TOGETHER // max(1, same[0].numel()))
            stop = start + len(same)
            self.stacks += [slice(at, min(at + most, stop)) for at in range(start, stop, most)]
            start = stop
        self.small = start
        # those that follow in one call, up to where each is better taken in pieces
        large = (at for at in range(start, plan.whole) if piecewise(plan.parameters[at]))
        self.middle = next(large, plan.whole)

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        norms = [_together(grads[stack]) for stack in self.stacks]
        if self.small < self.middle:
            norms.append(torch.stack(torch._foreach_norm(grads[self.small : self.middle], 2, plan.reach.dtype)))
        large, rest = grads[self.middle : plan.whole], self.middle
        if large and all(grad.is_contiguous() for grad in large):
            norms.append(squares_of_runs(large, plan.reach.dtype).sqrt_())
            rest = plan.whole
        norms += [frobenius(grad, atom) for grad, atom in zip(grads[rest:], plan.atoms[rest:], strict=True)]
        return torch.cat([norm.to(plan.reach.dtype) for norm in norms])

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        whole = plan.whole
        targets, slopes, factors = plan.parameters[:whole], grads[:whole], list(coefficients[:whole].unbind())
        each = zip(
            plan.parameters[whole:], grads[whole:], plan.atoms[whole:],
            coefficients[whole:].split(plan.sizes[whole:]), strict=True,
        )  # fmt: skip
        for parameter, grad, atom, c in each:
            target, slope = atom.cut(parameter), atom.cut(grad)
            lie = runs(target, atom) if slope.stride() == target.stride() else None
            targets.append(target if lie is None else lie.table(target))
            slopes.append(slope if lie is None else lie.table(slope))
            factors.append(atom.spread(c) if lie is None else lie.spread(c.to(parameter.dtype), atom))
        # what was measured last may still be in a cache: begin with it
        targets, slopes, factors = targets[::-1], slopes[::-1], factors[::-1]
        if finite is None:
            torch._foreach_addcmul_(targets, slopes, factors)
            return
        for some in _batches(slopes):
            torch._foreach_addcmul_(targets[some], _zero_unless(finite, slopes[some]), factors[some])

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        torch._foreach_mul_(plan.parameters, list(factors.unbind()))


def _together(grads: list[Tensor]) -> Tensor:
    """The norms of tensors of one shape, each of one part."""
    stack = torch.stack(grads).view(len(grads), -1)
    return torch.linalg.vector_norm(stack, dim=1, dtype=accumulation_dtype(stack.dtype))


def _batches(tensors: list[Tensor]) -> Iterator[slice]:
    """Cut a list so that a copy of a piece of it is small beside the whole: at most a twentieth, or one tensor."""
    most = sum(tensor.numel() for tensor in tensors) // 20
    start, held = 0, 0
    for at, tensor in enumerate(tensors):
        if at > start and held + tensor.numel() > most:
            yield slice(start, at)
            start, held = at, 0
        held += tensor.numel()
    yield slice(start, len(tensors))


def _zero_unless(finite: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """Copies of the tensors, or zeros, without looking which.

    Zero times a number that is not finite is not zero, but zero times its bits is.
    """
    bits = [tensor.view(_BITS[tensor.element_size()]) for tensor in tensors]
    kept = torch._foreach_mul(bits, [finite.to(bit.dtype) for bit in bits])
    return [keep.view(tensor.dtype) for keep, tensor in zip(kept, tensors, strict=True)]
