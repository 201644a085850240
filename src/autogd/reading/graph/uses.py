"""The uses of one parameter in a forward pass, each with the role of every dimension."""

import math
from dataclasses import replace
from typing import Any

from autogd.reading.graph.axes import OTHER, Axes, Factor, aligned, axes_of, own
from autogd.reading.graph.computation import ADDS, LOOKUPS, NORMS, PRODUCTS, Graph, Value
from autogd.reading.graph.moves import JOINS, Moved, moved, signed
from autogd.reading.graph.packing import is_fresh
from autogd.reading.graph.products import convolution, multiplied, product
from autogd.reading.graph.use import Trail, Use, inner_product, own_factors, token, unknown, used, vector

__all__ = ["uses_of"]

LIMIT = 4096  # the most values to follow for one parameter
_REDUCTIONS = {"Sum", "Mean", "LinalgVectorNorm", "Norm", "Var", "Std", "VarMean"}
_INSERTIONS = {"IndexPut", "Where", "Scatter", "MaskedScatter", "CopySlices"}


def uses_of(graph: Graph, start: Value) -> list[Use]:
    """Follow a parameter, or a piece of one, from `start` to the operations that mix it with something else.

    >>> import torch
    >>> from autogd.reading.graph.computation import Graph
    >>> weight = torch.nn.Parameter(torch.ones(2, 3))
    >>> graph = Graph(torch.ones(4, 2) @ weight, [weight])
    >>> [use.kind for use in uses_of(graph, (graph.leaves[weight], 0))]
    ['matrix']
    """
    found: list[Use] = []
    trails = [Trail(start, axes_of(graph.shape(start)))]
    seen: set[tuple[Any, int, Value]] = set()
    while trails and len(seen) < LIMIT:
        trail = trails.pop()
        for node, position in graph.consumers(trail.value):
            if (node, position, trail.value) in seen:
                continue
            seen.add((node, position, trail.value))
            step = _step(graph, node, position, trail)
            for result in step:
                (found if isinstance(result, Use) else trails).append(result)  # type: ignore[arg-type]
    return found


def _step(graph: Graph, node: Any, position: int, trail: Trail) -> list[Use | Trail]:
    operation = graph.operation(node)
    if operation in PRODUCTS:
        return product(graph, node, position, trail, operation)
    if operation == "Convolution":
        return convolution(graph, node, position, trail)
    if operation in LOOKUPS:
        return _lookup(graph, node, trail, operation)
    if operation in NORMS:
        if position == 0:
            return [token(node, trail)]
        return [vector("gain" if position == 1 else "bias", graph, node, trail)]
    if operation == "PreluKernel" and position == 1:
        return [vector("gain", graph, node, trail)]
    if operation == "Trilinear" and position == 1:
        out, *inputs = trail.axes
        return [used("matrix", node, trail, rows=own(out), columns=tuple(f for dim in inputs for f in own(dim)))]
    results = moved(graph, node, trail.axes, position)
    if results is not None:
        after = [_followed(trail, r, operation) for r in results]
        cut = len(own_factors(after[0].axes)) > len(own_factors(trail.axes)) if after else False
        if trail.inner and cut:  # a product that is shaped into a weight: a hypernetwork
            return [inner_product(graph, trail)]
        return list(after)
    others = [source for i, source in enumerate(graph.sources[node]) if i != position and source[0] is not None]
    free = all(source[0] not in graph.data for source in others)
    if operation in JOINS or operation in _INSERTIONS:
        if free and operation in JOINS and node not in graph.data:
            joined = _stacked if operation == "Stack" else _joined
            return [replace(trail, value=(node, 0), axes=joined(trail.axes, graph.shape((node, 0)), node))]
        return [token(node, trail)]
    shape = graph.shape((node, 0))
    if len(shape) < len(trail.axes) or operation in _REDUCTIONS:
        added_up = operation in ("Sum", "Mean") and math.prod(shape) > 1
        return [unknown(node, trail)] if added_up else []  # a norm, a penalty: no map
    if free and node not in graph.data and _broadcast(graph, node):
        return [replace(trail, value=(node, 0), axes=aligned(trail.axes, shape))]
    if trail.inner:
        return [inner_product(graph, trail)]
    if operation in ADDS or operation in ("Addcmul", "Complex"):
        return [_added(graph, node, position, trail)]
    if operation in ("Mul", "Div", "Pow", "Lerp", "Maximum", "Minimum", "Atan2"):
        return [multiplied(graph, node, position, trail)]
    if "ScaledDotProduct" in operation:
        return [token(node, trail)]
    return [unknown(node, trail)]


