"""One use of a parameter, and the path to it."""

from dataclasses import dataclass
from typing import Any

from autogd.reading.graph.axes import Axes, Factor, Picked, aligned, own
from autogd.reading.graph.computation import Graph, Value
from autogd.reading.graph.packing import packed

__all__ = ["Trail", "Use", "inner_product", "own_factors", "token", "unknown", "used", "vector"]


@dataclass(frozen=True)
class Use:
    """One use of a parameter.

    Args:
        kind: matrix, kernel, embedding, bias, gain or token; unknown for an opaque operation.
        node: the operation.
        rows: the factors that go on, or are added to activations.
        columns: the factors that are contracted with activations.
        grid: the factors that count maps side by side: the batch of a product, the groups and taps of a convolution.
        layers: the factors that count maps that would be layers of their own: what is split afterwards.
        picked: what was picked beforehand.
        taps: how many products a convolution adds up.
        source: what it is multiplied with.
        pair: the factor that holds real and imaginary parts.
        gate: whether the product opens a gate.
        scales: whether it scales another parameter, as the lengths of weight normalisation do, and how many columns
            that has.
        wide: whether it has more than one dimension at the operation.
    """

    kind: str
    node: Any
    rows: tuple[Factor, ...] = ()
    columns: tuple[Factor, ...] = ()
    grid: tuple[Factor, ...] = ()
    layers: tuple[Factor, ...] = ()
    picked: tuple[Picked, ...] = ()
    taps: int = 1
    source: Value = (None, 0)
    pair: tuple[Factor, ...] = ()
    gate: bool = False
    scales: int = 0
    wide: bool = False


@dataclass(frozen=True)
class Trail:
    """A value that was made from the parameter, its axes, and what happened on the way."""

    value: Value
    axes: Axes
    picked: tuple[Picked, ...] = ()
    inner: tuple[Factor, ...] = ()  # contracted with another parameter so far
    looked: tuple[Factor, ...] = ()  # looked up by an index
    pair: tuple[Factor, ...] = ()  # holds real and imaginary parts


def used(kind: str, node: Any, trail: Trail, **parts: Any) -> Use:
    """A use at the end of a trail; what was looked up by an index counts parts."""
    parts["grid"] = (*parts.get("grid", ()), *trail.looked)
    return Use(kind, node, picked=trail.picked, pair=trail.pair, **parts)


def vector(kind: str, graph: Graph, node: Any, trail: Trail, *, fresh: bool = False, dim: int | None = None) -> Use:
    """A parameter that shifts or scales activations number by number."""
    layers: tuple[Factor, ...] = ()
    if fresh:
        shape = graph.shape((node, 0))
        axes = trail.axes
        if dim is not None and len(axes) == 1:
            axes = (axes[0], *((),) * (len(shape) - dim - 1))
        layers = packed(graph, (node, 0), aligned(axes, shape))
    return used(kind, node, trail, rows=own_factors(trail.axes), layers=layers)


def token(node: Any, trail: Trail) -> Use:
    """Vectors among the activations: the last dimension is the vector, the others count vectors."""
    dims = [own(dim) for dim in trail.axes if own(dim)]
    rows, grid = (dims[-1], dims[:-1]) if dims else ((), [])
    return used("token", node, trail, rows=rows, grid=tuple(f for dim in grid for f in dim))


def inner_product(graph: Graph, trail: Trail) -> Use:
    """A product with another parameter that is a layer like any other."""
    return used("matrix", trail.value[0], trail, rows=own_factors(trail.axes), columns=trail.inner)


def unknown(node: Any, trail: Trail) -> Use:
    """A use in an opaque operation."""
    return Use("unknown", node, wide=sum(bool(own(dim)) for dim in trail.axes) > 1)


def own_factors(axes: Axes) -> tuple[Factor, ...]:
    """The parameter's factors in all dimensions."""
    return tuple(f for dim in axes for f in own(dim))
