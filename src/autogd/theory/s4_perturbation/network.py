"""Bound how far a Module's output moves, layer by layer.

The model is traced (`torch.fx`) and run once on an example, for the shapes; every value gets a `Bound`. The table below
has a rule for each module type, and `register_bound` adds to it. What a parameter outside of such layers does is read
from the autograd graph (`raw`, which says why the graph alone cannot serve).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from autogd.geometry.norms import operator_norm
from autogd.reading.catalogue import Role, read_roles
from autogd.theory.s4_perturbation import operations
from autogd.theory.s4_perturbation.bound import (
    Bound,
    average_pool,
    compose,
    elementwise,
    given,
    linear,
    normalise,
    offset,
)
from autogd.theory.s4_perturbation.raw import RawParameters

__all__ = ["Layer", "NetworkBound", "UnboundedError", "perturbation_bound", "register_bound"]

Sizes = Literal["measured", "prescribed"]


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


@dataclass(frozen=True)
class Layer:
    """The argument of a rule: module, name, its parameters' roles, and input and output shape (without batch)."""

    module: nn.Module
    name: str
    roles: dict[str, Role]
    sizes: Sizes
    smallest: float
    before: tuple[int, ...]
    after: tuple[int, ...]

    def norm(self, leaf: str) -> Tensor:
        """The operator norm of each of the parameter's matrices: measured, or as in Prescription 1."""
        role = self.roles[leaf]
        if self.sizes == "prescribed":
            return torch.full((role.atom.parts,), role.atom.target, dtype=torch.float64)
        return operator_norm(role.parameter, role.atom).double()

    def full(self, leaf: str) -> str:
        """The parameter's name in the model."""
        return f"{self.name}.{leaf}" if self.name else leaf

    def linear(self, blocks: int = 1) -> Callable[[Bound], Bound]:
        """The weight as `blocks` independent sums of matrices, and the bias if there is one."""
        per_block = self.norm("weight").view(blocks, -1)
        unit = self.roles["weight"].atom.scale * per_block.shape[1]
        weight = linear(self.full("weight"), float(per_block.sum(1).max()), unit)
        return weight if "bias" not in self.roles else compose(weight, self.bias())

    def bias(self) -> Callable[[Bound], Bound]:
        """The bias, counted once per position of the output."""
        role = self.roles["bias"]
        times = math.sqrt(math.prod(self.after) / role.parameter.numel())
        size = float(torch.linalg.vector_norm(self.norm("bias")))
        return offset(self.full("bias"), times * size, times * role.atom.scale * math.sqrt(role.atom.parts))


Rule = Callable[[Layer], Callable[[Bound], Bound]]


def _linear(layer: Layer) -> Callable[[Bound], Bound]:
    return layer.linear()


def _convolution(layer: Layer) -> Callable[[Bound], Bound]:
    # a shift has norm one: the map's norm is at most the sum over taps, and the groups act on separate channels
    return layer.linear(blocks=int(layer.module.groups))  # type: ignore[arg-type]


def _norm(layer: Layer) -> Callable[[Bound], Bound]:
    epsilon = layer.module.eps
    floor = torch.finfo(torch.get_default_dtype()).eps if epsilon is None else float(epsilon)  # type: ignore[arg-type]
    normal = normalise(math.prod(layer.before), layer.smallest, floor)
    if "weight" not in layer.roles:
        return normal
    gain = layer.roles["weight"]
    scaled = compose(normal, linear(layer.full("weight"), float(gain.parameter.detach().abs().max()), gain.atom.scale))
    return compose(scaled, layer.bias()) if "bias" in layer.roles else scaled


_rules: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.LayerNorm: _norm,
    nn.RMSNorm: _norm,
    nn.AvgPool1d: lambda layer: average_pool(*operations.windows(layer.module, layer.before)),
    nn.AvgPool2d: lambda layer: average_pool(*operations.windows(layer.module, layer.before)),
    nn.MaxPool1d: lambda layer: elementwise(math.sqrt(operations.windows(layer.module, layer.before)[1])),
    nn.MaxPool2d: lambda layer: elementwise(math.sqrt(operations.windows(layer.module, layer.before)[1])),
    nn.AdaptiveAvgPool1d: lambda layer: average_pool(operations.adaptive_window(layer.before, layer.after, 1)),
    nn.AdaptiveAvgPool2d: lambda layer: average_pool(operations.adaptive_window(layer.before, layer.after, 2)),
    nn.LeakyReLU: lambda layer: elementwise(max(1.0, abs(float(layer.module.negative_slope)))),  # type: ignore[arg-type]
    nn.ELU: lambda layer: elementwise(max(1.0, float(layer.module.alpha))),  # type: ignore[arg-type]
}


def register_bound(module_type: type[nn.Module], rule: Rule) -> None:
    """Add a rule for your own layer: it takes a `Layer` and returns a function from bound to bound.

    >>> class Doubled(nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> register_bound(Doubled, lambda layer: elementwise(2.0))
    >>> network = nn.Sequential(nn.Linear(4, 4, bias=False), Doubled())
    >>> round(perturbation_bound(network, sizes="prescribed").size, 6)
    2.0
    """
    _rules[module_type] = rule


