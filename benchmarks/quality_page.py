"""Write the parts of docs/quality.md that come from the code and from the committed records, and its figure.

Run: python benchmarks/quality_page.py
"""

import re
from pathlib import Path

from autogd.experiments.quality.long import LONG
from autogd.experiments.quality.records import COMMITTED_LONG, Records
from autogd.experiments.quality.summary import standings
from autogd.experiments.quality.workloads import WORKLOADS
from autogd.report.quality_figure import draw
from autogd.report.quality_table import markdown, workloads

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURE = DOCS / "quality.md", DOCS / "images" / "quality.png"


def normal():
    return [each for name in WORKLOADS for each in standings(Records().of(name))]


def long():
    return [each for name in LONG for each in standings(Records(COMMITTED_LONG).of(name))]


def filled(text: str) -> str:
    """The page with its parts, each between two comments that name it, as they should be."""
    figure = "![Loss over tuned Adam's, and steps and time to tuned Adam's loss, by workload](images/quality.png)"
    parts = {
        "workloads": workloads(),
        "figure": figure if normal() else "",
        "table": markdown(normal()),
        "long": markdown(long()),
        "long workloads": workloads(long=True),
    }
    for name, part in parts.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        body = f"{part}\n" if part else "No records yet.\n"
        text, count = re.subn(pattern, lambda found, body=body: found[1] + body + found[2], text, flags=re.DOTALL)
        assert count == 1, f"{PAGE}: there is no place for {name}"
    return text


if __name__ == "__main__":
    if normal():
        FIGURE.write_bytes(draw(normal()))
    PAGE.write_text(filled(PAGE.read_text()))
