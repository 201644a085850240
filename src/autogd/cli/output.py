"""Check that a command can write its output, a file or a folder, before it does any work."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["PICTURES", "check_folder", "check_output"]

PICTURES = (".png", ".svg", ".pdf", ".jpg", ".webp")
"""The formats that a figure may have."""


def check_output(option: str, path: str | Path, suffixes: Sequence[str] = ()) -> Path:
    """The path, if the file can be written; otherwise an error that says why not.

    >>> check_output("--out", "demo.xyz", PICTURES)
    Traceback (most recent call last):
    ...
    ValueError: --out: demo.xyz: a name ending in .png, .svg, .pdf, .jpg or .webp is expected
    """
    path = Path(path)
    if suffixes and path.suffix.lower() not in suffixes:
        *most, last = suffixes
        endings = f"{', '.join(most)} or {last}" if most else last
        raise ValueError(f"{option}: {path}: a name ending in {endings} is expected")
    if path.is_dir():
        raise ValueError(f"{option}: {path} is a folder; name a file")
    if not path.parent.is_dir():
        raise ValueError(f"{option}: the folder {path.parent} does not exist; make it first: mkdir -p {path.parent}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"{option}: {path}: nothing can be written there ({error.strerror})") from error
    return path


def check_folder(option: str, path: str | Path) -> Path:
    """The path, if a folder is there or can be made there; otherwise an error that says why not.

    >>> check_folder("--out", "")
    Traceback (most recent call last):
    ...
    ValueError: --out: the name is empty; name a folder
    """
    if path == "":
        raise ValueError(f"{option}: the name is empty; name a folder")
    path = Path(path)
    there = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
    if not there.is_dir():
        raise ValueError(f"{option}: {there} is a file; name a folder")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ValueError(f"{option}: {path}: nothing can be written there ({error.strerror})") from error
    return path
