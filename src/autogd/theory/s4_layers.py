"""Rules for parameters: what a weight, a bias or a gain does to a bound; and for layers that are taken as a whole.

An ε is not in the graph of a pass. So norm layers are taken as a whole, by their type; `register_bound` adds yours.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from autogd.geometry.norms import operator_norm
from autogd.reading.catalogue import Role
from autogd.theory.s4_bound import Map, compose, linear, normalise, offset

__all__ = ["Layer", "Rule", "Sizes", "gain_map", "linear_map", "offset_map", "register_bound", "rule_of"]

Sizes = Literal["measured", "prescribed"]


def _norms(role: Role, sizes: Sizes) -> Tensor:
    """The operator norm of each of the parameter's matrices: measured, or as in Prescription 1."""
    if sizes == "measured" or role.atom.start == "as it is":  # `initialise_` leaves it
        return operator_norm(role.parameter, role.atom).double()
    return torch.full((role.atom.parts,), role.atom.target, dtype=torch.float64)


def linear_map(role: Role, sizes: Sizes, blocks: int = 1) -> Map:
    """A weight, as `blocks` independent sums of matrices.

    A shift has norm one: a convolution's norm is at most the sum over its taps, and groups act on separate channels.
    """
    per_block = _norms(role, sizes).view(blocks, -1)
    return linear(role.name, float(per_block.sum(1).max()), role.atom.scale * per_block.shape[1])


def offset_map(role: Role, sizes: Sizes, entries: int) -> Map:
    """An added vector, counted once per position of a value that has so many entries."""
    times = math.sqrt(entries / role.parameter.numel())
    size = float(torch.linalg.vector_norm(_norms(role, sizes)))
    return offset(role.name, times * size, times * role.atom.scale * math.sqrt(role.atom.parts))


def gain_map(role: Role) -> Map:
    """Factors of the entries; a perturbation of norm √d may lie in one of them."""
    return linear(role.name, float(role.parameter.detach().abs().max()), role.atom.scale * role.atom.parts)


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


Rule = Callable[[Layer], Map]


def _norm_layer(layer: Layer) -> Map:
    epsilon = layer.module.eps
    floor = torch.finfo(torch.get_default_dtype()).eps if epsilon is None else float(epsilon)  # type: ignore[arg-type]
    normal = normalise(math.prod(layer.before), layer.smallest, floor)
    if "weight" not in layer.roles:
        return normal
    scaled = compose(normal, gain_map(layer.roles["weight"]))
    if "bias" not in layer.roles:
        return scaled
    return compose(scaled, offset_map(layer.roles["bias"], layer.sizes, math.prod(layer.after)))


_rules: dict[type[nn.Module], Rule] = {nn.LayerNorm: _norm_layer, nn.RMSNorm: _norm_layer}


def register_bound(module_type: type[nn.Module], rule: Rule) -> None:
    """Add a rule for your own layer: it takes a `Layer` and returns a function from bound to bound.

    >>> from autogd.theory import perturbation_bound
    >>> from autogd.theory.s4_bound import elementwise
    >>> class Doubled(nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> register_bound(Doubled, lambda layer: elementwise(2.0))
    >>> network = nn.Sequential(nn.Linear(4, 4, bias=False), Doubled())
    >>> round(perturbation_bound(network, sizes="prescribed").size, 6)
    2.0
    """
    _rules[module_type] = rule


def rule_of(module: nn.Module) -> Rule | None:
    """The rule of a module's type, or of one that it inherits from.

    >>> rule_of(nn.Linear(2, 2)) is None
    True
    """
    return next((_rules[ancestor] for ancestor in type(module).__mro__ if ancestor in _rules), None)
