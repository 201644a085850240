"""Write the parts of docs/results.md that come from the committed records, and its figures.

Run: python benchmarks/results_page.py
"""

import json
import tempfile
from pathlib import Path
from typing import Any

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
    parts["workstation"] = workstation()
    for name, figure in figures.items():
        (FIGURES / f"{name}.png").write_bytes(figure)
    PAGE.write_text(filled(PAGE.read_text(), parts, PAGE))


def workstation() -> str:
    """A table of the runs that have ended at the workstation's scale."""
    names = ("run", "epochs", "train accuracy", "test accuracy", "its best epoch", "core-hours planned", "spent")
    head = f"| {' | '.join(names)} |\n|{' --- |' * len(names)}"
    lines = [
        line for path in sorted((RECORDS / "workstation").glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    return "\n".join([head, *(_row(json.loads(line)) for line in lines)])


def _row(run: dict[str, Any]) -> str:
    end, spent = run["summary.json"], run["cost.json"]
    shares = " | ".join(f"{100 * end[name]:.1f}%" for name in ("train_accuracy", "test_accuracy", "best_test_accuracy"))
    hours = " | ".join(f"{spent[f'{kind}_core_hours']:.2f}" for kind in ("planned", "spent"))
    return f"| {run['trial']} | {end['epochs']} | {shares} | {hours} |"


if __name__ == "__main__":
    write()
