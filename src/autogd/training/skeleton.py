"""A tree of values as JSON without its tensors: the format of a checkpoint's state.json.

A container is an object with one key, {"dict": [[key, value], …]}, {"list": […]} or {"tuple": […]}; a tensor is
{"tensor": its path}; every other value is itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from autogd.training.manifest import KINDS
from autogd.training.schema import Field, check, compare_names, read_json

__all__ = ["STATE", "check_names", "names", "pack", "read", "state_names", "unpack"]

STATE = "state.json"

# larger than for any real state; they limit the work and memory that a forged one can cause
DEPTH = 32  # containers within containers
LENGTH = 1000  # characters of a path
COUNT = 1 << 22  # values

_PARTS = {"optimiser": Field((dict,)), "rest": Field((dict,))}


def pack(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The tree as JSON; its tensors are stored in `tensors` by their paths.

    >>> import torch
    >>> pack({"step": 3, "rows": torch.ones(2)}, "rest", tensors := {})
    {'dict': [['step', 3], ['rows', {'tensor': 'rest/rows'}]]}
    >>> list(tensors)
    ['rest/rows']
    """
    if isinstance(tree, Tensor):
        if path in tensors:
            raise ValueError(f"{path}: two tensors have this name; the keys of a state must differ as text")
        tensors[path] = tree.detach()
        return {"tensor": path}
    if isinstance(tree, dict):
        return {"dict": [[key, pack(value, f"{path}/{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        items = [pack(value, f"{path}/{i}", tensors) for i, value in enumerate(tree)]
        return {"tuple" if isinstance(tree, tuple) else "list": items}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"{path}: a checkpoint holds tensors and plain values, not a {type(tree).__name__}")


def names(skeleton: Any, path: str) -> dict[str, str]:
    """Every path of a packed tree, and the kind of its value.

    >>> names({"dict": [["step", 3], ["rows", {"tensor": "rest/rows"}]]}, "rest")
    {'rest': 'dict', 'rest/step': 'int', 'rest/rows': 'tensor'}
    """
    found: dict[str, str] = {}
    _walk(skeleton, path, found, 0)
    return found


def check_names(found: Mapping[str, str], known: Mapping[str, str], where: str) -> None:
    """Refuse a tree whose names or kinds differ from those that were written.

    >>> check_names({"rest/sfconds": "float"}, {"rest/seconds": "float"}, "state.json")
    Traceback (most recent call last):
    ...
    ValueError: state.json: there is no key 'rest/sfconds' (perhaps 'rest/seconds')
    """
    compare_names(found, known, where)
    for name, kind in found.items():
        if kind != known[name]:
            raise ValueError(f"{where}: {name[:200]!r}: expected {known[name]}, found {kind}")


def state_names(state: Mapping[str, Any]) -> dict[str, str]:
    """Every path and kind of both parts of a checkpoint's state.

    >>> state_names({"optimiser": {"dict": []}, "rest": {"dict": []}})
    {'optimiser': 'dict', 'rest': 'dict'}
    """
    return {path: kind for part in _PARTS for path, kind in names(state[part], part).items()}


def read(folder: Path, known: Mapping[str, str]) -> dict[str, Any]:
    """The packed state of a checkpoint, if it has exactly the names of the manifest."""
    path = folder / STATE
    state = check(read_json(path), _PARTS, str(path))
    try:
        found = state_names(state)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    check_names(found, known, str(path))
    return state


def unpack(skeleton: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree of a skeleton that `names` has checked.

    >>> unpack({"tuple": [1, {"list": []}]}, {})
    (1, [])
    """
    match skeleton:
        case {"tensor": path}:
            return tensors[path]
        case {"dict": items}:
            return {key: unpack(value, tensors) for key, value in items}
        case {"list": items}:
            return [unpack(value, tensors) for value in items]
        case {"tuple": items}:
            return tuple(unpack(value, tensors) for value in items)
    return skeleton


def _walk(node: Any, path: str, found: dict[str, str], depth: int) -> None:
    if depth > DEPTH or len(path) > LENGTH or len(found) >= COUNT:
        raise ValueError(f"{path[:200]!r}: more levels, characters or values than any state has")
    if path in found:
        raise ValueError(f"{path[:200]!r}: appears twice")
    if not isinstance(node, dict):
        found[path] = type(node).__name__
        if found[path] not in KINDS[4:]:
            raise ValueError(f"{path[:200]!r}: expected a value or an object of one key, found a {found[path]}")
        return
    kind = next(iter(node), None)
    if len(node) != 1 or kind not in KINDS[:4]:
        raise ValueError(f"{path[:200]!r}: expected one of {', '.join(KINDS[:4])}, found {', '.join(node)[:60]!r}")
    content = node[kind]
    found[path] = kind
    if kind == "tensor":
        if content != path:
            raise ValueError(f"{path[:200]!r}: expected the tensor of this name, found {str(content)[:200]!r}")
        return
    if not isinstance(content, list):
        raise ValueError(f"{path[:200]!r}: expected a list of values, found a {type(content).__name__}")
    for i, item in enumerate(content):
        if kind != "dict":
            _walk(item, f"{path}/{i}", found, depth + 1)
        elif (
            isinstance(item, list) and len(item) == 2 and (item[0] is None or type(item[0]) in (str, int, float, bool))
        ):
            _walk(item[1], f"{path}/{item[0]}", found, depth + 1)
        else:
            raise ValueError(f"{path[:200]!r}: expected pairs of key and value, found {str(item)[:60]!r}")
