"""What the last step did, tensor by tensor: computed on request, from what the step keeps anyway."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from autogd.engine.plan import Plan

__all__ = ["LastStep"]


@dataclass(frozen=True, eq=False)
class LastStep:
    r"""One step; all numbers are 0-d tensors on the parameters' device.

    Args:
        learning_rate: η.
        gradient_summary: G.
        names: of the tensors that took part, in the plan's order.

    >>> from autogd import AGD
    >>> model = torch.nn.Linear(4, 2, bias=False)
    >>> optimiser = AGD(model)
    >>> model(torch.randn(8, 4)).square().mean().backward()
    >>> optimiser.step()
    >>> step = optimiser.last_step
    >>> bool(step.dual_norms["weight"] == step.gradient_summary)  # one layer: L = 1
    True
    >>> bool(step.update_sizes["weight"] == step.learning_rate)
    True
    """

    learning_rate: Tensor
    gradient_summary: Tensor
    names: tuple[str, ...]
    _plan: Plan = field(repr=False)
    _summary: Any = field(repr=False)  # `autogd.optim.rule.Summary`
    _multipliers: Any = field(repr=False)  # per tensor, or one for all: the step multiplier of its group

    @cached_property
    def dual_norms(self) -> dict[str, Tensor]:
        """What each tensor's gradient adds to L·G: its parts' dual norms, times scale and share of the depth."""
        return dict(zip(self.names, self._plan.sums(self._summary.duals).unbind(), strict=True))

    @cached_property
    def update_sizes(self) -> dict[str, Tensor]:
        """How far each tensor moved, in units of its target size: its largest part counts, and all have the same."""
        moved = self._plan.sums(self._summary.moving.to(self._summary.duals.dtype))
        sizes = self.learning_rate / self._summary.depth * self._plan.depth_shares * abs(self._multipliers)
        return dict(zip(self.names, torch.where(moved > 0, sizes, 0).unbind(), strict=True))
