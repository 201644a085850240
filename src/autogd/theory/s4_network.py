"""Bound how far a Module's output moves, operation by operation.

The representation of the computation is the one that the optimisers read: the autograd graph of one forward pass
(`autogd.reading.graph`). A bound holds for every input, so the pass runs on an input without numbers: a branch, a
factor or an index that depends on the input's numbers raises an error, and all inputs of that shape go through the same
operations in the same order. What a parameter does is what the reading says of its use, so `nn.Linear` and `x @ W` have
one bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _autograd
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from autogd.reading.agreement import merged
from autogd.reading.catalogue import Role, read_roles
from autogd.reading.graph import Reading, read_graph, without_numbers
from autogd.reading.graph.axes import OTHER, Factor, axes_of
from autogd.reading.graph.computation import ADDS, PRODUCTS, Value, tensors_in
from autogd.theory.s4_bound import Bound, given
from autogd.theory.s4_layers import Layer, Sizes, gain_map, linear_map, offset_map, rule_of
from autogd.theory.s4_operations import Flow, apply, replaced

__all__ = ["NetworkBound", "UnboundedError", "perturbation_bound"]


class UnboundedError(ValueError):
    """Some layers have no bound; `names` says which, and why."""

    def __init__(self, owner: str, names: dict[str, str]) -> None:
        self.names = names
        listed = "; ".join(f"{name}: {why}" for name, why in names.items())
        super().__init__(f"{owner} cannot be bounded: {listed}. Give a layer of yours a rule with register_bound(...)")


@dataclass(frozen=True)
class NetworkBound:
    """How far a network's output can move: `bound` in norms, the rest in units of root-mean-square.

    Args:
        bound: on the norm of one sample's output.
        outputs: d_L.
        shares: each trained parameter's share of η, which is its relative update in AGD: 1/L for a layer's weight.

    >>> network = perturbation_bound(nn.Linear(4, 4, bias=False), sizes="prescribed")
    >>> round(network.change(0.1), 6)
    0.1
    """

    bound: Bound
    outputs: int
    shares: dict[str, float]

    @property
    def size(self) -> float:
        """The largest root-mean-square that one sample's output can have (Lemma 3)."""
        return self.bound.size / math.sqrt(self.outputs)

    def change(self, relative: dict[str, float] | float) -> float:
        """The largest root-mean-square of Δf, for updates of the given relative sizes (Lemma 4)."""
        return self.bound.change(relative) / math.sqrt(self.outputs)

    def coefficients(self) -> Tensor:
        """`change` as a polynomial in η, for the relative sizes of AGD."""
        return self.bound.coefficients(self.shares) / math.sqrt(self.outputs)


def perturbation_bound(
    model: nn.Module, example: Tensor | None = None, *, sizes: Sizes = "measured", smallest: float = 0.0
) -> NetworkBound:
    """Bound the model's output and its movement, as functions of the relative sizes of the updates.

    Inputs are taken to have unit root-mean-square (Prescription 1). Raises `UnboundedError`, which names every layer
    that has no bound.

    Args:
        model: any Module that runs on an input without numbers: none of its choices depend on them.
        example: one batch, for the shapes; not needed if the first layer is `nn.Linear`.
        sizes: use the present norms of the weights, or those of Prescription 1.
        smallest: the domain of normalisation layers: the least root-mean-square of their inputs.

    >>> network = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 2, bias=False))
    >>> round(perturbation_bound(network, sizes="prescribed").change(0.1), 6)  # 1.1 × 1.1 − 1
    0.21
    """
    if example is None:
        example = _example(model)
    return _Walk(model, _Pass(model, example), sizes, smallest).bound()


def _example(model: nn.Module) -> Tensor:
    first = next((layer for layer in model.modules() if next(layer.parameters(recurse=False), None) is not None), None)
    if isinstance(first, nn.Linear):
        return torch.zeros(2, first.in_features).to(first.weight)
    raise ValueError(f"{type(model).__name__}: the first layer is not nn.Linear; call perturbation_bound(model, batch)")


@dataclass(frozen=True)
class _Call:
    """The call of a module in a pass: what it was given and returned, and the operations that it ran."""

    name: str
    module: nn.Module
    before: Value
    after: Value
    operations: range


