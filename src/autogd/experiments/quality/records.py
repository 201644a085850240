"""Outcomes as lines of JSON, one per run: in one file, or in a folder with one file per workload."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from autogd.experiments.packed import locked
from autogd.experiments.quality.race import Cell, Outcome
from autogd.experiments.repository import RECORDS
from autogd.training.records import write_whole

__all__ = ["COMMITTED", "COMMITTED_LONG", "Records"]

COMMITTED = RECORDS / "quality.jsonl"
"""The published runs."""
COMMITTED_LONG = RECORDS / "quality-long.jsonl"
"""The published long runs."""


class Records:
    """The outcomes of runs.

    Args:
        folder: where outcomes are read from and added to; a name that ends in .jsonl is one file for all workloads.
        below: records that count if the folder has no outcome of a cell; they are never written to.

    >>> import tempfile
    >>> cell = Cell("diabetes", "adam", lr=1e-3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Records(Path(folder)).add(Outcome(cell, 2, [0.5], [math.nan], [0.4], [1e-3], 1.0))
    ...     Records(Path(folder)).find(cell).loss
    [0.5]
    """

    def __init__(self, folder: Path = COMMITTED, below: Self | None = None) -> None:
        self.folder = folder
        self.below = below

    def of(self, workload: str) -> Iterator[Outcome]:
        """All outcomes of a workload, one per cell: those below first, then in the order of recording."""
        own = list(self._own(workload))
        if self.below:
            here = {outcome.cell for outcome in own}
            yield from (outcome for outcome in self.below.of(workload) if outcome.cell not in here)
        yield from own

    def find(self, cell: Cell) -> Outcome | None:
        """The latest outcome of a cell, if it was run."""
        return next((outcome for outcome in reversed(list(self.of(cell.workload))) if outcome.cell == cell), None)

    def add(self, outcome: Outcome) -> None:
        """Record an outcome; it replaces one of the same cell."""
        path = self._path(outcome.cell.workload)
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent):
            kept = [other for other in _lines(path) if other.cell != outcome.cell]
            write_whole(path, "".join(json.dumps(_plain(each)) + "\n" for each in [*kept, outcome]))

    def _own(self, workload: str) -> Iterator[Outcome]:
        return (outcome for outcome in _lines(self._path(workload)) if outcome.cell.workload == workload)

    def _path(self, workload: str) -> Path:
        return self.folder if self.folder.suffix == ".jsonl" else self.folder / f"{workload}.jsonl"


def _lines(path: Path) -> Iterator[Outcome]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield _read(json.loads(line))


def _plain(outcome: Outcome) -> dict[str, Any]:
    fields = asdict(outcome)
    cell = fields.pop("cell")
    for name in ("loss", "accuracy", "train", "rate"):
        fields[name] = [float(f"{value:.5g}") if math.isfinite(value) else None for value in fields[name]]
    plain = {**cell, **fields, "seconds": round(outcome.seconds, 2)}
    return plain if outcome.data else {name: value for name, value in plain.items() if name != "data"}


def _read(fields: dict[str, Any]) -> Outcome:
    cell = Cell(**{name: fields.pop(name) for name in ("workload", "optimiser", "lr", "schedule", "seed")})
    fields.pop("stretch", None)  # in older records: always 1
    for name, missing in (("loss", math.inf), ("train", math.inf), ("accuracy", math.nan), ("rate", math.nan)):
        fields[name] = [missing if value is None else value for value in fields[name]]
    return Outcome(cell, **fields)
