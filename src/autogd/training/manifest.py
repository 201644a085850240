"""The manifest of a checkpoint: its files with their checksums, the position of each tensor, and every name.

It is JSON with its own checksum. A file is read only after its checksum is compared. Every entry of the manifest is
checked before use, since a checkpoint may come from a stranger.
"""

import hashlib
import json
import math
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from autogd.training.records import write_whole
from autogd.training.schema import Field, check, read_json

__all__ = ["NAME", "Chunk", "Damaged", "Manifest", "Saved", "read", "verify", "write"]

NAME = "manifest.json"
FORMAT = 1
KINDS = ("dict", "list", "tuple", "tensor", "NoneType", "bool", "int", "float", "str")

_DTYPES = {str(found).removeprefix("torch."): found for found in vars(torch).values() if isinstance(found, torch.dtype)}
_PLAIN_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,100}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TOP = {
    "format": Field((int,), FORMAT, FORMAT),
    "byteorder": Field((str,)),
    "files": Field((dict,)),
    "tensors": Field((dict,)),
    "names": Field((dict,)),
    "sha256": Field((str,)),
}
_FILE = {"bytes": Field((int,), 0), "sha256": Field((str,))}
_TENSOR = {"dtype": Field((str,)), "size": Field((list,)), "chunks": Field((list,))}
_CHUNK = {
    "offsets": Field((list,)),
    "sizes": Field((list,)),
    "file": Field((str,)),
    "start": Field((int,), 0),
    "bytes": Field((int,), 0),
}


class Damaged(ValueError):  # noqa: N818 - named after the event, not an error of the code
    """A file of a checkpoint has changed since it was written."""


@dataclass(frozen=True)
class Chunk:
    """A chunk of a tensor: which part it is, and where its numbers are."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the manifest."""
        return {**vars(self), "offsets": list(self.offsets), "sizes": list(self.sizes)}


@dataclass(frozen=True)
class Saved:
    """A tensor in a checkpoint."""

    dtype: torch.dtype
    size: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the manifest."""
        dtype = str(self.dtype).removeprefix("torch.")
        return {"dtype": dtype, "size": list(self.size), "chunks": [chunk.as_dict() for chunk in self.chunks]}


@dataclass(frozen=True)
class Manifest:
    """The content of a checkpoint: files with length and checksum, tensors, and the kind of every named value."""

    files: Mapping[str, tuple[int, str]]
    tensors: Mapping[str, Saved]
    names: Mapping[str, str]


def write(folder: Path, tensors: Mapping[str, Saved], names: Mapping[str, str]) -> None:
    """Write the manifest of all files in a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = Path(place, "state.json").write_text("{}")
    ...     write(Path(place), {}, {})
    ...     read(Path(place)).files["state.json"][0]
    2
    """
    files = {path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(folder.iterdir())}
    body = {
        "format": FORMAT,
        "byteorder": sys.byteorder,
        "files": files,
        "tensors": {name: saved.as_dict() for name, saved in tensors.items()},
        "names": dict(names),
    }
    write_whole(folder / NAME, _text({**body, "sha256": _own_checksum(body)}))


def read(folder: Path) -> Manifest:
    """The manifest of a checkpoint, checked for consistency; `verify` compares the files with it."""
    path = folder / NAME
    try:
        found = check(read_json(path), _TOP, str(path))
    except OSError as error:
        raise Damaged(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise Damaged(str(error)) from error
    body = {name: value for name, value in found.items() if name != "sha256"}
    try:
        # compare the text too: an added space is damage as well
        if found["sha256"] != _own_checksum(body) or path.read_bytes() != _text(found).encode():
            raise Damaged(f"{path}: has changed since it was written (its own checksum differs)")
        return _checked(body)
    except Damaged:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def verify(folder: Path) -> Manifest:
    """The manifest, if every file that it lists is there and unchanged."""
    manifest = read(folder)
    wrong = [f"{name} {why}" for name, listed in manifest.files.items() if (why := _difference(folder / name, *listed))]
    if wrong:
        raise Damaged(f"{folder}: {'; '.join(wrong)}")
    return manifest


def _difference(path: Path, length: int, sha256: str) -> str | None:
    """What is wrong with a file; None if nothing is."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):  # a link could lead outside the folder
            return "is not a plain file"
        if found.st_size != length:
            return f"is damaged (it has {found.st_size} bytes, {length} were written)"
        digest = _sha256(path)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if digest == sha256 else f"is damaged (its sha256 is {digest[:12]}…, not {sha256[:12]}…)"


