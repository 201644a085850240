"""Check that a command can write its output file, before it does any work."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["PICTURES", "check_output"]

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
