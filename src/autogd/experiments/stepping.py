"""One step of any optimiser on one batch."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from autogd import baselines

__all__ = ["take_step"]


def take_step(
    model: nn.Module, optimiser: baselines.Optimiser, loss: Callable[[], Tensor], clip: float | None = None
) -> float:
    """Take a step and return the loss before it; infinite if the optimiser refused gradients that are not finite.

    Args:
        model: its gradients are cleared first.
        optimiser: any optimiser.
        loss: of a batch.
        clip: the largest norm of the gradients; None for no clipping.

    >>> model = nn.Linear(1, 1)
    >>> take_step(model, torch.optim.SGD(model.parameters()), lambda: model(torch.ones(1, 1)).sum() * 0 + 2)
    2.0
    """

    def closure() -> Tensor:
        if torch.is_grad_enabled():
            model.zero_grad(set_to_none=True)
        value = loss()
        if torch.is_grad_enabled():
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
        return value

    try:
        return float(optimiser.step(closure).detach())
    except ValueError as error:
        if "no weight was changed" not in str(error):
            raise
        return math.inf
