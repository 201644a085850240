"""Write the entrance of a site that has one folder a version: index.html, which goes to the newest.

Run: python docs/versions.py FOLDER
"""

import re
import sys
from pathlib import Path

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>autogd</title>
<meta http-equiv="refresh" content="0; url={newest}/index.html"></head>
<body><p>The site by version:</p><ul>
{links}
</ul></body></html>
"""


def order(name: str) -> tuple[int, tuple[int, ...]]:
    """Versions by their numbers, before what is no version."""
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", name)
    return (1, tuple(map(int, numbers.groups()))) if numbers else (0, ())


def entrance(folder: Path) -> str:
    """The page: `stable` if there is one, else the newest version, and a link to each."""
    names = sorted((each.parent.name for each in folder.glob("*/index.html")), key=order, reverse=True)
    newest = "stable" if "stable" in names else names[0]
    links = "\n".join(f'<li><a href="{name}/index.html">{name}</a></li>' for name in names)
    return PAGE.format(newest=newest, links=links)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "index.html").write_text(entrance(place))
