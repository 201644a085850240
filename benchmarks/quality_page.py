"""Write the parts of docs/quality.md that come from the code and from the committed records, and its figure.

Run: python benchmarks/quality_page.py
"""

from pathlib import Path

from autogd.experiments.quality.records import COMMITTED_LONG, Records
from autogd.experiments.quality.summary import standings
from autogd.experiments.quality.workloads import LONG, WORKLOADS
from autogd.report.front_page import verdicts
from autogd.report.markdown import filled
from autogd.report.quality import draw, markdown, workloads

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURE = DOCS / "quality.md", DOCS / "images" / "quality.png"


def normal():
    return [each for name in WORKLOADS for each in standings(Records().of(name))]


def long():
    return [each for name in LONG for each in standings(Records(COMMITTED_LONG).of(name))]


def parts():
    figure = "![Loss over tuned Adam's, and time to tuned Adam's loss, by workload](images/quality.png)"
    return {
        "verdicts": verdicts(normal(), []),
        "workloads": workloads(),
        "figure": figure if normal() else "",
        "table": markdown(normal()),
        "long": markdown(long()),
        "long workloads": workloads(long=True),
    }


if __name__ == "__main__":
    if normal():
        FIGURE.write_bytes(draw(normal()))
    PAGE.write_text(filled(PAGE.read_text(), parts(), PAGE))
