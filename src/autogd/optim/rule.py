r"""Theorem 2: from the norm of every part's gradient to G, η and the step of every part.

Plain operators and a namespace argument, `xp`, serve PyTorch and JAX alike.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch

__all__ = [
    "Others", "Parts", "Summary", "above_noise_floor", "affordable", "decayed", "held", "summarise", "theorem_2",
    "total",
]  # fmt: skip

ROW = 1 << 10  # numbers that are added up on one thread


class Parts(Protocol):
    """What the rule knows of the tensors and their parts: vectors, of torch or JAX."""

    depth: float  # L
    depth_shares: Any  # of each tensor, in layers
    reach: Any  # of each part: scale × depth share, what it moves by at η/L = 1
    speaks_for: Any  # of each part: parts of its tensor / depth share; estimates the tensor's dual norm from one part
    noise: Any  # of each part of a bias without a mate: the share of the largest dual norm that rounding can produce
    mate: Any  # of each part of a bias: the index of the matching part of its weight; None if there is no bias
    mate_noise: Any  # the share of that part's dual norm that rounding can produce
    totals: Callable[[Any], Any] | None  # sums per-part values within each tensor; None if each tensor is one part


class Others(Protocol):
    """Who holds other parts of the same model: sums and maxima then run over all of them."""

    @property
    def shares(self) -> Any:
        """Of each part here: one over how many hold it."""

    @property
    def depth(self) -> Any:
        """What the parts here add to L."""

    def sum(self, values: Any) -> Any:
        """The sum over all."""

    def max(self, value: Any) -> Any:
        """The largest of all."""


class Summary(NamedTuple):
    """The gradients of a step, summarised."""

    G: Any
    duals: Any  # of each part: scale × depth share × the norm of its gradient
    active: Any  # of each part: whether it is above the noise floor, and so moves
    finite: Any
    depth: Any  # L


def summarise(norms: Any, parts: Parts, xp: Any = torch, others: Others | None = None) -> Summary:
    """G = (1/L) Σ √(d_k/d_(k-1)) ‖∇_k‖_F over the parts above the noise floor; vectors count with their depth share."""
    duals = parts.reach * norms
    active = above_noise_floor(duals, parts, xp, others)
    here = xp.where(active, duals, 0)
    if others is None:
        finite = duals.sum() < xp.inf  # nan is not less than anything
        return Summary(total(here) / parts.depth, duals, active, finite, parts.depth)
    sums = xp.stack([others.depth, total(others.shares * here), (others.shares * duals).sum()])
    depth, all_here, all_duals = others.sum(sums)
    return Summary(all_here / depth, duals, active, all_duals < xp.inf, depth)


def total(values: Any) -> Any:
    """The sum, in an order that does not depend on the number of threads: torch splits a long vector among them."""
    whole = len(values) // ROW * ROW
    return values[:whole].reshape(-1, ROW).sum(1).sum() + values[whole:].sum() if whole > ROW else values.sum()


def above_noise_floor(duals: Any, parts: Parts, xp: Any = torch, others: Others | None = None) -> Any:
    """Which parts' gradients stand out from rounding.

    A bias in front of a norm layer, or of the keys of attention, has no effect. Its gradient is a sum whose terms
    cancel, and rounding leaves a rest of about eps times the size of the terms; to normalise the rest would turn noise
    into a full-size step. The gradient of the same layer's weight is made of the same terms, without cancelling: it is
    what a bias is measured by. Any other gradient is accurate beside its own size, however small it is beside others
    (`benchmarks/noise_floor.py`: 14 architectures, errors below 1e-6 at 2e-10 of the largest), and counts.
    """
    # times the number of its siblings, a part speaks for its whole tensor
    sizes = duals * parts.speaks_for
    largest = sizes.max() if parts.totals is None else (parts.totals(duals) / parts.depth_shares).max()
    active = sizes > parts.noise * (largest if others is None else others.max(largest))
    if parts.mate is not None:
        active &= sizes > parts.mate_noise * sizes[parts.mate]
    return active


def theorem_2(
    norms: Any, parts: Parts, learning_rate: Callable[[Any], Any], xp: Any = torch, others: Others | None = None
) -> tuple[Any, Any, Summary]:
    """η, what every part's gradient is multiplied by, and the summary.

    >>> from types import SimpleNamespace
    >>> one = torch.ones(1)
    >>> layer = SimpleNamespace(depth=1, depth_shares=one, reach=one, speaks_for=one, noise=0, mate=None, totals=None)
    >>> eta, coefficients, _ = theorem_2(2 * one, layer, lambda G: torch.log((1 + (1 + 4 * G).sqrt()) / 2))
    >>> round(float(eta), 4), round(float(coefficients[0]), 4)
    (0.6931, -0.3466)
    """
    summary = summarise(norms, parts, xp, others)
    eta = learning_rate(summary.G)
    # ΔW_k = −(η/L) √(d_k/d_(k-1)) ∇_k/‖∇_k‖_F
    return eta, xp.where(summary.active, parts.reach / norms, 0) * (eta / -summary.depth), summary


def decayed(moves: Any, decay: Any, xp: Any = torch) -> Any:
    """The factor that weight decay multiplies a tensor by; λ = 1 keeps it within its target size.

    >>> decayed(torch.tensor([0.1, 20.0]), 1.0)
    tensor([0.9000, 0.0000])
    """
    return xp.clip(1 - moves * decay, min=0)


def affordable(moves: Any, decay: Any, xp: Any = torch) -> Any:
    """The share of a step that λη/L ≤ 1 leaves: with a longer one a weight would end above 1/λ times its target size.

    >>> affordable(torch.tensor([0.1, 20.0]), 1.0)
    tensor([1.0000, 0.0500])
    """
    return 1 / xp.clip(moves * decay, min=1)


def held(norms: Any, held_at: Any, moves: Any, xp: Any = torch) -> Any:
    """The factor that brings a hidden matrix back to Prescription 1's size, by no more than its step `moves`.

    >>> held(torch.tensor([1.0, 2.0, 2.0]), torch.tensor([2.0, 1.0, 1.9]), torch.tensor(0.1))
    tensor([1.0000, 0.9000, 0.9500])
    """
    return xp.where(norms > held_at, xp.maximum(held_at / norms, 1 - moves), 1)