def perturbation_bound(
    model: nn.Module, example: Tensor | None = None, *, sizes: Sizes = "measured", smallest: float = 0.0
) -> NetworkBound:
    """Bound the model's output and its movement, as functions of the relative sizes of the updates.

    Inputs are taken to have unit root-mean-square (Prescription 1). Raises `UnboundedError`, which names every layer
    that has no bound.

    Args:
        model: any Module that `torch.fx` can trace.
        example: one batch, for the shapes; not needed if the first layer is `nn.Linear`.
        sizes: use the present norms of the weights, or those of Prescription 1.
        smallest: the domain of normalisation layers: the least root-mean-square of their inputs.

    >>> network = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 2, bias=False))
    >>> round(perturbation_bound(network, sizes="prescribed").change(0.1), 6)  # 1.1 × 1.1 − 1
    0.21
    """
    if example is None:
        example = _example(model)
    training = {module: module.training for module in model.modules()}
    try:
        model.eval()
        walker = _Walker(model, example, sizes, smallest)
        with torch.no_grad():
            output = walker.run(example)
    finally:
        for module, mode in training.items():
            module.training = mode
    if walker.unbounded:
        raise UnboundedError(type(model).__name__, walker.unbounded)
    bound = walker.bounds[walker.last]
    return NetworkBound(bound, math.prod(output.shape[1:]), walker.shares())


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _find(m) is not None or super().is_leaf_module(m, module_qualified_name)


class _Walker(fx.Interpreter):
    """Runs the traced model and computes a bound for every value."""

    def __init__(self, model: nn.Module, example: Tensor, sizes: Sizes, smallest: float) -> None:
        lone = nn.Sequential(model) if _find(model) is not None else model  # a single layer cannot be traced
        self.prefix = "0" if lone is not model else None
        try:
            graph = _Tracer().trace(lone)
        except Exception as error:  # tracing runs the user's forward, which may raise anything
            raise UnboundedError(type(model).__name__, {"forward": f"torch.fx cannot trace it ({error})"}) from error
        super().__init__(fx.GraphModule(lone, graph))
        self.sizes, self.smallest = sizes, smallest
        self.bounds: dict[fx.Node, Bound] = {}
        self.unbounded: dict[str, str] = {}
        self.roles: dict[str, Role] = {}
        self.raw = RawParameters(model, example, sizes == "measured")
        self.last: fx.Node

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "placeholder":
            self.bounds[n] = given(math.sqrt(math.prod(value.shape[1:])))
        elif n.op == "output":
            self.last = n.all_input_nodes[0]
        else:
            self._bound(n, value)
        return value

    def _bound(self, n: fx.Node, value: Any) -> None:
        if not isinstance(value, Tensor):
            return  # a shape or another number
        inputs = [node for node in n.all_input_nodes if node in self.bounds]
        place = n.name
        try:
            if n.op == "call_module":
                place = str(n.target)
                self.bounds[n] = self._module(place, self.env[inputs[0]], value)(self.bounds[inputs[0]])
            elif self.raw.note(n, value):
                return
            elif n.op in ("call_function", "call_method"):
                place = f"{n.name} ({getattr(n.target, '__name__', n.target)})"
                raw = self.raw.apply(n, self.env[inputs[0]], value) if len(inputs) == 1 else None
                if raw is None:
                    self.bounds[n] = operations.apply(n, self.bounds, self.env, value)
                else:
                    self.bounds[n] = raw[0](self.bounds[inputs[0]])
                    self.roles |= {role.name: role for role in raw[1]}
            else:
                raise ValueError("a buffer used outside a layer")
        except ValueError as error:
            self.unbounded[place] = str(error)
            self.bounds[n] = given(0.0)  # continue, so that the error names all of them

    def shares(self) -> dict[str, float]:
        """Every trained parameter's share of η, as in AGD; tied parameters count once in L."""
        trained = {name: role for name, role in self.roles.items() if role.parameter.requires_grad}
        depth = sum(role.atom.depth for role in {role.parameter: role for role in trained.values()}.values())
        return {name: role.atom.depth_share / depth for name, role in trained.items()}

    def _module(self, name: str, before: Tensor, after: Tensor) -> Callable[[Bound], Bound]:
        module = self.fetch_attr(name)
        rule = _find(module)
        if rule is None:
            return operations.of_module(module, math.prod(after.shape[1:]))
        roles = {role.name: role for role in read_roles(module)}
        place = name if name != self.prefix else ""
        self.roles |= {f"{place}.{leaf}" if place else leaf: role for leaf, role in roles.items()}
        shapes = tuple(before.shape[1:]), tuple(after.shape[1:])
        return rule(Layer(module, place, roles, self.sizes, self.smallest, *shapes))


def _find(module: nn.Module) -> Rule | None:
    return next((_rules[ancestor] for ancestor in type(module).__mro__ if ancestor in _rules), None)


def _example(model: nn.Module) -> Tensor:
    for module in model.modules():
        if next(module.parameters(recurse=False), None) is not None:
            if isinstance(module, nn.Linear):
                return torch.zeros(1, module.in_features).to(module.weight)
            break
    raise ValueError(f"{type(model).__name__}: the first layer is not nn.Linear; call perturbation_bound(model, batch)")
