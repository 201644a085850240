"""Read a Module: which parameter is which atom.

The catalogue goes by module type and the parameter's path within that module, never by the names that users give their
layers. A path may have wildcards and may reach into children (`c_attn.weight` of a GPT2Attention); the outermost module
that knows a parameter decides, since it knows most about it. `register_atom` adds to the catalogue.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrize import ParametrizationList

from autogd.geometry.atom import LAYERS
from autogd.geometry.atoms import (
    VECTOR,
    Atom,
    Rule,
    bias,
    bias_share,
    bilinear,
    embedding,
    gain,
    kernel,
    matrix,
    on_real_view,
    token,
)
from autogd.reading.others import OTHERS, lone, parametrised, provisional

__all__ = ["Role", "Source", "read_roles", "register_atom", "roles_from_shape", "share_biases", "weight_of"]

_NORMS = (
    nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase
)  # fmt: skip
_GATES = {nn.LSTM: 4, nn.LSTMCell: 4, nn.GRU: 3, nn.GRUCell: 3, nn.RNN: 1, nn.RNNCell: 1}


def _gates(weight: Tensor, module: nn.Module | None = None, *, stack: int) -> Atom:
    """The gates of a recurrent cell: their output is squashed, so their size says how sharply they switch."""
    return replace(matrix(weight, stack=stack), free=True)


_yours: set[tuple[type | str, str]] = set()  # what users registered

# module type, or its full name if the package is optional -> path of the parameter in it -> rule
_catalogue: dict[type | str, dict[str, Rule]] = {
    nn.Linear: {"weight": matrix, "bias": bias},
    nn.Bilinear: {"weight": bilinear, "bias": bias},
    nn.modules.conv._ConvNd: {"weight": kernel, "bias": bias},
    nn.Embedding: {"weight": embedding},
    nn.EmbeddingBag: {"weight": embedding},
    nn.PReLU: {"weight": partial(gain, start="as it is")},
    nn.MultiheadAttention: {
        "in_proj_weight": partial(matrix, stack=3),
        "in_proj_bias": partial(bias, stack=3),
        "[qkv]_proj_weight": matrix,
        "bias_[kv]": token,
    },
    **{norm: {"weight": gain, "bias": bias} for norm in _NORMS},
    **{
        cell: {
            "weight_hr_*": matrix,
            "weight_[ih]h*": partial(_gates, stack=gates),
            "bias_[ih]h*": partial(bias, stack=gates),
        }
        for cell, gates in _GATES.items()
    },
    **OTHERS,
}


Source = Literal["catalogue", "graph", "shape", "you"]


@dataclass(frozen=True)
class Role:
    """What one parameter is: its name, the module that owns it, its atom, other names it is tied to, and its source.

    A `source` of "shape" is provisional: the first forward pass tells more.
    """

    name: str
    parameter: Tensor
    module: nn.Module
    atom: Atom
    tied: tuple[str, ...] = ()
    source: Source = "catalogue"
    readout: bool = False


def register_atom(module_type: type[nn.Module], parameter_name: str, atom: Rule) -> None:
    """Add a layer of your own to the catalogue.

    Args:
        module_type: the layer's class; its subclasses follow.
        parameter_name: the parameter's name within the layer, or its path into the layer's children.
        atom: a function of the catalogue (`autogd.atoms.matrix`, ...), or one of yours that takes the parameter and
            the module of that type and returns an `Atom`.

    >>> import torch
    >>> from autogd import AGD, atoms
    >>> class Mixer(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.mix = nn.Parameter(torch.eye(4))
    >>> register_atom(Mixer, "mix", atoms.matrix)
    >>> optimiser = AGD(Mixer())
    """
    # the newest rule for a parameter comes first
    _catalogue[module_type] = {parameter_name: atom, **_catalogue.get(module_type, {})}
    _yours.add((module_type, parameter_name))


def read_roles(model: nn.Module, overrides: Mapping[str, Rule] | None = None, *, readout: bool = True) -> list[Role]:
    """The role of every parameter, tied ones once.

    What the catalogue does not know is told from its shape, until a forward pass is read. A tensor with several roles
    takes the one whose unit perturbation is smallest: every role's bound must hold. For a language model's tied
    embedding and output matrix, that is the matrix.

    Args:
        model: any Module.
        overrides: rules for single parameters, by full name, instead of the catalogue's.
        readout: whether the last matrix in the order of registration is taken for the readout.

    >>> [role.atom.kind for role in read_roles(nn.Sequential(nn.Linear(2, 3)))]
    ['matrix', 'bias']
    """
    overrides = dict(overrides or {})
    found: dict[Tensor, list[Role]] = {}
    for name, parameter, owners in _owned(model):
        module = next(iter(owners.values()))
        rule = overrides.pop(name, None)
        told: tuple[Atom, Source] | None = None if rule is None else (rule(parameter, module), "you")
        atom, source = told or _find(name, parameter, owners)
        atom = on_real_view(atom, parameter)
        found.setdefault(parameter, []).append(Role(name, parameter, module, atom, source=source))
    if overrides:
        raise ValueError(f"{', '.join(overrides)}: there is no parameter of that name to override")
    chosen = [_one_of(roles, [role for role in roles if role.source == "you"] or roles) for roles in found.values()]
    return _free_readout(chosen, [parameter for _, parameter, _ in _owned(model)]) if readout else chosen


def weight_of(roles: Sequence[Role]) -> dict[Tensor, Role]:
    """For each bias, the role of the weight that it belongs to, if there is one.

    >>> layer = nn.Linear(2, 3)
    >>> [role.name for role in weight_of(read_roles(layer)).values()]
    ['weight']
    """
    found = {}
    for place, bias_role in enumerate(roles):
        if type(bias_role.module) is nn.Module:  # bare parameters
            weight = _nearest_before(roles, place)
            if weight is not None:
                found[bias_role.parameter] = weight
        if bias_role.atom.kind != "bias":
            continue
        others = [role for role in roles if role.module is bias_role.module and role.atom.kind != "bias"]
        named = [role for role in others if role.name == bias_role.name.replace("bias", "weight")]
        if named or others:
            found[bias_role.parameter] = (named or others)[0]
    return found


def _nearest_before(roles: Sequence[Role], place: int) -> Role | None:
    """For a vector among bare parameters, maybe a bias, the nearest weight before it that has as many outputs."""
    shape = roles[place].parameter.shape
    before = reversed(roles[:place])
    return next((r for r in before if r.parameter.dim() > 1 and r.parameter.shape[:1] == shape), None)


def share_biases(roles: Sequence[Role]) -> list[Role]:
    """The roles for minibatches: a bias is one more column of its weight, for an input that is always 1.

    >>> [role.atom.depth_share for role in share_biases(read_roles(nn.Linear(4, 3)))]
    [1.0, 0.25]
    """
    owners = {bias: role for bias, role in weight_of(roles).items() if role.atom.kind in LAYERS}
    return [
        replace(role, atom=replace(role.atom, depth_share=_share(role, owners[role.parameter])))
        if role.parameter in owners and role.atom.depth_share == VECTOR
        else role
        for role in roles
    ]


def _share(bias_role: Role, owner: Role) -> float:
    return bias_share(owner.parameter.numel(), bias_role.parameter.numel())


def roles_from_shape(named: Mapping[str, Tensor], overrides: Mapping[str, Rule] | None = None) -> list[Role]:
    """The roles of parameters, if only their shapes are known; warns once that this is a guess.

    A table of d numbers a row may be an embedding or a matrix, and more than two dimensions a convolution's kernel,
    transposed or grouped; a Module tells them apart.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     [role.atom.kind for role in roles_from_shape({"w": nn.Linear(2, 3).weight})]
    ['matrix']
    """
    overrides = overrides or {}
    named = {name: parameter for name, parameter in named.items() if parameter.numel()}
    global _warned
    guessed = [name for name, parameter in named.items() if parameter.dim() >= 2 and name not in overrides]
    if guessed and not _warned:
        _warned = True
        warnings.warn(
            f"{guessed[0]}: its atom is told from shape alone, where an embedding looks like a matrix; "
            "pass the Module itself, AGD(model), to have the architecture read",
            stacklevel=2,
        )
    owner = nn.Module()
    atoms = {name: overrides[name](p, None) if name in overrides else lone(p) for name, p in named.items()}
    roles = [Role(name, p, owner, on_real_view(atoms[name], p)) for name, p in named.items()]
    return _free_readout(roles, list(named.values()))


_warned = False


def _one_of(roles: list[Role], candidates: list[Role]) -> Role:
    role = min(candidates, key=lambda role: role.atom.scale**2 * role.atom.parts)
    return replace(role, name=roles[0].name, tied=tuple(other.name for other in roles[1:]))


def _free_readout(roles: list[Role], order: Sequence[Tensor]) -> list[Role]:
    """The last matrix in the order of registration is the readout: logits may have any size, so its size is free."""
    matrices = {role.parameter for role in roles if role.atom.kind in LAYERS and not role.atom.free}
    last = next((parameter for parameter in reversed(order) if parameter in matrices), None)
    return [replace(r, atom=replace(r.atom, free=True), readout=True) if r.parameter is last else r for r in roles]


def _owned(model: nn.Module) -> Iterator[tuple[str, Tensor, dict[str, nn.Module]]]:
    """Every parameter under every name, with the modules around it, innermost first, by its path within each."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if isinstance(parameter, UninitializedParameter):
            raise ValueError(f"{name}: this lazy parameter has no shape yet; send one batch through the model first")
        if not parameter.numel():
            continue  # an empty tensor cannot move
        words = name.split(".")
        yield (
            name,
            parameter,
            {".".join(words[i:]): modules[".".join(words[:i])] for i in range(len(words) - 1, -1, -1)},
        )


def _find(name: str, parameter: Tensor, owners: dict[str, nn.Module]) -> tuple[Atom, Source]:
    try:
        for path, module in reversed(owners.items()):
            found = _rule(type(module), path)
            if found is not None:
                rule, source = found
                return rule(parameter, module), source
        owner = next(iter(owners.values()))
        if isinstance(owner, ParametrizationList):
            path, layer = list(owners.items())[2]  # the list, the dictionary of lists, the layer itself
            behind = _rule(type(layer), path.split(".")[1])
            return parametrised(name, parameter, owner, behind and behind[0], layer), "catalogue"
    except ValueError:  # the layer is known and this tensor of it is not
        pass
    return provisional(parameter), "shape"


def _rule(module_type: type[nn.Module], path: str) -> tuple[Rule, Source] | None:
    for ancestor in module_type.__mro__:
        for key in (ancestor, f"{ancestor.__module__}.{ancestor.__qualname__}"):
            for pattern, rule in _catalogue.get(key, {}).items():
                # a wildcard must not cross a dot
                if path.count(".") == pattern.count(".") and fnmatchcase(path, pattern):
                    return rule, "you" if (key, pattern) in _yours else "catalogue"
    return None
