"""Rules for operations without parameters: non-linearities, sums, concatenations, pooling, views.

An operation is a node of the autograd graph of a pass on an input without numbers. What it saved that has numbers is a
constant, then, and does not depend on the input.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from autogd.reading.graph.axes import OTHER, Axes, Factor, own
from autogd.reading.graph.computation import ADDS, Graph, Value
from autogd.reading.graph.moves import CHOICES, moved, signed
from autogd.theory.s4_bound import Bound, add, average_pool, concatenate, elementwise

__all__ = ["LIPSCHITZ", "Flow", "apply", "replaced"]

# largest slope, and value at zero; the slopes of gelu and silu were maximised numerically
LIPSCHITZ: dict[str, tuple[float, float]] = {
    "Relu": (1.0, 0.0),
    "Hardtanh": (1.0, 0.0),
    "LeakyRelu": (1.0, 0.0),
    "Tanh": (1.0, 0.0),
    "Sigmoid": (0.25, 0.5),
    "Softplus": (1.0, math.log(2.0)),
    "Abs": (1.0, 0.0),
    "Neg": (1.0, 0.0),
    "Sin": (1.0, 0.0),
    "Gelu": (1.129, 0.0),
    "Silu": (1.09985, 0.0),
    "Elu": (1.0, 0.0),
}
"""Elementwise operations at their default settings: Lipschitz constant and value at zero."""


_VIEWS = {
    "View", "UnsafeView", "ReshapeAlias", "ReshapeCopy", "Squeeze", "Unsqueeze", "Flatten", "Permute", "Transpose", "T",
    "SwapDims", "SwapAxes", "Clone", "ToCopy",
}  # fmt: skip


@dataclass(frozen=True)
class Flow:
    """A value that depends on the input: its bound, and where the input's samples are among its dimensions."""

    bound: Bound
    axes: Axes

    @property
    def samples(self) -> tuple[tuple[Factor, ...], ...]:
        """The factors of each dimension that count samples."""
        return tuple(own(dim) for dim in self.axes)


def apply(graph: Graph, node: Any, flows: Mapping[Value, Flow]) -> dict[Value, Flow]:
    """What the operation makes of the values that depend on the input; raises ValueError if it has no rule."""
    operation, shape, sources = graph.operation(node), graph.shape((node, 0)), graph.sources[node]
    places = [i for i, source in enumerate(sources) if source in flows]
    h, before = flows[sources[places[0]]], graph.shape(sources[places[0]])
    axes = h.axes
    if operation in _VIEWS or operation in CHOICES:
        results = moved(graph, node, axes) or []
        if not results or any(pick.of.dim >= 0 for result in results for pick in result.picked):
            raise ValueError("it cuts the batch dimension")
        return {result.value: Flow(h.bound, result.axes) for result in results}
    if operation in ADDS or operation in ("Cat", "Stack"):
        terms = [flows[source] for source in sources if source in flows]
        if len(terms) < max(len(sources), 2):
            raise ValueError("adds or joins something that is neither a value of the network nor a parameter")
        if any(term.samples != h.samples for term in terms):
            raise ValueError("it mixes the samples along the batch dimension")
        return {(node, 0): _sum(node, terms) if operation in ADDS else _joined(node, terms, shape)}
    if operation in ("Mul", "Div") and before == shape:
        layer = elementwise(_factor(node, operation, places))
    elif operation == "Mean" and hasattr(node, "_saved_dim"):
        dims = {signed(dim) % len(axes) for dim in node._saved_dim}
        layer = average_pool(math.prod(before[dim] for dim in dims))
        axes = replaced(axes, dims, [1] * len(axes))
        axes = tuple(dim for i, dim in enumerate(axes) if node._saved_keepdim or i not in dims)
    elif operation in _POOLS:
        axes = replaced(axes, range(-_POOLS[operation], 0), shape)
        layer = _pooled(node, operation, before, shape)
    elif operation in LIPSCHITZ:
        slope, at_zero = _slope(node, operation)
        layer = elementwise(
            slope, abs(at_zero) * math.sqrt(math.prod(f.size for dim in axes for f in dim if f.dim < 0))
        )
    else:
        raise ValueError("no bound is known")
    return {(node, 0): Flow(layer(h.bound), axes)}


