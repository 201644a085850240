"""Read a Module: which parameter is which atom, and how deep the network is.

The catalogue below goes by module type and the parameter's name within the module, never by the names that users give
their layers. `register_atom` adds to it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from autogd.geometry.atoms import Atom, Rule, kernel, matrix

__all__ = ["Role", "atom_from_shape", "read_roles", "register_atom"]

_catalogue: dict[tuple[type[nn.Module], str], Rule] = {
    (nn.Linear, "weight"): matrix,
    (nn.Conv1d, "weight"): kernel,
    (nn.Conv2d, "weight"): kernel,
    (nn.Conv3d, "weight"): kernel,
}


@dataclass(frozen=True)
class Role:
    """What one parameter is: its name in the model, the module that owns it and its atom."""

    name: str
    parameter: Tensor
    module: nn.Module
    atom: Atom


def register_atom(module_type: type[nn.Module], parameter_name: str, atom: Rule) -> None:
    """Teach the catalogue a layer of your own.

    Args:
        module_type: the layer's class; its subclasses follow.
        parameter_name: the parameter's name within the layer.
        atom: a function of the catalogue (`autogd.atoms.matrix`, ...), or one of yours that takes the parameter and
            its module and returns an `Atom`.

    >>> import torch
    >>> from autogd import AGD, atoms
    >>> class Mixer(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.mix = nn.Parameter(torch.eye(4))
    >>> register_atom(Mixer, "mix", atoms.matrix)
    >>> optimiser = AGD(Mixer())
    """
    _catalogue[module_type, parameter_name] = atom


def read_roles(model: nn.Module) -> list[Role]:
    """The role of every parameter, tied ones once; an unknown one is an error that names it.

    >>> [role.atom.kind for role in read_roles(nn.Sequential(nn.Linear(2, 3, bias=False)))]
    ['matrix']
    """
    roles = []
    for name, parameter, module in _owned(model):
        rule = _find(type(module), name.rpartition(".")[2])
        if rule is None:
            raise _unknown(name, parameter, module)
        roles.append(Role(name, parameter, module, rule(parameter, module)))
    return roles


def atom_from_shape(name: str, parameter: Tensor) -> Atom:
    """The atom of a parameter of which nothing but the shape is known.

    >>> atom_from_shape("w", nn.Linear(2, 3).weight).kind
    'matrix'
    """
    if parameter.dim() == 2:
        return matrix(parameter)
    if parameter.dim() in (3, 4, 5):
        return kernel(parameter)
    raise ValueError(
        f"{name}: AGD knows no atom for a lone parameter of shape {tuple(parameter.shape)}; "
        "pass the Module that owns it"
    )


def _unknown(name: str, parameter: Tensor, module: nn.Module) -> ValueError:
    kind, leaf = type(module).__name__, name.rpartition(".")[2]
    return ValueError(
        f"{name}: AGD knows no atom for the parameter {leaf!r} of {kind} (shape {tuple(parameter.shape)}); "
        f"register one with autogd.register_atom({kind}, {leaf!r}, ...)"
    )


def _owned(model: nn.Module) -> Iterator[tuple[str, Tensor, nn.Module]]:
    """Every parameter once, with its full name and the module that holds it."""
    seen: set[Tensor] = set()
    for path, module in model.named_modules():
        for leaf, parameter in module.named_parameters(prefix=path, recurse=False):
            if parameter not in seen:
                seen.add(parameter)
                yield leaf, parameter, module


def _find(module_type: type[nn.Module], leaf: str) -> Rule | None:
    for ancestor in module_type.__mro__:
        rule = _catalogue.get((ancestor, leaf))
        if rule is not None:
            return rule
    return None
