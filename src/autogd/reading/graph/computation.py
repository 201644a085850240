"""The computation of a forward pass, as autograd recorded it: operations, and the values that go between them.

A value is an output of an operation, `(node, number)`. Nothing is computed here and no saved tensor is opened (under
activation checkpointing that would run the layer again): shapes and the arguments that are numbers say enough.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

__all__ = ["ADDS", "LOOKUPS", "NORMS", "PRODUCTS", "Graph", "Roots", "Value", "roots_of", "tensors_in"]

Value = tuple[Any, int]

# for each product: the positions of its two factors, and of what is added to it
PRODUCTS = {
    "Mm": (0, 1), "Bmm": (0, 1), "Addmm": (1, 2, 0), "Baddbmm": (1, 2, 0), "Addbmm": (1, 2, 0), "Mv": (0, 1),
    "Addmv": (1, 2, 0), "Dot": (0, 1), "Vdot": (0, 1), "Linear": (0, 1, 2), "GroupedMm": (0, 1, 2),
    "MkldnnLinear": (0, 1, 2), "SparseAddmm": (1, 2, 0), "SparseMm": (0, 1),
}  # fmt: skip
ADDS = {"Add", "Sub", "Rsub"}
LOOKUPS = {"Embedding", "EmbeddingBag", "EmbeddingRenorm", "Index", "IndexSelect", "Gather", "Take"}
NORMS = {
    "NativeLayerNorm", "NativeBatchNorm", "NativeGroupNorm", "FusedRmsNorm", "CudnnBatchNorm", "MiopenBatchNorm",
    "MkldnnBatchNorm", "BatchNormImpl",
}  # fmt: skip

_SAME = {"View", "UnsafeView", "ReshapeAlias", "Permute", "Transpose", "T", "Expand", "Unsqueeze", "Clone", "ToCopy"}
_BY_ELEMENTS = {
    "Add", "Sub", "Rsub", "Mul", "Div", "Pow", "Where", "Addcmul", "Addcdiv", "Lerp", "Maximum", "Minimum", "Cat",
    "MaskedFill", "NativeDropout", "Complex", "Fmod", "Remainder",
}  # fmt: skip


def tensors_in(output: Any, depth: int = 4) -> Iterator[Tensor]:
    """Every tensor in what a forward pass returned: tuples, lists, dictionaries and dataclasses are opened."""
    if isinstance(output, Tensor):
        yield output
    elif depth and isinstance(output, Mapping):
        for value in output.values():
            yield from tensors_in(value, depth - 1)
    elif depth and isinstance(output, list | tuple):
        for value in output:
            yield from tensors_in(value, depth - 1)
    elif depth and is_dataclass(output) and not isinstance(output, type):
        for field in fields(output):
            yield from tensors_in(getattr(output, field.name, None), depth - 1)


class Roots(list[Value]):
    """The values that a forward pass returned; unlike the tensors, they hold no activations once backward is done."""


def roots_of(output: Any) -> Roots:
    """What a forward pass returned, as far as it has gradients."""
    return Roots((t.grad_fn, t.output_nr) for t in tensors_in(output) if t.grad_fn is not None)


class Graph:
    """What the outputs of a forward pass were computed from, back to the leaves.

    Args:
        outputs: tensors, or whatever the forward pass returned, or the roots of that.
        parameters: the leaves to read; other leaves are data.

    >>> import torch
    >>> weight = torch.nn.Parameter(torch.ones(2, 3))
    >>> graph = Graph(torch.ones(4, 2) @ weight, [weight])
    >>> [graph.operation(node) for node in graph.nodes]
    ['AccumulateGrad', 'Mm']
    """

    def __init__(self, outputs: Any, parameters: Iterable[Tensor]) -> None:
        roots = outputs if isinstance(outputs, Roots) else roots_of(outputs)
        known = set(parameters)
        self.leaves: dict[Tensor, Any] = {}
        self.sources: dict[Any, tuple[Value, ...]] = {}  # of each operation, its inputs; (None, 0) for a constant
        self._consumers: dict[Value, list[tuple[Any, int]]] = {}
        self._shapes: dict[Any, list[tuple[int, ...]]] = {}
        stack: list[Any] = [node for node, _ in roots]
        while stack:
            node = stack.pop()
            if node in self.sources:
                continue
            self.sources[node] = node.next_functions
            variable = getattr(node, "variable", None)
            if variable is not None and variable in known:
                self.leaves[variable] = node
            for position, (source, number) in enumerate(node.next_functions):
                if source is not None:
                    self._consumers.setdefault((source, number), []).append((node, position))
                    stack.append(source)
        # a hidden state that is returned beside the output is none
        self.outputs = [root for i, root in enumerate(roots) if i == 0 or not self.consumers(root)]

    @cached_property
    def nodes(self) -> list[Any]:
        """The operations, in the order of the forward pass; leaves first."""
        return sorted(self.sources, key=lambda node: -1 if hasattr(node, "variable") else node._sequence_nr())

    @cached_property
    def order(self) -> dict[Any, int]:
        """The place of each operation in the forward pass."""
        return {node: i for i, node in enumerate(self.nodes)}

    @staticmethod
    def operation(node: Any) -> str:
        """What the node did, without torch's suffix: Mm, Add, View. A function of a user's own keeps its whole name."""
        return _operation(node.name())

    def consumers(self, value: Value) -> list[tuple[Any, int]]:
        """The operations that take the value, each with the position that it has there."""
        return self._consumers.get(value, [])

    def other(self, node: Any, position: int) -> Value:
        """What an operation on two values takes beside the one at `position`: (None, 0) if that is a constant."""
        sources = self.sources[node]
        return sources[1 - position] if position < 2 <= len(sources) else (None, 0)

    def shape(self, value: Value) -> tuple[int, ...]:
        """The value's shape."""
        node, number = value
        if node not in self._shapes:
            self._shapes[node] = [() if m is None else tuple(map(int, m.shape)) for m in node._input_metadata]
        shapes = self._shapes[node]
        return shapes[number] if number < len(shapes) else ()

    @cached_property
    def data(self) -> set[Any]:
        """The operations whose results depend on more than parameters: on a batch, or on a copy for each sample."""
        leaves = set(self.leaves.values())
        found: set[Any] = set()
        for node in self.nodes:
            if self._brings_data(node, leaves) or any(source in found for source, _ in self.sources[node]):
                found.add(node)
        return found

    def _brings_data(self, node: Any, leaves: set[Any]) -> bool:
        sources = self.sources[node]
        if not sources:
            return node not in leaves
        operation = self.operation(node)
        if operation in LOOKUPS or operation in ("Repeat", "RepeatInterleave", "Scatter", "IndexPut"):
            return True
        shapes = [self.shape(source) for source in sources if source[0] is not None]
        after = math.prod(self.shape((node, 0)))
        if operation == "Expand":
            return after > math.prod(shapes[0])
        constants = any(source is None for source, _ in sources)
        if operation in PRODUCTS or operation in NORMS or operation == "Convolution":
            factors = PRODUCTS.get(operation, (0, 1))[:2]
            return any(sources[i][0] is None for i in factors if i < len(sources))
        if constants and operation not in _BY_ELEMENTS:
            return True
        # by elements with a constant: a larger result says that the constant was a batch
        return constants and (after > max(map(math.prod, shapes)) or len(self.shape((node, 0))) > max(map(len, shapes)))

    def origin(self, value: Value) -> Value:
        """The value that this one is a view or a cast of."""
        while value[0] is not None and self.operation(value[0]) in _SAME:
            value = self.sources[value[0]][0]
        return value

    def before(self, later: Any, first: int = 0) -> set[Any]:
        """The operations whose results went into this one, from the one at place `first` on; and the operation."""
        seen: set[Any] = set()
        stack = [later]
        while stack:
            node = stack.pop()
            if node is not None and node not in seen and self.order[node] >= first:
                seen.add(node)
                stack += [source for source, _ in self.sources[node]]
        return seen

    def comes_after(self, later: Any, earlier: Any) -> bool:
        """Whether one operation's result went into the other's."""
        return earlier in self.before(later, self.order[earlier])


def _operation(name: str) -> str:
    name = name.rpartition("::")[2]
    return _SUFFIX.sub("", name)


_SUFFIX = re.compile(r"Backward\d+$|Backwards$")  # a Function written in Python has no number