def replaced(axes: Axes, dims: Iterable[int], shape: Sequence[int]) -> Axes:
    """The axes after a map along some dimensions, none of which may count samples, to a result of that shape.

    >>> replaced(((Factor(5, 0),), (Factor(4, OTHER),)), [-1], (5, 3))[1]
    (Factor(size=3, dim=-2, stride=1, whole=0),)
    """
    after = list(axes)
    for dim in dims:
        if own(axes[dim]):
            raise ValueError("it mixes the samples along the batch dimension")
        after[dim] = (Factor(shape[dim], OTHER),) if shape[dim] > 1 else ()
    return tuple(after)


def _sum(node: Any, terms: Sequence[Flow]) -> Flow:
    first, second = terms if "Rsub" not in node.name() else reversed(terms)
    return Flow(add(first.bound, elementwise(abs(float(node._saved_alpha)))(second.bound)), first.axes)


def _joined(node: Any, parts: Sequence[Flow], shape: tuple[int, ...]) -> Flow:
    dim, axes = signed(node._saved_dim) % len(shape), parts[0].axes
    axes = axes if len(axes) == len(shape) else (*axes[:dim], (), *axes[dim:])
    return Flow(concatenate(*(part.bound for part in parts)), replaced(axes, [dim], shape))


def _factor(node: Any, operation: str, places: Sequence[int]) -> float:
    """The largest of the constants that the value at the only place is multiplied with, or divided by."""
    factor = node._saved_other if places == [0] else node._saved_self if (places, operation) == ([1], "Mul") else None
    if factor is None or isinstance(factor, FakeTensor) or factor.requires_grad:
        raise ValueError("it takes something other than a constant")
    if getattr(node, "_saved_rounding_mode", None):
        raise ValueError("it rounds, and so jumps")
    return float(factor.abs().max()) if operation == "Mul" else 1 / float(factor.abs().min())


# how many dimensions are pooled
_POOLS = {
    f"{kind}{spatial}D{ending}": spatial
    for kind, ending in (("AvgPool", ""), ("MaxPool", "WithIndices"), ("AdaptiveAvgPool", ""))
    for spatial in (2, 3)
}


def _pooled(node: Any, operation: str, before: tuple[int, ...], after: tuple[int, ...]) -> Callable[[Bound], Bound]:
    if operation.startswith("Adaptive"):
        pairs = list(zip(before, after, strict=True))
        if any(b % a for b, a in pairs):
            raise ValueError(f"windows overlap unevenly ({before} to {after})")
        return average_pool(math.prod(b // a for b, a in pairs))
    overlap = math.prod(-(-k // s) for k, s in zip(node._saved_kernel_size, node._saved_stride or (1,), strict=False))
    if not operation.startswith("Avg"):
        if any(dilation != 1 for dilation in node._saved_dilation):
            raise ValueError("no bound is known for dilated max-pooling")
        return elementwise(math.sqrt(overlap))
    if node._saved_ceil_mode or (any(node._saved_padding) and not node._saved_count_include_pad):
        raise ValueError("windows at the border are smaller: use ceil_mode=False and count_include_pad=True")
    if node._saved_divisor_override is not None:
        raise ValueError("divisor_override makes it another map than an average")
    return average_pool(math.prod(node._saved_kernel_size), overlap)


def _slope(node: Any, operation: str) -> tuple[float, float]:
    """The Lipschitz constant and the value at zero, at the settings of this call."""
    slope, at_zero = LIPSCHITZ[operation]
    if operation == "LeakyRelu":
        return max(slope, abs(node._saved_negative_slope)), at_zero
    if operation == "Elu":
        return abs(node._saved_scale) * max(slope, abs(node._saved_alpha * node._saved_input_scale)), at_zero
    if operation == "Softplus":
        return slope, at_zero / node._saved_beta
    if operation == "Hardtanh":
        return slope, min(max(0.0, node._saved_min_val), node._saved_max_val)
    return slope, at_zero
