"""What happens to a product: how many maps it packs, and whether it opens a gate."""

import math
from typing import Any

from autogd.reading.graph.axes import Axes, Factor, Picked, aligned
from autogd.reading.graph.computation import ADDS, LOOKUPS, PRODUCTS, Graph, Value
from autogd.reading.graph.moves import CHOICES, JOINS, Moved, halves, moved

__all__ = ["is_fresh", "is_gate", "packed"]

_SIMPLE = {"View", "UnsafeView", "Permute", "Transpose", "ToCopy", "Clone", "T"}
HOPS = 12  # the most operations between a product and the split of what it packs
REJOIN = 5  # the most operations between a split and the concatenation of its parts, as in rotary embeddings


def packed(graph: Graph, value: Value, axes: Axes) -> tuple[Factor, ...]:
    """The factors of the parameter that count maps: those along which its product is split into equal parts.

    Query, key and value in one matrix are three maps, gate and up are two, a recurrent cell's gates three or four. The
    product must not be used in any other way. If the parts are joined afterwards, as the halves of rotary embeddings
    are, they were one map.
    """
    parts = _parts(graph, value, axes, HOPS)
    if not parts:
        return ()
    factors = {tuple(pick.of for pick in part.picked) for part in parts}
    entries = {part.picked[-1].entry for part in parts}
    before = {f for dim in axes for f in dim if f.whole}  # already uneven, like two of three matrices
    if len(factors) > 1 or len(entries) < math.prod(f.size if f in before else f.extent for f in next(iter(factors))):
        return ()
    return () if _rejoined(graph, value, [part.value for part in parts]) else next(iter(factors))


def _parts(graph: Graph, value: Value, axes: Axes, hops: int) -> list[Moved]:
    """The parts that the value is split into, on every path; empty if it stays whole on one."""
    found: list[Moved] = []
    for node, position in graph.consumers(value) if hops else ():
        operation = graph.operation(node)
        results: list[Moved] | None
        if operation == "Glu":
            picks = halves(graph, node, axes)
            results = [Moved((node, 0), axes, tuple(Picked(f, entry) for f in picks)) for entry in (0, 1)]
        elif operation in ADDS and is_fresh(graph, graph.other(node, position)):
            results = [Moved((node, 0), aligned(axes, graph.shape((node, 0))))]
        else:
            results = moved(graph, node, axes)
        results = [r for r in results or [] if graph.consumers(r.value) or r.picked]
        parts = [part for r in results for part in ([r] if r.picked else _parts(graph, r.value, r.axes, hops - 1))]
        if not parts:
            return []
        found += parts
    return found


def is_fresh(graph: Graph, value: Value, hops: int = 4, *, lookups: bool = True) -> bool:
    """Whether the value is a product, a parameter or a sum of those: what an affine map is made of."""
    node = value[0]
    if node is None or hops == 0:
        return node is None
    operation = graph.operation(node)
    if operation in PRODUCTS or operation in ("Convolution", "AccumulateGrad"):
        return True
    sources = [source for source in graph.sources[node] if source[0] is not None]
    if operation in LOOKUPS:  # the bias of an expert
        return lookups and graph.operation(graph.origin(sources[0])[0]) == "AccumulateGrad" if sources else False
    if operation in ADDS:
        return all(is_fresh(graph, source, hops - 1, lookups=lookups) for source in sources)
    simple = operation in CHOICES or operation in _SIMPLE
    return simple and is_fresh(graph, sources[0], hops - 1, lookups=lookups)


def is_gate(graph: Graph, value: Value, hops: int = 8) -> bool:
    """Whether the product, or a part of it, goes through a sigmoid and then multiplies something else."""
    for node, position in graph.consumers(value) if hops else ():
        operation = graph.operation(node)
        if operation == "Glu":
            return True
        if operation == "Sigmoid":
            if any(_multiplies(graph, node, later, at, value) for later, at in graph.consumers((node, 0))):
                return True
        elif operation in ADDS:
            if is_fresh(graph, graph.other(node, position)) and is_gate(graph, (node, 0), hops - 1):
                return True
        elif operation in CHOICES or operation in _SIMPLE:
            numbers = range(len(node._input_metadata))
            if any(is_gate(graph, (node, number), hops - 1) for number in numbers):
                return True
    return False


def _multiplies(graph: Graph, sigmoid: Any, node: Any, position: int, before: Value) -> bool:
    if graph.operation(node) not in ("Mul", "Lerp", "Rsub", "Sub"):
        return False
    if graph.operation(node) in ("Rsub", "Sub"):  # 1 - z
        return any(graph.operation(later) == "Mul" for later, _ in graph.consumers((node, 0)))
    return graph.other(node, position) != before  # x times the sigmoid of x is an activation, not a gate


def _rejoined(graph: Graph, whole: Value, parts: list[Value]) -> bool:
    size = math.prod(graph.shape(whole))
    joined: dict[Any, set[int]] = {}
    for number, part in enumerate(parts):
        front = {part}
        for _ in range(REJOIN):
            after: set[Value] = set()
            for value in front:
                for node, _ in graph.consumers(value):
                    operation = graph.operation(node)
                    if operation in JOINS and math.prod(graph.shape((node, 0))) == size:
                        joined.setdefault(node, set()).add(number)
                    elif operation not in PRODUCTS and operation != "Convolution" and len(node._input_metadata) == 1:
                        after.add((node, 0))
            front = after
    return any(len(numbers) > 1 and len(numbers) == len(parts) for numbers in joined.values())
