"""Uses in which a parameter multiplies activations: products, convolutions, sums of products."""

import math
from dataclasses import replace
from typing import Any

from autogd.reading.graph.axes import BATCH, OTHER, Axes, Factor, aligned, own, peeled
from autogd.reading.graph.computation import PRODUCTS, Graph, Value
from autogd.reading.graph.moves import moved, signed
from autogd.reading.graph.packing import is_gate, packed
from autogd.reading.graph.use import Trail, Use, inner_product, own_factors, token, unknown, used, vector

__all__ = ["convolution", "multiplied", "product"]


def product(graph: Graph, node: Any, position: int, trail: Trail, operation: str) -> list[Use | Trail]:
    """A product of matrices: contracted dimensions are columns, the others rows, those of the batch count parts.

    A product with another parameter decides nothing yet: a later operation shows which side the activations are on.
    """
    first, second, *rest = PRODUCTS[operation]
    if position in rest:
        return [vector("bias", graph, node, trail, fresh=True)]
    other = graph.sources[node][second if position == first else first]
    axes, left = trail.axes, position == first
    batch: tuple[Factor, ...] = ()
    contracted: tuple[Factor, ...]
    kept: tuple[Factor, ...]
    if operation in ("Bmm", "Baddbmm", "Addbmm", "GroupedMm") and len(axes) == 3:
        batch, axes = axes[0], axes[1:]
    if operation in ("Mv", "Addmv", "Dot", "Vdot") and len(axes) == 1:
        contracted, kept = axes[0], ()
    elif operation in ("Linear", "MkldnnLinear") and not left:
        contracted, kept = axes[-1], axes[0] if len(axes) > 1 else ()
    else:
        contracted, kept = (axes[-1], axes[0]) if left else (axes[0], axes[-1])
        if len(axes) > 2:  # a linear map of activations with more dimensions
            kept = tuple(f for dim in axes[:-1] for f in dim)
    copies = any(f.dim == BATCH for f in kept)
    if other[0] is not None and other[0] not in graph.data:
        if copies or (left and operation == "Linear"):
            return [token(node, trail)]
        if trail.inner:
            return [inner_product(graph, trail)]
        shape = graph.shape((node, 0))
        after = _after_product(operation, shape, batch, kept, left)
        return [replace(trail, value=(node, 0), axes=after, inner=own(contracted))]
    if copies and not trail.inner:
        return [token(node, trail)]
    if not own(contracted) and not trail.inner and any(f.dim == OTHER for f in contracted):
        width = math.prod(f.size for f in contracted)
        return [used("gain", node, trail, rows=own(kept), grid=own(batch), scales=width)]
    columns, rows = own(contracted), own(kept)
    if trail.inner:
        columns, rows = (columns, rows + trail.inner) if columns else (trail.inner, rows)
    after = _after_product(operation, graph.shape((node, 0)), batch, kept, left)
    if not columns and (summed := _added_up(graph, (node, 0), after)):  # an outer product, spelt as a product
        columns, batch = summed, tuple(f for f in batch if f not in summed)
    layers = packed(graph, (node, 0), after)
    use = used(
        "matrix", node, trail, rows=rows, columns=columns, grid=own(batch), source=graph.origin(other), layers=layers
    )
    return [replace(use, gate=is_gate(graph, (node, 0)))]


def _after_product(
    operation: str, shape: tuple[int, ...], batch: tuple[Factor, ...], kept: tuple[Factor, ...], left: bool
) -> Axes:
    """The axes of a product, with the parameter's own rows in their place."""
    place = len(shape) - 1
    if left and operation not in ("Mv", "Addmv", "Dot", "Vdot"):
        place -= 1
    dims: list[tuple[Factor, ...]] = [((Factor(n, OTHER),) if n > 1 else ()) for n in shape]
    if dims:
        dims[place] = kept
    if batch and len(shape) == 3:
        dims[0] = batch
    return tuple(dims)


def convolution(graph: Graph, node: Any, position: int, trail: Trail) -> list[Use | Trail]:
    """A convolution: one matrix per tap and group."""
    if position == 2:
        return [vector("bias", graph, node, trail, fresh=True, dim=1)]
    if position == 0:
        return [token(node, trail)]
    lead, other, *taps = trail.axes
    groups = int(node._saved_groups)
    split = peeled(lead, groups)
    if split is None:
        return [unknown(node, trail)]
    grouped, within = split
    outputs, inputs = (other, within) if node._saved_transposed else (within, other)
    flat = tuple(f for dim in taps for f in own(dim))
    if not own(outputs) and not own(inputs) and any(f.dim == OTHER for f in (*outputs, *inputs)):
        return [used("gain", node, trail, rows=own_factors(trail.axes), scales=math.prod(f.size for f in inputs))]
    count = math.prod(f.size for dim in taps for f in dim)
    shape = graph.shape((node, 0))
    after: Axes = tuple(((Factor(n, OTHER),) if n > 1 else ()) for n in shape)
    channel = (*grouped, *outputs)
    after = (after[0], channel, *after[2:])
    layers = packed(graph, (node, 0), after) if groups == 1 else ()
    use = used(
        "kernel", node, trail, rows=own(outputs), columns=own(inputs), grid=(*own(grouped), *flat), taps=count,
        source=graph.origin(graph.sources[node][0]), layers=layers,
    )  # fmt: skip
    return [replace(use, gate=is_gate(graph, (node, 0)))]


def multiplied(graph: Graph, node: Any, position: int, trail: Trail) -> Use:
    """A gain; or, if the products are added up afterwards, a matrix written by hand."""
    axes = aligned(trail.axes, graph.shape((node, 0)))
    columns = _added_up(graph, (node, 0), axes)
    if not columns:
        return vector("gain", graph, node, trail)
    other = _shape_of_other(graph, node, position)
    padded = (1,) * (len(axes) - len(other)) + other
    left = [(n == 1, f) for n, dim in zip(padded, axes, strict=True) for f in own(dim) if f not in columns]
    rows, grid = (tuple(f for alone, f in left if alone == wanted) for wanted in (True, False))
    return used("matrix", node, trail, rows=rows, columns=columns, grid=grid)


def _added_up(graph: Graph, value: Value, axes: Axes) -> tuple[Factor, ...]:
    """The parameter's factors over which a value is added up afterwards."""
    for _ in range(3):
        sums = [later for later, _ in graph.consumers(value) if later.name() == "SumBackward1"]
        if sums:
            summed = {signed(d) % len(axes) for d in sums[0]._saved_dim}
            return tuple(f for i in sorted(summed) for f in own(axes[i]))
        if len(graph.consumers(value)) != 1:
            break
        results = moved(graph, graph.consumers(value)[0][0], axes)
        if not results or len(results) > 1:
            break
        value, axes = results[0].value, results[0].axes
    return ()


def _shape_of_other(graph: Graph, node: Any, position: int) -> tuple[int, ...]:
    source = graph.other(node, position)
    if source[0] is not None:
        return graph.shape(source)
    saved = getattr(node, "_saved_other" if position == 0 else "_saved_self", None)
    return tuple(saved.shape) if saved is not None else ()
