"""Write everything in README.md and docs/ that comes from code and records: tables, verdicts and figures.

Nothing is trained. Run: python benchmarks/pages.py [quality | trust | results | research | scale | front ...]
"""

import json
import runpy
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autogd.cli.help import markdown as glossary
from autogd.experiments.catalogue import EXPERIMENTS
from autogd.experiments.cost import effort
from autogd.experiments.packed import RECORDS, unpack
from autogd.experiments.quality.records import COMMITTED_LONG
from autogd.experiments.quality.records import Records as Quality
from autogd.experiments.quality.summary import standings as quality_standings
from autogd.experiments.quality.workloads import LONG, WORKLOADS
from autogd.experiments.scale import costs as costs_of_a_step
from autogd.experiments.scale import tensors_of
from autogd.experiments.speed.step_cost import Share
from autogd.experiments.speed.tensors import SHAPES
from autogd.experiments.trials import Scale
from autogd.experiments.trust.cells import CELLS
from autogd.experiments.trust.records import COMMITTED
from autogd.experiments.trust.records import Records as Trust
from autogd.experiments.trust.summary import standings as trust_standings
from autogd.report.front_page import costs, draw_versus, not_below, not_won, verdicts
from autogd.report.markdown import filled, grid
from autogd.report.quality import draw, workloads
from autogd.report.quality import markdown as quality_table
from autogd.report.reproduction import glance, show, text
from autogd.report.scale import draw_scale
from autogd.report.scale import markdown as scale_table
from autogd.report.trust import cells
from autogd.report.trust import markdown as trust_table
from autogd.training import Run

ROOT = Path(__file__).parents[1]
DOCS, IMAGES, FIGURES = ROOT / "docs", ROOT / "docs" / "images", ROOT / "docs" / "results"
README, WHEN_NOT, GLOSSARY = ROOT / "README.md", DOCS / "when_not.md", DOCS / "glossary.md"
QUALITY, TRUST, RESULTS, SCALE = (DOCS / f"{name}.md" for name in ("quality", "trust", "results", "scale"))
SCALES: tuple[Scale, ...] = ("laptop", "workstation")
MINUTE = 1 / 60  # of an hour


def fill(page: Path, parts: dict[str, str]) -> None:
    """Replace the named parts of a page."""
    page.write_text(filled(page.read_text(), parts, page))


# docs/quality.md


def quality() -> list[Any]:
    """Every optimiser on every workload."""
    return [each for name in WORKLOADS for each in quality_standings(Quality().of(name))]


def quality_parts() -> dict[str, str]:
    """The tables of the page, and its figure's line."""
    long = [each for name in LONG for each in quality_standings(Quality(COMMITTED_LONG).of(name))]
    figure = "![Loss over tuned Adam's, and time to tuned Adam's loss, by workload](images/quality.png)"
    return {
        "verdicts": verdicts(quality(), []),
        "workloads": workloads(),
        "figure": figure if quality() else "",
        "table": quality_table(quality()),
        "long": quality_table(long),
        "long workloads": workloads(long=True),
    }


def write_quality() -> None:
    if quality():
        (IMAGES / "quality.png").write_bytes(draw(quality()))
    fill(QUALITY, quality_parts())


# docs/trust.md


def trust() -> list[Any]:
    """Ours and Adam on every cell."""
    return trust_standings(Trust(COMMITTED).every(), list(CELLS.values()))


def trust_parts() -> dict[str, str]:
    return {"verdicts": verdicts([], trust()), "table": trust_table(trust()), "cells": cells()}


def write_trust() -> None:
    fill(TRUST, trust_parts())


# docs/results.md: each figure at the largest scale at which all of its runs have ended


def results() -> tuple[dict[str, bytes], dict[str, str]]:
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
        parts["costs"] = _core_hours(folders["workstation"])
    parts["workstation"] = _workstation()
    return figures, parts