def _checked(body: dict[str, Any]) -> Manifest:
    if body["byteorder"] != sys.byteorder:
        raise ValueError(f"written on a machine of other byte order ({body['byteorder']!r}); resume it there")
    files = {}
    for name, listed in body["files"].items():
        where = f"files: {name[:200]!r}"
        if not _PLAIN_NAME.fullmatch(name):
            raise ValueError(f"{where}: expected the plain name of a file in the checkpoint's folder")
        check(listed, _FILE, where)
        if not _SHA256.fullmatch(listed["sha256"]):
            raise ValueError(f"{where}: 'sha256': expected 64 hexadecimal digits")
        files[name] = (listed["bytes"], listed["sha256"])
    tensors = {name: _tensor(listed, files, f"tensors: {name[:200]!r}") for name, listed in body["tensors"].items()}
    total = sum(chunk.bytes for saved in tensors.values() for chunk in saved.chunks)
    if total > sum(length for length, _ in files.values()):
        raise ValueError("tensors: they have more bytes than the files hold")
    for name, kind in body["names"].items():
        if kind not in KINDS:
            raise ValueError(f"names: {name[:200]!r}: expected one of {', '.join(KINDS)}, found {str(kind)[:60]!r}")
        if kind == "tensor" and name not in tensors:
            raise ValueError(f"names: {name[:200]!r}: there is no such tensor")
    return Manifest(files, tensors, body["names"])


def _tensor(listed: Any, files: Mapping[str, tuple[int, str]], where: str) -> Saved:
    check(listed, _TENSOR, where)
    if listed["dtype"] not in _DTYPES:
        raise ValueError(f"{where}: 'dtype': {listed['dtype'][:60]!r} is not a dtype of torch")
    dtype, size = _DTYPES[listed["dtype"]], _sides(listed["size"], f"{where}: 'size'")
    chunks = []
    for i, each in enumerate(listed["chunks"]):
        here = f"{where}: chunk {i}"
        check(each, _CHUNK, here)
        offsets, sizes = _sides(each["offsets"], f"{here}: 'offsets'"), _sides(each["sizes"], f"{here}: 'sizes'")
        fits = len(offsets) == len(sizes) == len(size)
        if not fits or any(a + b > whole for a, b, whole in zip(offsets, sizes, size, strict=True)):
            raise ValueError(f"{here}: lies outside of a tensor of size {list(size)}")
        if each["file"] not in files or each["start"] + each["bytes"] > files[each["file"]][0]:
            raise ValueError(f"{here}: lies outside of the checkpoint's files")
        if each["bytes"] != math.prod(sizes) * dtype.itemsize:
            raise ValueError(f"{here}: {each['bytes']} bytes are not a {listed['dtype']} of size {list(sizes)}")
        chunks.append(Chunk(offsets, sizes, each["file"], each["start"], each["bytes"]))
    if len({chunk.offsets for chunk in chunks}) != len(chunks):
        raise ValueError(f"{where}: two chunks begin at the same place")
    if sum(math.prod(chunk.sizes) for chunk in chunks) != math.prod(size):
        raise ValueError(f"{where}: its chunks do not make up a tensor of size {list(size)}")
    return Saved(dtype, size, tuple(chunks))


def _sides(found: list[Any], where: str) -> tuple[int, ...]:
    if len(found) > 64 or not all(type(side) is int and 0 <= side < 1 << 62 for side in found):
        raise ValueError(f"{where}: expected a list of at most 64 lengths")
    return tuple(found)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(body: Mapping[str, Any]) -> str:
    return json.dumps(body) + "\n"


def _own_checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(body).encode()).hexdigest()
