"""How far a step moves the weights: ‖ΔW_k‖_F / ‖W_k‖_F, averaged over the layers.

Measured from the weights before and after a step, so that it is the same quantity for every optimiser. It costs a copy
of the weights and two passes over them, which is why a loop measures it on a sample of its steps.
"""

import torch
from torch import Tensor, nn

from autogd.training.distributed import Place, local

__all__ = ["UpdateSize"]


class UpdateSize:
    """A ruler laid at the weights before a step and read after it.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> ruler = UpdateSize(model, Place())
    >>> with torch.no_grad():
    ...     _ = model.weight.mul_(1.5)
    >>> round(float(ruler.read()), 4)
    0.5
    """

    def __init__(self, model: nn.Module, place: Place) -> None:
        # vectors are left out: a bias may be zero, and then no step is small beside it
        self.weights = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
        self.spread = any(local(p) is not p for p in self.weights)
        self.place = place
        with torch.no_grad():
            self.before = [local(p).detach().clone() for p in self.weights]

    @torch.no_grad()
    def read(self) -> Tensor:
        """The relative size of the update, on the device."""
        if not self.weights:
            return torch.zeros((), device=self.place.device)
        moved = torch._foreach_sub([local(p) for p in self.weights], self.before)
        squares = torch.stack([torch.stack(torch._foreach_norm(list(x))) for x in (moved, self.before)]).square()
        if self.spread:
            squares = self.place.sum(squares)
        change, size = squares.sqrt().unbind()
        known = size > 0
        return torch.where(known, change / size, 0).sum() / known.sum().clamp(min=1)
