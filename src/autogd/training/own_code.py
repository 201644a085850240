"""Find a user's own code from the command line, `package.module:name` or `file.py:name`, and locate errors in it."""

import difflib
import importlib
import importlib.util
import linecache
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

import autogd

__all__ = ["culprit", "find", "is_pointer", "make"]

_OURS = str(Path(autogd.__file__).parent)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_SITES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_pointed: set[str] = set()  # top-level packages that a user named: their own code, even if installed


def is_pointer(name: str | None) -> bool:
    """Whether a name on the command line points to a user's own code.

    >>> is_pointer("digits"), is_pointer("my_package.data:load")
    (False, True)
    """
    return name is not None and ":" in name


def find(place: str, wanted: str) -> Any:
    """The object that `package.module:name` or `path/to/file.py:name` names.

    >>> find("torch.nn:Identity", "a Module")
    <class 'torch.nn.modules.linear.Identity'>
    """
    source, colon, name = place.rpartition(":")
    if not (source and colon and name):
        raise ValueError(f"{place}: expected package.module:name or path/to/file.py:name, which gives {wanted}")
    module = _from_file(Path(source), place) if source.endswith(".py") else _from_package(source, place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [each for each in vars(module) if not each.startswith("_")]
            near = difflib.get_close_matches(part, names, 1) or names[:8]
            said = f"; it has {', '.join(near)}" if near else ""
            raise ValueError(f"{place}: {source} has no {part!r}{said}")
        found = getattr(found, part)
    return found


def make(place: str, wanted: str) -> Any:
    """Call a factory without arguments and return its result; return a Module or a value as it is.

    >>> make("torch.nn:Identity", "a Module")
    Identity()
    """
    found = find(place, wanted)
    if not callable(found) or (isinstance(found, nn.Module) and not isinstance(found, type)):
        return found
    import inspect

    try:
        try:
            inspect.signature(found).bind()
        except ValueError:  # a builtin without a signature: call it to find out
            return found()
    except TypeError as error:
        raise ValueError(f"{place}: it cannot be called without arguments: {error}; point to a factory") from error
    return found()


def culprit(error: BaseException) -> str | None:
    """The file, line, function and source of an error in the user's code; None if the error is elsewhere.

    >>> culprit(ValueError("ours")) is None
    True
    """
    if isinstance(error, SyntaxError) and error.filename and _is_own(error.filename):
        return f"{_short(error.filename)}, line {error.lineno}: {(error.text or '').strip()}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    if not frames:
        return None
    last = frames[-1]
    line = (last.line or linecache.getline(last.filename, last.lineno or 0)).strip()
    return f"{_short(last.filename)}, line {last.lineno}, in {last.name}: {line}"


def _from_package(name: str, place: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # an installed command does not search the current folder
    _pointed.add(name.partition(".")[0])
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # missing in the user's own module: the command line names the place
        raise ValueError(
            f"{place}: there is no module {error.name!r}, neither in {os.getcwd()} nor installed"
        ) from error


def _from_file(path: Path, place: str) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"{place}: there is no file {path}")
    path = path.resolve()
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    # the name may be taken by another module
    name = path.stem if known is None else f"{path.stem}_of_{abs(hash(str(path)))}"
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # for the file's own imports
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _is_own(file: str) -> bool:
    if file.startswith("<") or file.startswith(_OURS + os.sep):
        return False
    if file.startswith(_LIBRARIES) or any(site in file for site in _SITES):
        parts = Path(file).parts
        return any(package in parts or f"{package}.py" in parts for package in _pointed - {"torch"})
    return True


def _short(file: str) -> str:
    """A path relative to the current folder, if it is below it."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative
