"""Sums in a forward pass: tables that are added to each other, and the streams that residual branches are added to."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from autogd.reading.graph.computation import Graph, Value
from autogd.reading.graph.reading import Reading

__all__ = ["Stream", "streams_of"]

_SIMPLE = {
    "View", "UnsafeView", "ReshapeAlias", "Permute", "Transpose", "T", "Expand", "Unsqueeze", "Squeeze", "Clone",
    "ToCopy", "NativeDropout", "Mul", "Slice",
}  # fmt: skip


@dataclass(eq=False)
class Stream:
    """Activations to which branches are added, without a norm layer in between.

    Args:
        tables: those whose rows, added up, begin the stream; empty if it begins otherwise.
        ends: the parameter of the last product of each branch; empty if only tables are added up.
    """

    tables: list[Tensor] = field(default_factory=list)
    ends: list[Tensor] = field(default_factory=list)


@dataclass
class _Made:
    """How a value was made: by products, by lookups, or as the sum of a stream."""

    maps: list[Tensor] = field(default_factory=list)
    tables: list[Tensor] = field(default_factory=list)
    stream: Stream | None = None


def streams_of(reading: Reading) -> list[Stream]:
    """The streams of a forward pass, in its order.

    >>> import torch
    >>> from torch import nn
    >>> from autogd.reading.graph import read_graph
    >>> table, layer = nn.Embedding(4, 2), nn.Linear(2, 2)
    >>> x = table(torch.tensor([1, 2]))
    >>> parameters = dict(nn.ModuleList([table, layer]).named_parameters())
    >>> (stream,) = streams_of(read_graph(x + layer(x.relu()), parameters))
    >>> stream.tables[0] is table.weight, stream.ends[0] is layer.weight
    (True, True)
    """
    graph = reading.graph
    makers: dict[Any, _Made] = {}
    for parameter, uses in reading.uses.items():
        for use in uses:
            if use.kind in ("matrix", "kernel"):
                makers[use.node] = _Made(maps=[parameter])
            elif use.kind in ("embedding", "token") and graph.operation(use.node) != "Add":
                makers[use.node] = _Made(tables=[parameter])
    leaves = {leaf: parameter for parameter, leaf in graph.leaves.items()}
    found: list[Stream] = []
    for node in graph.nodes:
        if graph.operation(node) == "Add" and len(graph.sources[node]) == 2:
            first, second = (_maker(graph, source, makers, leaves) for source in graph.sources[node])
            makers[node] = _added(first, second, found)
    return [stream for stream in found if stream.ends or len(stream.tables) > 1]


def _added(first: _Made, second: _Made, found: list[Stream]) -> _Made:
    if second.stream or (first.maps and not second.maps):
        first, second = second, first
    if first.maps and second.maps:
        return _Made(maps=[*first.maps, *second.maps])
    tables = not second.maps and bool(second.tables) and (bool(first.tables) or first.stream is not None)
    if not second.maps and not tables:
        return _Made(stream=first.stream)
    stream = first.stream
    if stream is None:
        stream = Stream(list(first.tables))
        found.append(stream)
    if tables and not stream.ends:
        stream.tables += second.tables
    stream.ends += second.maps
    return _Made(stream=stream)


def _maker(graph: Graph, value: Value, makers: dict[Any, _Made], leaves: dict[Any, Tensor]) -> _Made:
    """How a value was made, seen through views, casts, dropout, constant factors and a bias."""
    node = value[0]
    while node is not None:
        if node in leaves:  # added as it is: a bias if it is one vector, a table of positions if there are many
            parameter = leaves[node]
            return _Made(tables=[parameter]) if parameter.dim() > 1 else _Made()
        if node in makers:
            return makers[node]
        sources = [source for source in graph.sources[node] if source[0] is not None]
        if graph.operation(node) not in _SIMPLE or len(sources) != 1:
            return _Made()
        node = sources[0][0]
    return _Made()
