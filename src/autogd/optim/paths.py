"""The two passes over the weights, measure and apply, written twice: to be read, and to be fast.

Both take and give one number a part, in the plan's order; the tests hold them equal to rounding.
"""

from typing import Protocol

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.geometry.norms import frobenius
from autogd.optim.plan import Plan

__all__ = ["MultiTensor", "Path", "Readable", "over_parts"]


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


class Readable:
    """One tensor at a time, each wherever it lives."""

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        norms = [frobenius(grad, atom) for grad, atom in zip(grads, plan.atoms, strict=True)]
        return torch.cat([norm.flatten().to(plan.scales) for norm in norms])

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        each = coefficients.split(plan.sizes)
        for parameter, grad, atom, c in zip(plan.parameters, grads, plan.atoms, each, strict=True):
            update = atom.cut(grad) * over_parts(c.to(parameter.device), atom)
            if finite is not None:
                update = torch.where(finite.to(parameter.device), update, 0)
            atom.cut(parameter).add_(update)

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        for parameter, factor in zip(plan.parameters, factors.expand(len(plan.parameters)), strict=True):
            parameter.mul_(factor.to(parameter.device))


class MultiTensor:
    """All tensors in one call, and no temporary the size of a tensor."""

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        # the plan has the tensors of one part first
        whole, cut = grads[: plan.whole], grads[plan.whole :]
        norms = [frobenius(grad, atom).flatten() for grad, atom in zip(cut, plan.atoms[plan.whole :], strict=True)]
        if whole:
            norms.insert(0, torch.stack(torch._foreach_norm(whole, 2, plan.scales.dtype)))
        return torch.cat([norm.to(plan.scales.dtype) for norm in norms])

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
        torch._foreach_mul_(plan.parameters, list(factors.expand(len(plan.parameters)).unbind()))


def over_parts(values: Tensor, atom: Atom) -> Tensor:
    """One number a part, shaped to multiply the cut tensor."""
    return values.view([1 if i in atom.inner else n for i, n in enumerate(atom.shape)] if atom.parts > 1 else [])