class _Pass:
    """A forward pass in evaluation mode, on an input of the example's shape without numbers.

    The model is left as it was. Frozen parameters take part in the graph as trained ones do.
    """

    reading: Reading
    input: Value
    output: Value

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        self.calls: list[_Call] = []  # the inner one before the outer one
        self._begun: list[tuple[Value, int]] = []
        self._names = {module: name for name, module in model.named_modules()}
        frozen = [p for p in model.parameters() if p.is_floating_point() and not p.requires_grad]
        hooks = register_module_forward_pre_hook(self._begin), register_module_forward_hook(self._end)
        try:
            for parameter in frozen:
                parameter.requires_grad_()
            with without_numbers(model):
                model.eval()
                rows = max(len(example), 2)  # one sample would not show what mixes samples
                x = torch.zeros(rows, *example.shape[1:], dtype=example.dtype, device=example.device)
                x = x.requires_grad_().clone()
                self.input = _value(x)
                output = model(x)
            if not isinstance(output, Tensor) or output.grad_fn is None:
                raise ValueError("its output is not one tensor that depends on the input")
            self.output = _value(output)
            self.reading = read_graph(output, dict(model.named_parameters()))
        except Exception as error:  # it runs the user's forward, which may raise anything
            why = f"it does not run on an input without numbers ({type(error).__name__}: {error})"
            raise UnboundedError(type(model).__name__, {"forward": why}) from error
        finally:
            for hook in hooks:
                hook.remove()
            for parameter in frozen:
                parameter.requires_grad_(False)

    def _begin(self, module: nn.Module, args: Any) -> None:
        self._begun.append((_value(args), _autograd._get_sequence_nr()))

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        before, first = self._begun.pop()
        made = range(first, _autograd._get_sequence_nr())
        self.calls.append(_Call(self._names.get(module, ""), module, before, _value(output), made))


def _value(passed: Any) -> Value:
    tensor = next(tensors_in(passed), None)
    return (None, 0) if tensor is None else (tensor.grad_fn, tensor.output_nr)


