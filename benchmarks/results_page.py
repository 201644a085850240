"""Write the parts of docs/results.md that come from the committed records, and its figures.

Run: python benchmarks/results_page.py
"""

import tempfile
from pathlib import Path

from autogd.experiments.catalogue import EXPERIMENTS
from autogd.experiments.packed import unpack
from autogd.experiments.repository import RECORDS
from autogd.report.markdown import filled
from autogd.report.reproduction import glance, show, text

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURES = DOCS / "results.md", DOCS / "results" / "laptop"


def write() -> None:
    """The laptop's scale: every figure, and every part of the page."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        unpack(RECORDS / "laptop", folder)
        figure, table = glance("laptop", folder)
        figures, parts = {"overview": figure}, {"overview": table}
        for name in EXPERIMENTS:
            shown = show(name, "laptop", folder)
            parts[name] = text(name, "laptop", shown)
            if shown.figure is not None:
                figures[name] = shown.figure
    for name, figure in figures.items():
        (FIGURES / f"{name}.png").write_bytes(figure)
    PAGE.write_text(filled(PAGE.read_text(), parts, PAGE))


if __name__ == "__main__":
    write()
