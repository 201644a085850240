"""A small schema for JSON files: names, types and ranges, and errors that name the key and the file."""

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Field", "check", "compare_names", "read_json"]

LIMIT = 1 << 28  # bytes of one JSON file; 1,000 tensors on 64 processes take a fifth of it


@dataclass(frozen=True)
class Field:
    """The values that are allowed.

    Args:
        kinds: the types; bool is not an int here, and an int is accepted as a float.
        low: the smallest number; it also excludes infinity and nan.
        high: the largest number.
        required: whether the key must be present.
    """

    kinds: tuple[type, ...]
    low: float | None = None
    high: float | None = None
    required: bool = True


def check(found: Any, fields: Mapping[str, Field], where: str) -> dict[str, Any]:
    """The object, if it has exactly these fields.

    >>> check({"epoch": 0}, {"epoch": Field((int,), low=1)}, "state.json")
    Traceback (most recent call last):
    ...
    ValueError: state.json: 'epoch': expected at least 1, found 0
    """
    if not isinstance(found, dict):
        raise ValueError(f"{where}: expected an object, found a {type(found).__name__}")
    required = [name for name, field in fields.items() if field.required]
    compare_names(found, fields, where, required)
    for name, value in found.items():
        _check_value(value, fields[name], f"{where}: {name!r}")
    return found


def compare_names(
    found: Iterable[str], known: Iterable[str], where: str, required: Iterable[str] | None = None
) -> None:
    """Refuse unknown names and missing ones; by default all known names are required.

    >>> compare_names(["sfconds"], ["epoch", "seconds"], "metrics.jsonl, line 1")
    Traceback (most recent call last):
    ...
    ValueError: metrics.jsonl, line 1: there is no key 'sfconds' (perhaps 'seconds')
    """
    present, names = set(found), set(known)
    for name in sorted(present - names):
        near = difflib.get_close_matches(name, sorted(names - present), 1)
        raise ValueError(f"{where}: there is no key {name[:200]!r}" + (f" (perhaps {near[0]!r})" if near else ""))
    for name in sorted(set(names if required is None else required) - present):
        raise ValueError(f"{where}: the key {name!r} is missing")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.json").write_text('{"a": 1}')
    ...     read_json(Path(folder, "a.json"))
    {'a': 1}
    """
    size = path.stat().st_size
    if size > LIMIT:
        raise ValueError(f"{path}: {size} bytes are more than such a file has")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}: expected an object, found a {type(found).__name__}")
    return found


def _check_value(value: Any, field: Field, where: str) -> None:
    kinds = (*field.kinds, int) if float in field.kinds else field.kinds
    if type(value) not in kinds:
        names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in field.kinds)
        raise ValueError(f"{where}: expected {names}, found {str(value)[:60]!r}")
    if isinstance(value, int | float):
        if field.low is not None and not value >= field.low:
            raise ValueError(f"{where}: expected at least {field.low:g}, found {value}")
        if field.high is not None and not value <= field.high:
            raise ValueError(f"{where}: expected at most {field.high:g}, found {value}")
        if field.low is not None and math.isinf(value):
            raise ValueError(f"{where}: expected a finite number, found {value}")
