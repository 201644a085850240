r"""Theorem 2: from the norm of every part's gradient to G, η and the step of every part.

Plain operators and a namespace argument, `xp`, serve PyTorch and JAX alike.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch

__all__ = [
    "Parts", "Summary", "above_noise_floor", "decay_factor", "hold_factor", "limit_factor", "summarise", "theorem_2",
    "total",
]  # fmt: skip

ROW = 1 << 10  # values in each partial sum, which one thread takes


class Parts(Protocol):
    """What the rule knows of the tensors and their parts: vectors, of torch or JAX."""

    depth: float  # L
    depth_shares: Any  # of each tensor, in layers
    reach: Any  # of each part: scale × depth share, the size of its step if η/L = 1
    part_to_tensor: Any  # of each part: parts of its tensor / depth share; brings its dual norm to the tensor's level
    noise_floor: Any  # of each part: the share of the largest dual norm that rounding can produce
    own_weight: Any  # of each part: the index of the part to compare it with, a bias with its weight; or None
    own_weight_floor: Any  # the share of that part's dual norm that rounding can produce
    totals: Callable[[Any], Any] | None  # sums per-part values within each tensor; None if each tensor is one part
    others: Any  # the ranks that hold other parts of the model (`Others` in `engine/distributed/ranks.py`), or None


class Summary(NamedTuple):
    """The gradients of a step, summarised."""

    G: Any
    duals: Any  # of each part: scale × depth share × the norm of its gradient
    active: Any  # of each part: whether it is above the noise floor; the others do not move
    finite: Any  # whether all norms are finite
    depth: Any  # L, of the whole model


def theorem_2(
    norms: Any, parts: Parts, learning_rate: Callable[[Any], Any], xp: Any = torch
) -> tuple[Any, Any, Summary]:
    """η, the coefficient of every part's gradient (which also divides it by its norm), and the summary.

    >>> from types import SimpleNamespace as Layer
    >>> one = torch.ones(1)
    >>> layer = Layer(depth=1, reach=one, part_to_tensor=one, noise_floor=0, own_weight=None, totals=None, others=None)
    >>> eta, coefficients, _ = theorem_2(2 * one, layer, lambda G: torch.log((1 + (1 + 4 * G).sqrt()) / 2))
    >>> round(float(eta), 4), round(float(coefficients[0]), 4)
    (0.6931, -0.3466)
    """
    summary = summarise(norms, parts, xp)
    eta = learning_rate(summary.G)
    # ΔW_k = −(η/L) √(d_k/d_(k-1)) ∇_k/‖∇_k‖_F
    ratios = xp.nan_to_num(parts.reach / norms)  # over a subnormal norm it is infinite, and infinity × 0 is nan
    return eta, xp.where(summary.active, ratios, 0) * (eta / -summary.depth), summary


def summarise(norms: Any, parts: Parts, xp: Any = torch) -> Summary:
    """G = (1/L) Σ √(d_k/d_(k-1)) ‖∇_k‖_F over the parts above the noise floor; each with its depth share."""
    duals = parts.reach * norms
    active = above_noise_floor(duals, parts)
    here, others = xp.where(active, duals, 0), parts.others
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


def above_noise_floor(duals: Any, parts: Parts) -> Any:
    """Which parts have a gradient above rounding.

    A bias in front of a norm layer, or of the keys of attention, has no effect. Its gradient is a sum whose terms
    cancel, and rounding leaves about eps times the size of the terms. To normalise that would turn noise into a
    full-size step. The gradient of the same layer's weight is made of the same terms, which do not cancel there, so a
    bias is compared with its weight. Any other gradient is accurate relative to its own size, however small it is
    (`benchmarks/noise_floor.py gradients`: 14 architectures, off by less than 1e-6 at 2e-10 of the largest) and counts.
    """
    sizes = duals * parts.part_to_tensor
    tensors = sizes if parts.totals is None else parts.totals(duals) / parts.depth_shares
    largest = tensors.max() if parts.others is None else parts.others.max(tensors)
    above = sizes > parts.noise_floor * largest
    if parts.own_weight is not None:
        above &= sizes > parts.own_weight_floor * sizes[parts.own_weight]
    return above


def decay_factor(moves: Any, decay: Any, xp: Any = torch) -> Any:
    """The factor of weight decay λ for a tensor that the step moves by `moves` of its size.

    >>> decay_factor(torch.tensor([0.1, 20.0]), 1.0)
    tensor([0.9000, 0.0000])
    """
    return xp.clip(1 - moves * decay, min=0)


def limit_factor(moves: Any, decay: Any, xp: Any = torch) -> Any:
    """The factor of weight decay λ for the step itself: no weight ends above 1/λ times its target size.

    >>> limit_factor(torch.tensor([0.1, 20.0]), 1.0)
    tensor([1.0000, 0.0500])
    """
    return 1 / xp.clip(moves * decay, min=1)


def hold_factor(norms: Any, held_at: Any, moves: Any, xp: Any = torch) -> Any:
    """The factor that brings a hidden matrix back to Prescription 1's size, by no more than its step `moves`.

    >>> hold_factor(torch.tensor([1.0, 2.0, 2.0]), torch.tensor([2.0, 1.0, 1.9]), torch.tensor(0.1))
    tensor([1.0000, 0.9000, 0.9500])
    """
    return xp.where(norms > held_at, xp.maximum(held_at / norms, 1 - moves), 1)
