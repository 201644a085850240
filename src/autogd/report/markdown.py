"""Tables as Markdown, and pages whose parts are filled in by a script."""

import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["filled", "grid"]


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table, line by line.

    >>> grid(("a", "b"), [("1", "2")])
    ['| a | b |', '| --- | --- |', '| 1 | 2 |']
    """
    rule = ["---"] * len(heads)
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]


def filled(text: str, parts: Mapping[str, str], page: object = "the page") -> str:
    """Replace the parts of a page, each between two comments that name it.

    >>> print(filled("<!-- sum -->\\nold\\n<!-- end of sum -->", {"sum": "4"}))
    <!-- sum -->
    4
    <!-- end of sum -->
    """
    for name, part in parts.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        pattern = re.escape(start) + ".*?" + re.escape(end)
        found = re.findall(pattern, text, flags=re.DOTALL)
        assert len(found) == 1, f"{page}: there is no place for {name}"
        body = f"{part}\n" if part else "No records yet.\n"
        text = text.replace(found[0], f"{start}{body}{end}")
    return text
