"""How far a step moves the weights: ‖ΔW_k‖_F / ‖W_k‖_F, averaged over the layers.

Measured from the weights before and after a step, so it is the same quantity for every optimiser. It costs a copy of
the weights and two passes over them, so the loop measures only some steps.
"""

import torch
from torch import Tensor, nn

from autogd.training.distributed import Place, local

__all__ = ["UpdateSize"]


class UpdateSize:
    """Copies the weights before a step, and measures the update after it.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> ruler = UpdateSize(model, Place())
    >>> with torch.no_grad():
    ...     _ = model.weight.mul_(1.5)
    >>> round(float(ruler.read()), 4)
    0.5
    """

    def __init__(self, model: nn.Module, place: Place) -> None:
        # without vectors: a bias may be zero, and then the relative size is infinite
        self.weights = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
        self.spread = any(local(p) is not p for p in self.weights)
        self.place = place
        with torch.no_grad():
            self.before = [local(p).detach().clone() for p in self.weights]
            self.sizes = _norms(self.before)

    @torch.no_grad()
    def read(self) -> Tensor:
        """The relative size of the update, on the device. Call it once: it overwrites the copy."""
        if not self.weights:
            return torch.zeros((), device=self.place.device)
        torch._foreach_sub_(self.before, [local(p) for p in self.weights])
        norms = torch.stack([_norms(self.before), self.sizes])
        if self.spread:
            norms = self.place.sum(norms.square()).sqrt()
        change, size = norms.unbind()
        known = size > 0
        return torch.where(known, change / size, 0).sum() / known.sum().clamp(min=1)


def _norms(tensors: list[Tensor]) -> Tensor:
    return torch.stack(torch._foreach_norm(tensors)) if tensors else torch.zeros(0)
