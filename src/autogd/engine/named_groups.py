"""Groups by name: settings for parameters whose names match a pattern; the architecture is read from the whole."""

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

__all__ = ["SETTINGS", "split_by_name"]

SETTINGS = ("gain", "lr", "maximize", "weight_decay")
"""What a group may set."""


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
    _check(list(names.values()), patterns)
    sizes: Sequence[Any] = group.get("sizes") or [None] * len(group["params"])
    found: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {}
    for parameter, size in zip(group["params"], sizes, strict=True):
        settings: dict[str, Any] = {}
        for pattern, values in patterns.items():
            if fnmatchcase(names[parameter], pattern):
                settings.update(values)
        mine = found.setdefault(tuple(sorted(settings.items())), {**group, **settings, "params": [], "sizes": []})
        mine["params"].append(parameter)
        mine["sizes"].append(size)
    if "sizes" not in group:
        for each in found.values():
            del each["sizes"]
    return list(found.values())


def _check(names: list[str], patterns: Mapping[str, Mapping[str, Any]]) -> None:
    for pattern, settings in patterns.items():
        strange = [name for name in settings if name not in SETTINGS]
        if strange:
            raise ValueError(f"groups: {pattern}: {strange[0]} cannot be set by group; use {', '.join(SETTINGS)}")
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, 1, cutoff=0.0)
            raise ValueError(f"groups: {pattern} matches no parameter; names are like {near[0] if near else 'none'}")
