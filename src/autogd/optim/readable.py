"""The two passes over the weights, measure and apply, written to be read: the reference for the fast ones."""

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.geometry.norms import accumulation_dtype, frobenius
from autogd.optim.plan import Plan

__all__ = ["Readable", "masked"]


class Readable:
    """One tensor at a time, each wherever it lives."""

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        return torch.cat([_norms(grad, atom).to(plan.reach) for grad, atom in zip(grads, plan.atoms, strict=True)])

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        each = coefficients.split(plan.sizes)
        for parameter, grad, atom, c in zip(plan.parameters, grads, plan.atoms, each, strict=True):
            c = c.to(parameter.device)
            if grad.is_sparse:
                rows = grad._indices()[0]
                update = grad._values() * c[rows].unsqueeze(1)
                parameter.index_add_(0, rows, masked(update, finite).to(parameter.dtype))
            else:
                atom.cut(parameter).add_(masked(atom.cut(grad) * atom.spread(c), finite))

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        for parameter, factor in zip(plan.parameters, factors, strict=True):
            parameter.mul_(factor.to(parameter.device))


def masked(update: Tensor, finite: Tensor | None) -> Tensor:
    """The update, or zero where the gradients are not finite: zero times such a gradient would not be zero."""
    return update if finite is None else torch.where(finite.to(update.device), update, 0)


def _norms(grad: Tensor, atom: Atom) -> Tensor:
    if grad.is_sparse:
        return frobenius(grad, atom)
    return torch.linalg.vector_norm(atom.cut(grad), dim=atom.inner, dtype=accumulation_dtype(grad.dtype)).flatten()
