"""Write the parts of docs/results.md that come from the committed records, and its figures.

Each figure is shown at the largest scale at which all of its runs have ended.

Run: python benchmarks/results_page.py
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from autogd.experiments.catalogue import EXPERIMENTS
from autogd.experiments.cost import effort
from autogd.experiments.packed import RECORDS, unpack
from autogd.experiments.trials import Scale
from autogd.report.markdown import filled, grid
from autogd.report.reproduction import glance, show, text
from autogd.training import Run

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURES = DOCS / "results.md", DOCS / "results"
SCALES: tuple[Scale, ...] = ("laptop", "workstation")


def write() -> None:
    """Every figure, and every part of the page."""
    figures, parts = made()
    for name, figure in figures.items():
        (FIGURES / f"{name}.png").write_bytes(figure)
    PAGE.write_text(filled(PAGE.read_text(), parts, PAGE))


def made() -> tuple[dict[str, bytes], dict[str, str]]:
    """The figures and the parts of the page, by name."""
    with tempfile.TemporaryDirectory() as place:
        folders = {scale: Path(place) / scale for scale in SCALES}
        for scale, folder in folders.items():
            unpack(RECORDS / scale, folder)
        figure, table = glance(folders)
        figures, parts = {"overview": figure}, {"overview": table}
        for name, experiment in EXPERIMENTS.items():
            scale = [scale for scale in SCALES if _ended(experiment.trials(scale), folders[scale])][-1]
            shown = show(name, scale, folders[scale])
            parts[name] = text(name, scale, shown)
            if shown.figure is not None:
                figures[name] = shown.figure
        parts["costs"] = _costs(folders["workstation"])
    parts["workstation"] = workstation()
    return figures, parts


def workstation() -> str:
    """A table of the runs that have ended at the workstation's scale."""
    names = ("run", "epochs", "train accuracy", "test accuracy", "its best epoch", "core-hours planned", "spent")
    lines = [
        line for path in sorted((RECORDS / "workstation").glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    return "\n".join(grid(names, [_row(json.loads(line)) for line in lines]))


def _ended(trials: Any, folder: Path) -> bool:
    return all(Run(folder / trial).summary() is not None for trial in trials)


def _costs(folder: Path) -> str:
    """Core-hours of the workstation's scale, by figure."""
    names = ("figure", "runs", "ended", "core-hours planned", "planned for the ended", "spent on them")
    found = {name: effort(name, each.trials("workstation"), folder) for name, each in EXPERIMENTS.items()}
    rows = [
        (name, str(e.runs), str(e.ended), f"{e.planned:.1f}", f"{e.planned_of_ended:.1f}", f"{e.spent:.1f}")
        for name, e in found.items()
        if e.runs
    ]
    return "\n".join(grid(names, rows))


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    end, spent = run["summary.json"], run["cost.json"]
    shares = (f"{100 * end[name]:.1f}%" for name in ("train_accuracy", "test_accuracy", "best_test_accuracy"))
    hours = (f"{spent[f'{kind}_core_hours']:.2f}" for kind in ("planned", "spent"))
    return (run["trial"], str(end["epochs"]), *shares, *hours)


if __name__ == "__main__":
    write()