class _Walk:
    """Computes a bound for every value of a pass that depends on the input."""

    def __init__(self, model: nn.Module, passed: _Pass, sizes: Sizes, smallest: float) -> None:
        self.owner, self.passed, self.sizes, self.smallest = type(model).__name__, passed, sizes, smallest
        self.reading, self.graph = passed.reading, passed.reading.graph
        self.known = {role.parameter: role for role in merged(read_roles(model, readout=False), passed.reading)}
        self.leaves = {leaf: parameter for parameter, leaf in self.graph.leaves.items()}
        ruled = [call for call in passed.calls if rule_of(call.module) and call.before[0] not in (None, call.after[0])]
        self.ruled = {call.after: call for call in ruled}  # the outermost of several that return the same
        self.flows: dict[Value, Flow] = {}
        self.roles: dict[str, Role] = {}  # of the parameters that have a bound

    def bound(self) -> NetworkBound:
        """The bound on the output."""
        unbounded: dict[str, str] = {}
        first, last = self.passed.input, self.passed.output
        self.flows[first] = self._flow(first, given(math.sqrt(self._entries(first))))
        for node in self._needed():
            try:
                self.flows |= self._step(node)
            except ValueError as error:
                name, owner = self._place(node)
                unbounded.setdefault(name or "forward", f"{error} ({self.graph.operation(node)} in {owner})")
                # continue, so that the error names all of them
                values = [(node, number) for number in range(len(node._input_metadata))]
                self.flows |= {value: self._flow(value, given(0.0)) for value in values}
        if last not in self.flows:
            raise UnboundedError(self.owner, {"forward": "its output does not depend on its input"})
        if self.flows[last].samples != self._flow(last, given(0.0)).samples:
            unbounded["forward"] = "it moves the batch dimension"
        if unbounded:
            raise UnboundedError(self.owner, unbounded)
        return NetworkBound(self.flows[last].bound, self._entries(last), self._shares())

    def _needed(self) -> list[Any]:
        """The operations between input and output, in the order of the pass; a layer with a rule is one step."""
        seen, stack = {self.passed.input[0]}, [self.passed.output]
        while stack:
            value = stack.pop()
            if value[0] is not None and value[0] not in seen:
                seen.add(value[0])
                stack += [self.ruled[value].before] if value in self.ruled else self.graph.sources[value[0]]
        return sorted(seen - {self.passed.input[0]}, key=self.graph.order.__getitem__)

    def _place(self, node: Any) -> tuple[str, str]:
        """The name and type of the innermost module that ran the operation."""
        made = node._sequence_nr()
        called = (call for call in self.passed.calls if made in call.operations)
        return next(((call.name, type(call.module).__name__) for call in called), ("", self.owner))

    def _entries(self, value: Value) -> int:
        """How many numbers of the value are one sample's."""
        return math.prod(self.graph.shape(value)) // self.graph.shape(self.passed.input)[0]

    def _flow(self, value: Value, bound: Bound) -> Flow:
        """A value whose first dimension counts samples."""
        first, *rest = axes_of(self.graph.shape(value)) or ((),)
        return Flow(bound, (first, *(tuple(Factor(f.size, OTHER) for f in dim) for dim in rest)))

    def _step(self, node: Any) -> dict[Value, Flow]:
        """The bound on what an operation returns; nothing if it depends on parameters and constants alone."""
        value, sources, operation = (node, 0), self.graph.sources[node], self.graph.operation(node)
        if value in self.ruled:
            return {value: self._layer(self.ruled[value])}
        places = [i for i, source in enumerate(sources) if source in self.flows]
        if not places:
            return {}
        if "BatchNorm" in operation:
            raise ValueError("it couples the samples of a batch, no bound is known")
        held = [i for i, source in enumerate(sources) if self.graph.origin(source)[0] in self.leaves]
        if not held and operation not in PRODUCTS and operation != "Convolution":
            return apply(self.graph, node, self.flows)
        if any(getattr(node, f"_saved_{name}", 1) != 1 for name in ("alpha", "beta")):
            raise ValueError("a sum with further settings")
        h, shape = self.flows[sources[places[0]]], self.graph.shape(value)
        alike = self.graph.shape(sources[places[0]]) == shape
        if operation in ADDS and alike:
            return {value: self._added(node, held[0], h)}
        if operation == "Mul" and alike:
            role = self._used(node, held[0], "gain", samples=h.samples)
            return {value: Flow(gain_map(role)(h.bound), h.axes)}
        if operation == "Convolution" and places == [0]:
            kernel = linear_map(self._used(node, 1, "kernel"), self.sizes, int(node._saved_groups))
            after = Flow(kernel(h.bound), replaced(h.axes, range(1, len(shape)), shape))
            return {value: self._added(node, 2, after) if any(node._saved_bias_sym_sizes_opt) else after}
        if operation in ("Mm", "Addmm", "Bmm", "Baddbmm") and len(places) == 1:
            # every vector along the dimension that is contracted meets the same map
            first, second, *added = PRODUCTS[operation]
            weight, dim = (second, -1) if places == [first] else (first, -2)
            product = linear_map(self._used(node, weight, "matrix"), self.sizes)
            after = Flow(product(h.bound), replaced(h.axes, [dim], shape))
            return {value: self._added(node, added[0], after) if added else after}
        raise ValueError("no bound is known")

    def _added(self, node: Any, position: int, h: Flow) -> Flow:
        role = self._used(node, position, "bias", "token", samples=h.samples)
        return Flow(offset_map(role, self.sizes, self._entries((node, 0)))(h.bound), h.axes)

    def _used(self, node: Any, position: int, *kinds: str, samples: Sequence[Any] = ()) -> Role:
        """The role of the parameter that the operation takes at a position, perhaps through views."""
        source = self.graph.sources[node][position]
        parameter = self.leaves.get(self.graph.origin(source)[0])
        if parameter is None:
            raise ValueError("takes something that is neither a value of the network nor a parameter")
        role, shape = self.known[parameter], self.graph.shape(source)
        use = next((use for use in self.reading.uses[parameter] if use.node is node), None)
        kind = "other" if use is None else use.kind
        if use is None or kind not in kinds or role.source == "shape":
            told = False
        elif kind in ("matrix", "kernel"):  # a parameter of two dimensions is the same matrix in every use
            factors = use.rows + use.columns + (use.grid if kind == "kernel" else ())
            told = math.prod(f.size for f in factors) == math.prod(shape if kind == "kernel" else shape[-2:])
            told = told and (parameter.dim() == 2 or len(self.reading.candidates[parameter]) == 1)
        else:  # it must not be another vector for each sample
            told = not any(n > 1 and counts for n, counts in zip(reversed(shape), reversed(samples), strict=False))
        if not told:
            raise ValueError(f"{role.name} is used in a way ({kind}) that has no bound")
        self.roles[role.name] = role
        return role

    def _layer(self, call: _Call) -> Flow:
        """A layer whose type has a rule."""
        h, after = self.flows.get(call.before), self._flow(call.after, given(0.0))
        rule = rule_of(call.module)
        if rule is None or h is None or h.samples[0] != after.samples[0]:
            raise ValueError("it moves the batch dimension")
        prefix = f"{call.name}." if call.name else ""
        roles = {role.name: replace(role, name=prefix + role.name) for role in read_roles(call.module)}
        shapes = self.graph.shape(call.before)[1:], self.graph.shape(call.after)[1:]
        layer = Layer(call.module, call.name, roles, self.sizes, self.smallest, *shapes)
        self.roles |= {role.name: role for role in roles.values()}
        return Flow(rule(layer)(h.bound), after.axes)

    def _shares(self) -> dict[str, float]:
        """Every trained parameter's share of η, as in AGD; tied parameters count once in L."""
        trained = {name: role for name, role in self.roles.items() if role.parameter.requires_grad}
        depth = sum(role.atom.depth for role in {role.parameter: role for role in trained.values()}.values())
        return {name: role.atom.depth_share / depth for name, role in trained.items()}
