r"""From the gradient summary G to the learning rate η.

Lemma 5 bounds the objective after a step of relative size η by

.. math:: \mathcal{L} - \eta G + \tfrac12 (e^\eta - 1)^2,

and Theorem 2 minimises that bound. To add a loss, write its bound with the same interface and pass it as
`majorisation`: another bound is another optimiser.
"""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

__all__ = ["ExponentialMajorisation", "Majorisation"]


@runtime_checkable
class Majorisation(Protocol):
    """An upper bound on the change of the objective, and the step that minimises it."""

    def upper_bound(self, eta: Tensor, G: Tensor) -> Tensor:
        """The bound on the change of the objective after a step of relative size `eta`."""

    def learning_rate(self, G: Tensor) -> Tensor:
        """The minimiser of the bound, on the device of `G`."""


class ExponentialMajorisation:
    """Lemma 5 and Theorem 2: square loss, or cross-entropy to second order, on a deep network.

    >>> eta = ExponentialMajorisation().learning_rate(torch.tensor(2.0))
    >>> round(float(eta), 4)
    0.6931
    """

    def upper_bound(self, eta: Tensor, G: Tensor) -> Tensor:
        """Lemma 5's right-hand side, less the objective itself."""
        return 0.5 * torch.expm1(eta) ** 2 - eta * G

    def learning_rate(self, G: Any, xp: Any = torch) -> Any:
        """Theorem 2: eta = log((1 + sqrt(1 + 4G)) / 2), in a form that keeps its digits if G is small."""
        return xp.log1p(G / (0.5 + xp.sqrt(G + 0.25)))
