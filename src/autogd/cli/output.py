"""What the commands write: tables for a terminal of 80 columns, and files that are checked before any work."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["PICTURES", "add_heading", "check_folder", "check_output", "table"]

PICTURES = (".png", ".svg", ".pdf", ".jpg", ".webp")
"""The formats that a figure may have."""


def table(title: str, words: Sequence[str], numbers: Sequence[str], caption: str | None = None) -> "Table":
    """An empty table: columns of words on the left, columns of numbers on the right.

    >>> found = table("losses", ["optimiser"], ["loss"])
    >>> [column.justify for column in found.columns]
    ['left', 'right']
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for head in words:
        made.add_column(head, overflow="fold")
    for head in numbers:
        made.add_column(head, justify="right", no_wrap=True)
    return made


def add_heading(made: "Table", heading: str) -> None:
    """Start a section with a line of its own, over all columns of the rows that follow.

    >>> found = table("losses", ["optimiser"], ["loss"])
    >>> add_heading(found, "a workload")
    >>> found.row_count
    1
    """
    from rich.text import Text

    made.add_section()
    made.add_row(Text(heading, style="bold"))


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
