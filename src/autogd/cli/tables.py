"""Tables for a terminal of 80 columns: words wrap between words, numbers do not wrap."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

__all__ = ["add_heading", "table"]


def table(title: str, words: Sequence[str], numbers: Sequence[str], caption: str | None = None) -> Table:
    """An empty table: columns of words on the left, columns of numbers on the right.

    >>> found = table("losses", ["optimiser"], ["loss"])
    >>> [column.justify for column in found.columns]
    ['left', 'right']
    """
    made = Table(title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for head in words:
        made.add_column(head, overflow="fold")
    for head in numbers:
        made.add_column(head, justify="right", no_wrap=True)
    return made


def add_heading(made: Table, heading: str) -> None:
    """Start a section with a line of its own, over all columns of the rows that follow.

    >>> found = table("losses", ["optimiser"], ["loss"])
    >>> add_heading(found, "a workload")
    >>> found.row_count
    1
    """
    made.add_section()
    made.add_row(Text(heading, style="bold"))
