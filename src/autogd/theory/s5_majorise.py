r"""From two bounds to an optimiser: majorise, then minimise.

A loss gives B, an upper bound on its Bregman divergence as a function of the size of Δf; an architecture gives φ, an
upper bound on that size as a function of η. Under Assumption 1, and for steps along AGD's directions,

.. math:: \mathcal{L}(w + \Delta w) \le \mathcal{L}(w) - \eta G + B(\varphi(\eta)),

and the learning rate is the η that minimises the right-hand side. With square loss and a plain stack of layers B is
s²/2, φ is e^η − 1, and that is Lemma 5 and Theorem 2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from autogd.optim.bound import ExponentialMajorisation, Majorisation
from autogd.theory.s1_losses import CappedQuadratic, Loss, find_loss, square
from autogd.theory.s4_bound import Bound
from autogd.theory.s4_network import NetworkBound, perturbation_bound

__all__ = ["CappedExponentialMajorisation", "FunctionalMajorisation", "Polynomial", "exponential", "majorise"]

Curve = Callable[[Tensor], Tensor]
"""A differentiable elementwise function of one number."""


def exponential(eta: Tensor) -> Tensor:
    """Lemma 4 under Prescription 1, at any depth: the root-mean-square of Δf is at most e^η − 1.

    >>> float(exponential(torch.tensor(0.0)))
    0.0
    """
    return torch.expm1(eta)


def majorise(
    loss: Loss | str | Curve | None = None,
    architecture: NetworkBound | nn.Module | Curve | None = None,
) -> Majorisation:
    """Derive an optimiser's learning rate from a bound on the loss and a bound on the network.

    Args:
        loss: a `Loss`, the name of one, or just a bound: from the size of Δf to the Bregman divergence. None is square.
        architecture: the result of `perturbation_bound`, or a Module (its weights taken at the sizes that `initialise_`
            gives them); or just a bound: from η to the root-mean-square of Δf. None is a plain stack of any depth.

    >>> float(majorise().learning_rate(torch.tensor(2.0))) == float(torch.tensor(2.0).log())
    True
    >>> import autogd
    >>> rule = majorise(loss=lambda s: s**4 + s**2 / 2, architecture=lambda eta: 3 * eta)
    >>> optimiser = autogd.AGD(nn.Linear(4, 2, bias=False), majorisation=rule)
    """
    if isinstance(loss, str):
        loss = find_loss(loss)
    bound = square.bound if loss is None else loss.bound if isinstance(loss, Loss) else loss
    if isinstance(architecture, nn.Module):
        architecture = perturbation_bound(architecture, sizes="prescribed")
    if isinstance(architecture, Bound):
        raise TypeError("architecture: a Bound is in norms and knows no depth; pass a NetworkBound")
    change = Polynomial(architecture.coefficients()) if isinstance(architecture, NetworkBound) else architecture
    if change is None or change is exponential:
        if isinstance(bound, CappedQuadratic):
            plain = bound.curvature == 1 and math.isinf(bound.width)
            return ExponentialMajorisation() if plain else CappedExponentialMajorisation(bound)
        change = exponential
    return FunctionalMajorisation(bound, change)


@dataclass(frozen=True)
class CappedExponentialMajorisation:
    r"""A capped quadratic of e^η − 1, minimised in closed form: Huber, logistic and margin losses on a plain stack.

    With curvature c and width w the slope of the bound is c e^η min(e^η − 1, w), which equals G at Theorem 2's
    η(G/c) while G/c ≤ w(1 + w), and at log(G/(c w)) beyond.

    >>> from autogd.theory.s1_losses import huber
    >>> rule = majorise(loss=huber(0.25))
    >>> round(float(rule.learning_rate(torch.tensor(2.0))), 4)  # log(2/0.5)
    1.3863
    """

    bound: CappedQuadratic

    def upper_bound(self, eta: Tensor, G: Tensor) -> Tensor:
        """The bound on the change of the objective after a step of relative size `eta`."""
        return self.bound(torch.expm1(eta)) - eta * G

    def learning_rate(self, G: Tensor) -> Tensor:
        """The minimiser of the bound."""
        g, width = G / self.bound.curvature, self.bound.width
        inner = torch.log1p(2 * g / (1 + torch.sqrt(1 + 4 * g)))
        if math.isinf(width):
            return inner
        return torch.where(g <= width * (1 + width), inner, torch.log(g / width))


@dataclass(frozen=True)
class Polynomial:
    """Σ c_j η^j, on the device of η.

    >>> float(Polynomial(torch.tensor([1.0, 2.0, 3.0]))(torch.tensor(2.0)))
    17.0
    """

    coefficients: Tensor
    _placed: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    def __call__(self, eta: Tensor) -> Tensor:
        """The value at the given points, elementwise."""
        key = (eta.device, eta.dtype)
        if key not in self._placed:
            coefficients = self.coefficients.to(eta)
            self._placed[key] = coefficients, torch.arange(len(coefficients)).to(coefficients)
        coefficients, powers = self._placed[key]
        # a few large operations instead of Horner's many small ones: this runs at every training step
        return (eta.unsqueeze(-1) ** powers * coefficients).sum(-1)


# Brackets for the minimiser, each 2^(1/16) wide. The slope of the bound at their ends does not depend on G and is
# computed once; the chord in a bracket starts within 1e-3 of the root, so three Newton steps reach full precision.
_GRID = torch.tensor([0.0] + [2.0 ** (power / 16) for power in range(-640, 161)], dtype=torch.float64)
_NEWTON_STEPS = 3


@dataclass(frozen=True)
class FunctionalMajorisation:
    """Any convex bound on Δ𝓛, minimised by a fixed number of Newton steps within a bracket.

    Args:
        bound: from the size of Δf to an upper bound on the loss's Bregman divergence.
        change: from η to an upper bound on the size of Δf.

    >>> rule = FunctionalMajorisation(lambda s: s**2 / 2, exponential)
    >>> round(float(rule.learning_rate(torch.tensor(2.0, dtype=torch.float64))), 12) == round(math.log(2.0), 12)
    True
    """

    bound: Curve
    change: Curve
    _slopes: Tensor = field(init=False, repr=False)
    _placed: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        slopes = self._slope(_GRID)[0].nan_to_num(nan=math.inf, posinf=math.inf)
        grows = bool(slopes[0] >= 0) and bool(slopes[slopes.isfinite()].max() > 0)
        if not grows or not bool((slopes[1:] >= slopes[:-1] * (1 - 1e-9)).all()):
            raise ValueError("majorise: B(φ(η)) must grow, and be convex in η; the bounds passed are not")
        object.__setattr__(self, "_slopes", slopes)

    def upper_bound(self, eta: Tensor, G: Tensor) -> Tensor:
        """The bound on the change of the objective after a step of relative size `eta`."""
        return self.bound(self.change(eta)) - eta * G

    def learning_rate(self, G: Tensor) -> Tensor:
        """The minimiser of the bound, or 0 if every step may ascend; does not synchronise with the device."""
        g = G if G.device.type == "mps" else G.double()
        slopes, grid = self._table(g)
        above = torch.searchsorted(slopes, g).clamp(min=1, max=len(grid) - 1)
        # take, because indexing with a 0-d tensor synchronises
        low, high = grid.take(above - 1), grid.take(above)
        share = (g - slopes.take(above - 1)) / (slopes.take(above) - slopes.take(above - 1))
        eta = torch.where((share >= 0) & (share <= 1), low + share * (high - low), 0.5 * (low + high))
        for _ in range(_NEWTON_STEPS):
            slope, curvature = self._slope(eta)
            low, high = torch.where(slope <= g, eta, low), torch.where(slope <= g, high, eta)
            newton = eta - (slope - g) / curvature
            # bisect if a Newton step leaves the bracket, or is nan because the curvature is zero
            eta = torch.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high))
        return torch.where(g > slopes[0], eta, 0).to(G.dtype)

    def _table(self, like: Tensor) -> tuple[Tensor, Tensor]:
        key = (like.device, like.dtype)
        if key not in self._placed:  # copied to a device once, because a copy synchronises
            self._placed[key] = self._slopes.to(like), _GRID.to(like)
        return self._placed[key]

    def _slope(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        """The first and second derivative of B(φ(η))."""
        with torch.enable_grad():
            eta = eta.detach().requires_grad_()
            total = self.bound(self.change(eta)).sum()
            (slope,) = torch.autograd.grad(total, eta, create_graph=True)
            if not slope.requires_grad:
                return slope, torch.zeros_like(slope)
            (curvature,) = torch.autograd.grad(slope.sum(), eta, allow_unused=True)
        return slope.detach(), torch.zeros_like(eta) if curvature is None else curvature.detach()
