"""Write the parts of docs/results.md that come from the committed records, and its figures.

Run: python benchmarks/results_page.py
"""

import tempfile
from pathlib import Path

from autogd.experiments.catalogue import EXPERIMENTS
from autogd.experiments.packed import unpack
from autogd.experiments.repository import RECORDS
from autogd.report.markdown import filled
from autogd.report.reproduction import Shown, show, text

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURES = DOCS / "results.md", DOCS / "results" / "laptop"


def read() -> dict[str, Shown]:
    """Every experiment of the laptop's scale, from the records alone."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(RECORDS / "laptop", Path(folder))
        return {name: show(name, "laptop", Path(folder)) for name in EXPERIMENTS}


def parts(shown: dict[str, Shown]) -> dict[str, str]:
    return {name: text(name, "laptop", each) for name, each in shown.items()}


if __name__ == "__main__":
    found = read()
    for name, each in found.items():
        if each.figure is not None:
            (FIGURES / f"{name}.png").write_bytes(each.figure)
    PAGE.write_text(filled(PAGE.read_text(), parts(found), PAGE))
