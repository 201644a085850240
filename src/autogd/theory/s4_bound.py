r"""How far the output moves when the weights move: bounds that compose as the network does.

A `Bound` on one value h inside a network is two things: ‖h‖₂ ≤ `size`, and ‖Δh‖₂ ≤ `change(r)`, where r holds the
relative sizes of the updates, r_k = ‖ΔW_k‖_*/s_k, and s_k is the weight's size under Prescription 1 (the atom's scale).
Each layer type maps the bound on its input to a bound on its output:

========================  =================  =========================================
layer                     size               change
========================  =================  =========================================
linear map W              ‖W‖_* a            ‖W‖_* d + s r (a + d)
non-linearity, c-Lipschitz  c a                c d
sum of branches           Σ a_i              Σ d_i
concatenation             √Σ a_i²            √Σ d_i²
average pooling           √(overlap/n) a     √(overlap/n) d
normalisation             √n                 d/√(m² + ε), for inputs of root-mean-square ≥ m
========================  =================  =========================================

where a and d are the size and change of the input. On a stack of linear maps these are Lemmas 3 and 4. A change is a
polynomial in a common scale t of the updates (r_k → t r_k), stored as its coefficients, all ≥ 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "Bound",
    "Map",
    "add",
    "average_pool",
    "compose",
    "concatenate",
    "deep_relative_trust",
    "elementwise",
    "given",
    "linear",
    "normalise",
    "offset",
    "output_bound",
    "parallel",
    "residual",
]

Relative = Callable[[str], Tensor]
"""From a parameter's name to its relative update, as coefficients of a polynomial in t."""


@dataclass(frozen=True)
class Bound:
    """‖h‖₂ ≤ size, and ‖Δh‖₂ ≤ change(relative sizes of the updates).

    >>> bound = compose(linear("a", 2.0), linear("b", 3.0))(given(1.0))
    >>> bound.size, round(bound.change({"a": 0.1, "b": 0.2}), 6)  # 6 × (1.1 × 1.2 − 1)
    (6.0, 1.92)
    """

    size: float
    expand: Callable[[Relative], Tensor]

    def change(self, relative: Mapping[str, float] | float) -> float:
        """The bound on ‖Δh‖₂ for updates of the given relative sizes, one for all or by parameter name."""

        def look_up(name: str) -> Tensor:
            return _constant(relative[name] if isinstance(relative, Mapping) else relative)

        return float(self.expand(look_up).sum())

    def coefficients(self, shares: Mapping[str, float]) -> Tensor:
        """The same as a polynomial in η; each relative size is the parameter's share of η, or 0 if it has none."""
        return self.expand(lambda name: torch.tensor([0.0, shares.get(name, 0.0)], dtype=torch.float64))


Map = Callable[[Bound], Bound]
"""A layer: from the bound on its input to the bound on its output."""


def given(norm: float) -> Bound:
    """The network's input, which has a known norm and does not move.

    >>> given(2.0).change(0.5)
    0.0
    """
    return Bound(norm, lambda relative: _constant(0.0))


def linear(name: str, size: float, unit: float | None = None) -> Map:
    """A linear map of operator norm `size`, whose update has the norm unit × (relative size).

    >>> linear("w", 2.0)(given(1.0)).change({"w": 0.5})
    1.0
    """
    scale = size if unit is None else unit

    def apply(h: Bound) -> Bound:
        def expand(relative: Relative) -> Tensor:
            d, u = h.expand(relative), scale * relative(name)
            return _plus(size * d, _plus(h.size * u, _times(u, d)))

        return Bound(size * h.size, expand)

    return apply


def offset(name: str | None, size: float, unit: float = 0.0) -> Map:
    """An added vector of norm `size`; if it is named, a parameter whose update has norm unit × (relative size).

    >>> offset("b", 0.0, unit=2.0)(given(1.0)).change({"b": 0.5})
    1.0
    """

    def apply(h: Bound) -> Bound:
        def expand(relative: Relative) -> Tensor:
            d = h.expand(relative)
            return d if name is None else _plus(d, unit * relative(name))

        return Bound(h.size + size, expand)

    return apply


def elementwise(lipschitz: float, at_zero: float = 0.0) -> Map:
    """A non-linearity with a Lipschitz constant; `at_zero` is the norm of its value at zero.

    >>> elementwise(2.0)(given(1.0)).size
    2.0
    """
    return lambda h: Bound(lipschitz * h.size + at_zero, lambda relative: lipschitz * h.expand(relative))


