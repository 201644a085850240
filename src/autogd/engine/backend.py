"""How a step is carried out on tensors: the protocol that every backend follows.

A step has two stages. `measure` gives the rule the norms that it needs; `update` applies the step. The
backends are `single_tensor` (the reference, to be read), `foreach` (fast on any device), `native` (in C, on the CPU)
and `dtensor` (each process holds a slice). The tests compare all of them with the reference. To add
one, write a file here and choose it in `choose_backend` (`engine/steps.py`).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from autogd.engine.plan import Plan

__all__ = ["Average", "Backend", "Norms", "Step"]


class Norms(NamedTuple):
    """What the rule must know before anything moves."""

    gradients: Tensor  # per part: the norm of its gradient; for `spectral` without momentum the slope, the nuclear norm
    momenta: Tensor  # per part: the norm of its momentum; zero without momentum
    weights: Tensor  # per map: its norm; zero if none is held


class Average(NamedTuple):
    """How an average x moves with the weights y, one number a tensor.

    With D = y − x before the step: y ← y + along·D, then the step δ; x ← x + beside·D + share·δ.
    """

    along: Tensor | None  # None is zero, and `beside` is then `share`: x ← x + share·(y − x) after the step
    beside: Tensor
    share: Tensor


class Step(NamedTuple):
    """What the rule decided: W ← keep·W + coefficient·direction, and what becomes of momentum and average.

    Without momentum, coefficients are meant for gradients: a unit direction is multiplied by its slope as well.
    """

    coefficients: Tensor  # per part
    keeps: Tensor | None = None  # with momentum per part, since maps are held one by one; else per tensor; None is 1
    finite: Tensor | None = None  # false: nothing changes; None: checked already
    gradient_factor: Tensor | None = None  # what gradients are multiplied by before they join the momentum
    average: Average | None = None


class Backend(Protocol):
    """Carries out the steps of one plan."""

    plan: Plan

    def measure(self, grads: list[Tensor], momenta: Sequence[Tensor] = ()) -> Norms:
        """The norms of gradients, momenta and held weights."""

    def update(
        self, grads: list[Tensor], step: Step, momenta: Sequence[Tensor] = (), averages: Sequence[Tensor] = ()
    ) -> None:
        """Move every tensor, its momentum and its average; `grads` are those that were measured."""
