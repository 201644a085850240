"""Read a forward pass: the atom of every parameter that it used, the readout, and the layers that compound."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from autogd.geometry.atom import Atom
from autogd.geometry.atoms import on_real_view
from autogd.reading.graph.computation import NORMS, PRODUCTS, Graph
from autogd.reading.graph.cuts import atoms_of_uses, flat_buffer
from autogd.reading.graph.moves import is_custom
from autogd.reading.graph.use import Use
from autogd.reading.graph.uses import uses_of

__all__ = ["Reading", "read_graph"]


@dataclass(frozen=True)
class Reading:
    """What one forward pass says about its parameters.

    Args:
        graph: the computation.
        uses: for each parameter that the pass used.
        candidates: for each parameter whose uses are known, an atom for each kind of use.
        atoms: the one of them that counts.
    """

    graph: Graph
    uses: dict[Tensor, list[Use]]
    candidates: dict[Tensor, list[Atom]]
    atoms: dict[Tensor, Atom]

    @cached_property
    def opaque(self) -> set[Tensor]:
        """The parameters that the pass used as matrices, in an operation of unknown effect."""
        return {
            parameter
            for parameter, uses in self.uses.items()
            if parameter not in self.atoms and any(use.kind == "unknown" and use.wide for use in uses)
        }

    @property
    def hides(self) -> bool:
        """Whether functions of the pass do not show their inside: compiled code, a checkpoint, a function of yours."""
        return not self.atoms or any(is_custom(node) for node in self.graph.nodes)

    @cached_property
    def readouts(self) -> list[Tensor]:
        """The parameters of the last products before the outputs: logits may have any size, so their size is free.

        Several if their products are added up (one product with a longer input), or if there are more outputs.
        """
        maps: dict[Any, list[Tensor]] = {}
        for parameter, uses in self.uses.items():
            for use in uses:
                if use.kind in ("matrix", "kernel"):
                    maps.setdefault(use.node, []).append(parameter)
        found: list[Any] = []
        stack = [node for node, _ in self.graph.outputs]
        seen: set[Any] = set()
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node in maps:
                found.append(node)
            elif not _is_frozen_map(self.graph, node):
                stack += [source for source, _ in self.graph.sources[node]]
        last: list[Any] = []
        # the scores of attention are a product too, and later than the values
        found = [node for node in found if any(self._is_held(p) for p in maps[node])] or found
        while found:
            last.append(max(found, key=self.graph.order.__getitem__))
            earlier = self.graph.before(last[-1])
            found = [node for node in found if node not in earlier]
        return [parameter for node in last for parameter in maps[node]]

    def _is_held(self, parameter: Tensor) -> bool:
        return parameter in self.atoms and replace(self.atoms[parameter], free=False).held_at < math.inf

    def renamed(self, twins: Mapping[Tensor, Tensor]) -> "Reading":
        """The same reading for other tensors: the sharded parameters behind all-gathered ones."""
        uses, candidates, atoms = (
            {twins.get(parameter, parameter): value for parameter, value in told.items()}
            for told in (self.uses, self.candidates, self.atoms)
        )
        return Reading(self.graph, uses, candidates, atoms)  # type: ignore[arg-type]

    def chain(self, atoms: Mapping[Tensor, Atom]) -> float:
        """D, the longest chain of layers without a norm layer among them; each layer counts once in it.

        In a chain relative changes multiply (deep relative trust). A norm layer brings its input back to its size, so
        what came before it does not multiply with what comes after.

        Args:
            atoms: of all parameters, for their shares of the depth.
        """
        at: dict[Any, list[tuple[int, float]]] = {}
        parts: dict[Any, int] = {}  # a layer picked from a stack is a layer of its own
        for parameter, uses in self.uses.items():
            if parameter in atoms:
                for use in uses:
                    bit = 1 << parts.setdefault((parameter, use.picked), len(parts))
                    at.setdefault(use.node, []).append((bit, atoms[parameter].depth_share))
        longest = 0.0
        ways: dict[Any, tuple[float, int]] = {}
        for node in self.graph.nodes:
            if _is_norm(self.graph, node):
                ways[node] = (0.0, 0)
                continue
            sources = (ways.get(source, (0.0, 0)) for source, _ in self.graph.sources[node])
            length, passed = max(sources, default=(0.0, 0))
            for bit, share in at.get(node, ()):
                if not passed & bit:
                    length, passed = length + share, passed | bit
            ways[node] = (length, passed)
            longest = max(longest, length)
        return longest


def read_graph(outputs: Any, parameters: Mapping[str, Tensor]) -> Reading:
    """Read the autograd graph behind what a forward pass returned.

    >>> import torch
    >>> weight = torch.nn.Parameter(torch.ones(2, 3))
    >>> read_graph(torch.ones(4, 2) @ weight, {"weight": weight}).atoms[weight].columns
    (0,)
    """
    graph = Graph(outputs, parameters.values())
    uses = {parameter: uses_of(graph, (leaf, 0)) for parameter, leaf in graph.leaves.items()}
    told = {p: atoms_of_uses(graph, p.shape, found) for p, found in uses.items() if p.numel()}
    for parameter, leaf in graph.leaves.items():
        if (flat := flat_buffer(graph, leaf)) is not None:
            uses[parameter], told[parameter] = flat[0], [flat[1]]
    told = {p: [on_real_view(atom, p) for atom in candidates] for p, candidates in told.items()}
    atoms = {parameter: candidates[0] for parameter, candidates in told.items() if candidates}
    reading = Reading(graph, uses, told, atoms)
    for parameter in reading.readouts:
        if parameter in atoms and atoms[parameter].held_at < math.inf:
            atoms[parameter] = replace(atoms[parameter], free=True)
    return reading


def _is_frozen_map(graph: Graph, node: Any) -> bool:
    """Whether activations are multiplied with a constant: a layer that is not trained."""
    operation = graph.operation(node)
    places = (0, 1) if operation == "Convolution" else PRODUCTS.get(operation, ())[:2]
    return operation not in ("Bmm", "Baddbmm") and any(graph.sources[node][place][0] is None for place in places)


def _is_norm(graph: Graph, node: Any) -> bool:
    """Whether the operation divides activations by their own size."""
    operation = graph.operation(node)
    if operation in NORMS:
        return True
    if operation not in ("Mul", "Div") or node not in graph.data:
        return False
    for source, _ in graph.sources[node][0 if operation == "Mul" else 1 :]:
        for _ in range(4):  # through an expand, or a clamp that keeps it from zero
            if source is None or source not in graph.data:
                break
            name = graph.operation(source)
            if name == "Rsqrt" or (operation == "Div" and name in ("Sqrt", "LinalgVectorNorm", "Norm", "Std")):
                return True
            if name not in ("Expand", "Unsqueeze", "View", "ClampMin", "Add", "Clone", "ToCopy"):
                break
            source = graph.sources[source][0][0]
    return False