def average_pool(window: int, overlap: int = 1) -> Map:
    """Means over windows of `window` entries; each entry lies in at most `overlap` windows.

    Rows sum to at most 1 and columns to at most overlap/window; the root of their product bounds the norm.

    >>> average_pool(4)(given(2.0)).size
    1.0
    """
    return elementwise(math.sqrt(overlap / window))


def normalise(entries: int, smallest: float = 0.0, epsilon: float = 0.0) -> Map:
    r"""h/√(rms(h)² + ε), as in LayerNorm and RMSNorm, for inputs of root-mean-square ≥ `smallest`.

    With ε as one more coordinate it maps to a sphere, where ‖a/‖a‖ − b/‖b‖‖ ≤ ‖a − b‖/min(‖a‖, ‖b‖): the constant
    is 1/√(m² + ε), before and after the step. Outside the domain, and with m = ε = 0, there is no bound.

    >>> normalise(16, smallest=0.5)(given(4.0)).size
    4.0
    """
    if smallest <= 0 and epsilon <= 0:
        raise ValueError("normalise: state a domain, smallest > 0, or an epsilon > 0; at zero the map has no bound")
    constant = 1 / math.sqrt(smallest**2 + epsilon)
    return lambda h: Bound(math.sqrt(entries), lambda relative: constant * h.expand(relative))


def add(*bounds: Bound) -> Bound:
    """The sum of values.

    >>> add(given(1.0), given(2.0)).size
    3.0
    """
    return Bound(sum(h.size for h in bounds), lambda relative: _plus(*(h.expand(relative) for h in bounds)))


def concatenate(*bounds: Bound) -> Bound:
    """The concatenation of values.

    >>> concatenate(given(3.0), given(4.0)).size
    5.0
    """

    def expand(relative: Relative) -> Tensor:
        # per coefficient: exact for numbers; for polynomials an upper bound, by the triangle inequality
        return torch.linalg.vector_norm(_padded([h.expand(relative) for h in bounds]), dim=0)

    return Bound(math.hypot(*(h.size for h in bounds)), expand)


def compose(*maps: Map) -> Map:
    """Layers one after another, in order.

    >>> compose(linear("a", 2.0), elementwise(0.5))(given(1.0)).size
    1.0
    """

    def apply(h: Bound) -> Bound:
        for layer in maps:
            h = layer(h)
        return h

    return apply


def residual(branch: Map, weight: float = 1.0) -> Map:
    """h + weight × branch(h).

    >>> residual(linear("w", 1.0), weight=0.5)(given(2.0)).size
    3.0
    """
    return lambda h: add(h, elementwise(abs(weight))(branch(h)))


def parallel(*branches: Map) -> Map:
    """Branches on the same input, concatenated.

    >>> parallel(linear("a", 3.0), linear("b", 4.0))(given(1.0)).size
    5.0
    """
    return lambda h: concatenate(*(branch(h) for branch in branches))


def output_bound(norms: Sequence[float], input_norm: float) -> float:
    """Lemma 3: ‖f(x)‖ ≤ Π‖W_k‖_* ‖x‖ for linear layers with relu, or any 1-Lipschitz function with σ(0) = 0, between.

    >>> output_bound([2.0, 3.0], 1.0)
    6.0
    """
    return math.prod(norms) * input_norm


def deep_relative_trust(norms: Sequence[float], updates: Sequence[float], input_norm: float) -> float:
    """Lemma 4: ‖Δf‖ ≤ Π‖W_k‖_* ‖x‖ [Π(1 + ‖ΔW_k‖_*/‖W_k‖_*) − 1], from the operator norms of weights and updates.

    >>> round(deep_relative_trust([2.0, 3.0], [0.2, 0.6], 1.0), 6)
    1.92
    """
    moved = math.prod(w + u for w, u in zip(norms, updates, strict=True))
    return (moved - math.prod(norms)) * input_norm


def _constant(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def _padded(polynomials: Sequence[Tensor]) -> Tensor:
    longest = max(len(p) for p in polynomials)
    return torch.stack([torch.nn.functional.pad(p, (0, longest - len(p))) for p in polynomials])


def _plus(*polynomials: Tensor) -> Tensor:
    return _padded(polynomials).sum(0)


def _times(p: Tensor, q: Tensor) -> Tensor:
    product = p.new_zeros(len(p) + len(q) - 1)
    for power, coefficient in enumerate(p):
        product[power : power + len(q)] += coefficient * q
    return product
