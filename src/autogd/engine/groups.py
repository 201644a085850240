"""Read what a user passes as `params` and `groups`, and say plainly what is wrong with it."""

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from autogd.geometry.direction import GEOMETRIES, Geometry

__all__ = [
    "SETTINGS", "as_groups", "check_geometry", "check_number", "check_parameters", "check_settings", "multiplier",
    "named_tensors", "refuse_settings", "split_by_name",
]  # fmt: skip

SETTINGS = ("gain", "lr", "maximize", "weight_decay")
"""What a group may set."""


def as_groups(params: Any, owner: str) -> list[Any]:
    """A Module, tensors, named tensors or groups, as the list that torch's Optimizer takes."""
    if isinstance(params, nn.Module):
        return [{"params": params}]
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        kind = type(params).__name__
        raise TypeError(f"{owner}: pass a Module, an iterable of tensors or a list of groups, not a {kind}")
    groups = list(params)
    if not groups:
        raise ValueError(
            f"{owner}: the parameter list is empty; pass the Module itself, or model.parameters() afresh "
            "(a generator can be read only once)"
        )
    return groups


def named_tensors(params: Any, group_index: int) -> dict[str, Tensor]:
    """The tensors of one group, each under the name to call it by in a message."""
    if isinstance(params, nn.Module):
        named: dict[str, Tensor] = dict(params.named_parameters())
        if not named:
            raise ValueError(f"{type(params).__name__} has no parameters; there is nothing to train")
        return named
    items = [params] if isinstance(params, Tensor) else list(params)
    place = f"parameter {{}} of group {group_index}"
    pairs = [item if isinstance(item, tuple) else (place.format(i), item) for i, item in enumerate(items)]
    repeated = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if repeated:
        raise ValueError(f"{repeated[0]}: two parameters of one group have this name; give each a name of its own")
    return dict(pairs)


def split_by_name(
    group: Mapping[str, Any], names: Mapping[Tensor, str], patterns: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One group as several: parameters with the same settings share one, in the order in which they first come.

    A parameter takes the settings of every pattern that its name matches; of two that set the same, the later counts.

    Args:
        group: the group of all parameters.
        names: of each parameter.
        patterns: as in `{"encoder.*": {"gain": 0.1}, "*.bias": {"weight_decay": 0}}`; `*` matches any letters.
    """
    _check_patterns(list(names.values()), patterns)
    lists = [name for name in ("params", "sizes") if name in group]
    found: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {}
    for place, parameter in enumerate(group["params"]):
        told = [values for pattern, values in patterns.items() if fnmatchcase(names[parameter], pattern)]
        settings = {name: value for values in told for name, value in values.items()}
        empty: dict[str, Any] = {name: [] for name in lists}
        mine = found.setdefault(tuple(sorted(settings.items())), {**group, **settings, **empty})
        for name in lists:
            mine[name].append(group[name][place])
    return list(found.values())


def _check_patterns(names: list[str], patterns: Mapping[str, Mapping[str, Any]]) -> None:
    for pattern, settings in patterns.items():
        strange = [name for name in settings if name not in SETTINGS]
        if strange:
            raise ValueError(f"groups: {pattern}: {strange[0]} cannot be set by group; use {', '.join(SETTINGS)}")
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, 1, cutoff=0.0)
            raise ValueError(f"groups: {pattern} matches no parameter; names are like {near[0] if near else 'none'}")


def refuse_settings(owner: str, given: Iterable[str]) -> None:
    """Explain why there is no such setting, and what to use instead.

    >>> refuse_settings("AGD", ["lr"])
    Traceback (most recent call last):
    ...
    TypeError: AGD: lr: there is no learning rate to set, η is derived: leave it out (gain=0.5 would halve every step)
    """
    for name in given:
        if name in ("lr", "learning_rate"):
            what = "there is no learning rate to set, η is derived: leave it out (gain=0.5 would halve every step)"
        elif name in ("betas", "beta", "momentum", "eps", "nesterov", "amsgrad", "fused", "warmup_steps", "averaging"):
            what = "there is nothing of the kind to set: leave it out"
        else:
            what = "there is no such argument; see help(autogd.AGD)"
        raise TypeError(f"{owner}: {name}: {what}")


def multiplier(group: Mapping[str, Any]) -> Any:
    """A group's `lr`, which multiplies the derived step: a number, or a tensor that holds one, without dimensions.

    >>> multiplier({"lr": float("nan")})
    Traceback (most recent call last):
    ...
    ValueError: lr: expected a finite number ≥ 0, found nan
    """
    rate = group.get("lr", 1.0)
    if isinstance(rate, Tensor):
        if rate.numel() != 1:
            raise ValueError(f"lr: a tensor must hold one number, not {rate.numel()}")
        return rate.reshape(())
    check_number("lr", rate, zero_too=True)
    return rate


def check_geometry(name: str) -> Geometry:
    """The name, if there is such a geometry."""
    if name not in GEOMETRIES:
        raise ValueError(f"geometry: {name!r} is not known; use one of {', '.join(map(repr, GEOMETRIES))}")
    return name


def check_number(name: str, value: float, *, zero_too: bool = False) -> None:
    """A setting must be a finite number above zero; some may be zero."""
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero_too):
        raise ValueError(f"{name}: expected a finite number {'≥' if zero_too else '>'} 0, found {value}")


def check_settings(group: Mapping[str, Any]) -> None:
    """Check the settings that a group has."""
    multiplier(group)
    check_number("gain", group.get("gain", 1.0))
    check_number("weight_decay", group.get("weight_decay", 0.0), zero_too=True)


def check_parameters(named: dict[str, Tensor], earlier: dict[Tensor, str]) -> None:
    """Refuse what is not a tensor, and repeats, with their names."""
    for name, parameter in named.items():
        if not isinstance(parameter, Tensor):
            kind = type(parameter).__name__
            raise TypeError(f"{name}: expected a tensor, found a {kind}; leave it out, or pass the Module")
        if parameter in earlier:
            raise ValueError(
                f"{name}: this parameter is in an earlier group already, as {earlier[parameter]}; keep it in one"
            )