def write_results() -> None:
    figures, parts = results()
    for name, figure in figures.items():
        (FIGURES / f"{name}.png").write_bytes(figure)
    fill(RESULTS, parts)


def _ended(trials: Iterable[str], folder: Path) -> bool:
    return all(Run(folder / trial).summary() is not None for trial in trials)


def _core_hours(folder: Path) -> str:
    """Core-hours of the workstation's scale, by figure."""
    names = ("figure", "runs", "ended", "core-hours planned", "planned for the ended", "spent on them")
    found = {name: effort(name, each.trials("workstation"), folder) for name, each in EXPERIMENTS.items()}
    rows = [
        (name, str(e.runs), str(e.ended), f"{e.planned:.1f}", f"{e.planned_of_ended:.1f}", f"{e.spent:.1f}")
        for name, e in found.items()
        if e.runs
    ]
    return "\n".join(grid(names, rows))


def _workstation() -> str:
    """The runs that have ended at the workstation's scale, less those of seconds."""
    names = ("run", "epochs", "train accuracy", "test accuracy", "its best epoch", "core-hours planned", "spent")
    files = sorted((RECORDS / "workstation").glob("*.jsonl"))
    runs = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    long = [run for run in runs if run["cost.json"]["spent_core_hours"] >= MINUTE]
    return "\n".join(grid(names, [_row(run) for run in long]))


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    end, spent = run["summary.json"], run["cost.json"]
    ends = (end[name] for name in ("train_accuracy", "test_accuracy", "best_test_accuracy"))
    shares = ("diverged" if share is None else f"{100 * share:.1f}%" for share in ends)
    hours = (f"{spent[f'{kind}_core_hours']:.2f}" for kind in ("planned", "spent"))
    return (run["trial"], str(end["epochs"]), *shares, *hours)


# docs/research.md


def write_research() -> None:
    runpy.run_path(str(ROOT / "benchmarks" / "research.py"))["draw"]()


# docs/scale.md: the model's costs, beside what `benchmarks/ranks.py counted` has counted


def planned(name: str, *ranks: int) -> list[Any]:
    """The model's costs."""
    tensors = tensors_of(SHAPES[name]())
    return [cost for n in ranks for cost in costs_of_a_step(tensors, n)]


def counted() -> list[dict[str, Any]]:
    """What was counted on real processes, a row a rank."""
    return [json.loads(line) for line in (RECORDS / "scale-counted.jsonl").read_text().splitlines()]


def write_scale() -> None:
    llama, gpt2 = planned("llama-3-8b", 8, 64, 256, 1024, 4096), planned("gpt2-small", *(2**i for i in range(7)))
    tables = {"llama-3-8b": llama, "gpt2-small": [cost for cost in gpt2 if cost.ranks in (4, 8)]}
    fill(SCALE, {name: scale_table(found) for name, found in tables.items()})
    (IMAGES / "scale.png").write_bytes(draw_scale(llama))
    (IMAGES / "scale_gpt2.png").write_bytes(draw_scale(gpt2, counted()))


# README.md, docs/when_not.md and docs/glossary.md


def readme() -> dict[str, str]:
    """The verdicts, and what `bench step --share --threads 1 --rounds 5 --json` printed, with the optimisers that
    README names."""
    shares = [Share(**row) for row in json.loads((RECORDS / "step-share.json").read_text())]
    return {"verdicts": verdicts(quality(), trust()), "costs": costs(shares)}


def when_not() -> dict[str, str]:
    return {"workloads": not_below(quality()), "cells": not_won(trust())}


def write_front() -> None:
    fill(README, readme())
    fill(WHEN_NOT, when_not())
    GLOSSARY.write_text(glossary())
    (IMAGES / "versus_tuned.png").write_bytes(draw_versus(quality()))


PAGES = {
    "quality": write_quality,
    "trust": write_trust,
    "results": write_results,
    "research": write_research,
    "scale": write_scale,
    "front": write_front,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        print(name, flush=True)
        PAGES[name]()