def _followed(trail: Trail, result: Moved, operation: str) -> Trail:
    axes, pair = result.axes, trail.pair or result.pair
    if trail.pair and operation == "ViewAsReal":
        axes, pair = (*axes[:-1], trail.pair), ()
    return replace(trail, value=result.value, axes=axes, picked=(*trail.picked, *result.picked), pair=pair)


def _lookup(graph: Graph, node: Any, trail: Trail, operation: str) -> list[Use | Trail]:
    shape, axes = graph.shape((node, 0)), trail.axes
    if operation in ("Embedding", "EmbeddingBag", "EmbeddingRenorm"):
        return [used("embedding", node, trail, rows=own(axes[-1]), grid=own(axes[0]))]
    if len(axes) < 2 or operation in ("Gather", "Take"):
        return [vector("gain", graph, node, trail)]
    kept = graph.shape(trail.value)[1:]
    if operation == "IndexSelect":
        kept = kept if signed(node._saved_dim) % len(axes) == 0 else ()
    if not kept or shape[-len(kept) :] != kept:
        return [unknown(node, trail)]
    index = ((Factor(n, OTHER),) if n > 1 else () for n in shape[: len(shape) - len(kept)])
    after = replace(trail, value=(node, 0), axes=(*index, *axes[1:]), looked=(*trail.looked, *own(axes[0])))
    if len(axes) >= 3:  # a matrix for each entry: experts
        return [after]
    for later, position in graph.consumers((node, 0)):
        if graph.operation(later) in ADDS and is_fresh(graph, graph.other(later, position), lookups=False):
            return [vector("bias", graph, later, after, fresh=True)]
    return [used("embedding", node, trail, rows=own(axes[-1]), grid=own(axes[0]))]


def _added(graph: Graph, node: Any, position: int, trail: Trail) -> Use:
    wide = [dim for dim in trail.axes if own(dim)]
    fresh = position < 2 <= len(graph.sources[node]) and is_fresh(graph, graph.other(node, position))
    if len(wide) > 1:
        return token(node, trail)
    return vector("bias", graph, node, trail, fresh=fresh)


def _stacked(axes: Axes, shape: tuple[int, ...], node: Any) -> Axes:
    """After a stack with other parameters: one more dimension, of all of them."""
    dim = signed(node._saved_dim) % len(shape)
    return (*axes[:dim], (Factor(shape[dim], OTHER),), *axes[dim:])


def _joined(axes: Axes, shape: tuple[int, ...], node: Any) -> Axes:
    """After a concatenation with other parameters: longer along one dimension, by the others."""
    dims = []
    for dim, n in zip(axes, shape, strict=True):
        if math.prod(f.size for f in dim) == n:
            dims.append(dim)
        elif len(dim) == 1 and dim[0].dim >= 0:
            dims.append((Factor(n, dim[0].dim, dim[0].stride, dim[0].extent),))
        else:
            dims.append((Factor(n, OTHER),))
    return tuple(dims)


def _broadcast(graph: Graph, node: Any) -> bool:
    """Whether the result has the shape that an operation by elements gives."""
    shapes = [graph.shape(source) for source in graph.sources[node] if source[0] is not None]
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return graph.shape((node, 0)) == tuple(max(sizes) for sizes in zip(*padded, strict=True))
