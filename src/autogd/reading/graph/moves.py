"""Follow axes through operations that move numbers about, or change each on its own, but mix nothing."""

import math
from typing import Any, NamedTuple

from autogd.reading.graph.axes import (
    BATCH,
    OTHER,
    Axes,
    Factor,
    Picked,
    expanded,
    own,
    peeled,
    permuted,
    sliced,
    viewed,
)
from autogd.reading.graph.computation import Graph, Value

__all__ = ["CHOICES", "JOINS", "Moved", "halves", "is_custom", "moved", "signed"]

_VIEWS = {"View", "UnsafeView", "ReshapeAlias", "ReshapeCopy", "Squeeze", "Unsqueeze", "AsStrided", "Flatten"}
_SWAPS = {"T", "Transpose", "SwapDims", "SwapAxes"}
CHOICES = {"Select", "Slice", "Narrow", "Split", "UnsafeSplit", "SplitWithSizes", "Unbind"}
JOINS = {"Cat", "Stack"}
# the shape stays, but every number depends on others along a dimension
_MIXING = {
    "Softmax",
    "LogSoftmax",
    "Cumsum",
    "Cumprod",
    "FftC2c",
    "FftC2C",
    "FftR2C",
    "FftC2R",
    "LinalgMatrixExp",
    "Sort",
}


class Moved(NamedTuple):
    """A value that was made from another, its axes, what was picked on the way, and what became complex numbers."""

    value: Value
    axes: Axes
    picked: tuple[Picked, ...] = ()
    pair: tuple[Factor, ...] = ()


def moved(graph: Graph, node: Any, axes: Axes, position: int = 0) -> list[Moved] | None:
    """The results of an operation on a value with these axes; None if the operation mixes it with something else."""
    operation = graph.operation(node)
    shape = graph.shape((node, 0))
    if operation in CHOICES:
        return _chosen(graph, node, operation, axes)
    after: Axes | None
    if operation in _VIEWS:
        after = viewed(axes, shape)
    elif operation in _SWAPS:
        first, second = (0, 1) if operation == "T" else (signed(node._saved_dim0), signed(node._saved_dim1))
        order = list(range(len(axes)))
        if len(order) > 1:
            order[first], order[second] = order[second], order[first]
        after = permuted(axes, order)
    elif operation == "Permute":
        after = permuted(axes, [signed(dim) % len(axes) for dim in node._saved_dims])
    elif operation == "Expand":
        after = expanded(axes, shape)
    elif operation == "Repeat":
        after = _repeated(axes, shape)
    elif operation == "ViewAsComplex":
        return [Moved((node, 0), axes[:-1], pair=own(axes[-1]))]
    elif operation == "ViewAsReal":
        after = (*axes, (Factor(2, OTHER),))
    elif _by_elements(graph, node, operation, axes):
        after = axes
    else:
        return None
    return None if after is None else [Moved((node, 0), after)]


def _by_elements(graph: Graph, node: Any, operation: str, axes: Axes) -> bool:
    """One tensor in, one of the same shape out, number by number."""
    sources = [source for source in graph.sources[node] if source[0] is not None]
    same = len(sources) == 1 and graph.shape(sources[0]) == graph.shape((node, 0))
    return same and operation not in _MIXING and len(node._input_metadata) >= 1 and not is_custom(node)


def is_custom(node: Any) -> bool:
    """Whether the operation is a Function written in Python."""
    return hasattr(node, "_forward_cls")


def _chosen(graph: Graph, node: Any, operation: str, axes: Axes) -> list[Moved] | None:
    dim = signed(node._saved_dim) % len(axes)
    results: list[Moved] = []
    at = 0
    for number in range(len(node._input_metadata)):
        shape = graph.shape((node, number))
        if operation in ("Select", "Unbind"):
            before = math.prod(f.size for f in axes[dim])
            index = number if operation == "Unbind" else signed(node._saved_index) % max(before, 1)
            part = sliced(axes, dim, index, 1, 1)
            part = None if part is None else ((*part[0][:dim], *part[0][dim + 1 :]), part[1])
        else:
            start, step, size = at, 1, shape[dim]
            if operation in ("Slice", "Narrow"):
                before = math.prod(f.size for f in axes[dim])
                start, step = signed(node._saved_start or 0), int(getattr(node, "_saved_step", 1))
                start += before if start < 0 else 0
            at += size
            part = sliced(axes, dim, start, step, size) if size else None
        if part is None:
            return None
        results.append(Moved((node, number), *part))
    return results


def _repeated(axes: Axes, shape: tuple[int, ...]) -> Axes | None:
    dims: list[tuple[Factor, ...]] = []
    for dim, n in zip(((),) * (len(shape) - len(axes)) + axes, shape, strict=True):
        times = n // max(math.prod(f.size for f in dim), 1)
        dims.append((*((Factor(times, BATCH),) if times > 1 else ()), *dim))
    return tuple(dims)


def signed(number: int) -> int:
    """Autograd keeps some dimensions as unsigned numbers of 64 bits."""
    return number - (1 << 64) if number >= 1 << 63 else number


def halves(graph: Graph, node: Any, axes: Axes) -> tuple[Factor, ...]:
    """The factor of two that a gated linear unit, `node`, splits off a dimension."""
    split = peeled(axes[signed(node._saved_dim) % len(axes)], 2)
    return () if split is None else own(split[0])
