"""Outcomes as lines of JSON, one per run; and a recorder that runs only what is missing."""

import json
import math
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch

from autogd.experiments.packed import RECORDS, locked
from autogd.experiments.quality.race import Cell, Outcome, race
from autogd.experiments.quality.sources import SOURCES
from autogd.experiments.quality.workloads import EVERY
from autogd.training.records import write_whole

__all__ = ["COMMITTED", "COMMITTED_LONG", "Recorder", "Records"]

COMMITTED = RECORDS / "quality.jsonl"
"""The published runs."""
COMMITTED_LONG = RECORDS / "quality-long.jsonl"
"""The published long runs."""


class Records:
    """The outcomes of runs.

    Args:
        folder: where outcomes are read and added, one file per workload; or one file for all, if the name
            ends in .jsonl.
        below: records to read if the folder has no outcome of a cell; nothing is added to them.

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


class Recorder:
    """Looks up a run in the records; if it is missing, runs it on one torch thread and records it.

    Args:
        records: where outcomes are looked up and added.
        data_dir: the folder of the data sets.
        watch: called during a run with the cell, the step and the number of steps.
        done: called with every new outcome.

    >>> import tempfile
    >>> from pathlib import Path
    >>> cell, news = Cell("diabetes", "adam", lr=1e-3), []
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Recorder(Records(Path(folder)), done=news.append)
    ...     again = [run(cell).cell == run(cell).cell]
    >>> again, len(news)
    ([True], 1)
    """

    def __init__(
        self,
        records: Records,
        data_dir: str | None = None,
        watch: Callable[[Cell, int, int], None] | None = None,
        done: Callable[[Outcome], None] | None = None,
    ) -> None:
        self.records, self.data_dir, self.watch, self.done = records, data_dir, watch, done

    def __call__(self, cell: Cell) -> Outcome:
        """The outcome of a cell."""
        found = self.records.find(cell)
        if found and found.steps == EVERY[cell.workload].steps:  # else it has another budget, and does not count
            return found
        self._check_data(cell)
        if self.watch:
            self.watch(cell, 0, EVERY[cell.workload].steps)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # so that processor seconds measure work, not waiting threads
        try:
            outcome = race(cell, self.data_dir, self._step(cell))
        finally:
            torch.set_num_threads(threads)
        self.records.add(outcome)
        if self.done:
            self.done(outcome)
        return outcome

    def _check_data(self, cell: Cell) -> None:
        recorded = {outcome.data for outcome in self.records.of(cell.workload) if outcome.data}
        if not recorded:
            return
        here = SOURCES[EVERY[cell.workload].data](self.data_dir).digest
        if recorded != {here}:
            raise ValueError(
                f"{cell.workload}: the records are of other data: they say {', '.join(sorted(recorded))}, this machine "
                f"has {here} ({EVERY[cell.workload].data}; Python {platform.python_version()}). Use the Python of "
                "the records, or run the whole workload again with --fresh and a new --out"
            )

    def _step(self, cell: Cell) -> Callable[[int, int], None]:
        def forward(step: int, steps: int) -> None:
            if self.watch:
                self.watch(cell, step, steps)

        return forward
