"""Parameters that no layer of the table owns: what they do is read from the graph of the example's forward pass.

So a network written with `x @ W` has the bound of the same one written with `nn.Linear`. The graph does not replace the
trace. A bound holds for every input, and an autograd graph is of one: it has the branch that the example took, no
constants that were added, no ε of a layer norm, and nothing about parameters that are frozen. The trace refuses a
computation that depends on its input's numbers; the graph says, in such a computation, what a parameter is.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx, nn

from autogd.geometry.norms import operator_norm
from autogd.reading.agreement import merged
from autogd.reading.catalogue import Role, read_roles
from autogd.reading.graph import read_model
from autogd.theory.s4_perturbation.bound import Bound, compose, linear, offset

__all__ = ["RawParameters"]

_TURNS = {"T", "mT", "H", "mH", "t", "transpose", "view", "reshape", "permute", "contiguous", "getattr", "swapaxes"}
_PRODUCTS = {"linear": 0, "matmul": 0, "mm": 0, "addmm": 1, "einsum": 1}  # the place of the activations
_SUMS, _SCALINGS = {"add", "iadd"}, {"mul", "imul"}


class RawParameters:
    """The parameters that a traced network uses outside of layers, and what each use does to a bound.

    Args:
        model: the Module.
        example: one batch.
        measured: whether norms are those of the present weights; else those of Prescription 1.
    """

    def __init__(self, model: nn.Module, example: Tensor, measured: bool) -> None:
        self._model, self._example, self._measured = model, example, measured
        self._known: dict[Tensor, Role] | None = None
        self._of: dict[fx.Node, Tensor] = {}

    def note(self, node: fx.Node, value: Any) -> bool:
        """Take note of a parameter, or of a view of one; False if the value is nothing of the kind."""
        sources = [self._of[each] for each in node.all_input_nodes if each in self._of]
        if node.op == "get_attr" and isinstance(value, nn.Parameter):
            self._of[node] = value
        elif len(sources) == len(node.all_input_nodes) == 1 and _name(node) in _TURNS:
            self._of[node] = sources[0]
        return node in self._of

    def apply(self, node: fx.Node, before: Tensor, after: Tensor) -> tuple[Callable[[Bound], Bound], list[Role]] | None:
        """The map of a function with raw parameters, and their roles; None if it has none."""
        parameters = [self._of[each] for each in node.all_input_nodes if each in self._of]
        if not parameters:
            return None
        roles = [self._role(parameter) for parameter in parameters]
        maps = [self._map(role, node, before, after) for role in roles]
        # the product comes before what is added to it
        order = sorted(range(len(maps)), key=lambda i: roles[i].atom.kind != "matrix")
        return compose(*(maps[i] for i in order)), roles

    def _role(self, parameter: Tensor) -> Role:
        if self._known is None:
            reading = read_model(self._model, self._example)
            roles = merged(read_roles(self._model, readout=False), reading)
            self._known = {role.parameter: role for role in roles}
        return self._known[parameter]

    def _map(self, role: Role, node: fx.Node, before: Tensor, after: Tensor) -> Callable[[Bound], Bound]:
        atom, told, function = role.atom, role.source != "shape" and role.atom.parts == 1, _name(node)
        entries = math.prod(after.shape[1:])
        measured = self._measured or atom.start == "as it is"  # as `initialise_` leaves it
        size = float(operator_norm(role.parameter, atom).sum()) if measured else atom.target * atom.parts
        unit = atom.scale * atom.parts
        plain = before.dim() > 1 and all(isinstance(each, fx.Node) for each in node.kwargs.values())
        if told and plain and atom.kind == "matrix" and self._keeps_samples(node):
            positions = math.prod(before.shape[1:]) // atom.fan_in
            if positions * atom.fan_out == entries:  # positions are not added up
                return linear(role.name, size, unit)
        elif told and plain and atom.kind == "bias" and function in {*_PRODUCTS, *_SUMS}:
            times = math.sqrt(entries / role.parameter.numel())
            return offset(role.name, times * size, times * unit)
        elif told and plain and atom.kind == "gain" and function in _SCALINGS and before.shape == after.shape:
            # a perturbation of norm √d may lie in one entry
            return linear(role.name, float(role.parameter.detach().abs().max()), unit)
        raise ValueError(f"{role.name} is used in a way ({atom.kind}, {function}) that has no bound")

    def _keeps_samples(self, node: fx.Node) -> bool:
        """Whether a product is taken within each sample: the batch is the activations' first dimension, and goes on."""
        place = _PRODUCTS.get(_name(node))
        if place is None:
            return False
        if _name(node) != "einsum":
            return node.args[place] not in self._of
        terms, _, result = str(node.args[0]).replace(" ", "").partition("->")
        pairs = list(zip(terms.split(","), node.args[1:], strict=False))
        own = [term for term, operand in pairs if operand in self._of]
        others = [term for term, operand in pairs if operand not in self._of]
        if len(pairs) != 2 or len(others) != 1 or not result or "." in terms:
            return False
        return others[0][0] == result[0] and result[0] not in own[0]


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", ""))
