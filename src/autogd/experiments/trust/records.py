"""Outcomes in one file, one line of JSON per run."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from autogd.experiments.packed import RECORDS
from autogd.experiments.trust.cell import Outcome, Run
from autogd.experiments.trust.cells import CELLS
from autogd.training.records import write_whole

__all__ = ["COMMITTED", "FILE", "Records"]

FILE = "trust.jsonl"
COMMITTED = RECORDS
"""The folder with the published runs."""


class Records:
    """The outcomes of runs, in a folder; a later line about a run replaces an earlier one.

    Args:
        folder: where outcomes are read and added.
        below: records to read if the folder has no outcome of a run; nothing is added to them.

    >>> import tempfile
    >>> run = Run("bandit", "adam", lr=1e-3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Records(Path(folder)).add(Outcome(run, 600, 0.25, None, 1.0))
    ...     Records(Path(folder)).find(run).loss
    0.25
    """

    def __init__(self, folder: Path, below: Self | None = None) -> None:
        self.folder, self.below = folder, below
        self.path = folder / FILE

    def every(self) -> dict[Run, Outcome]:
        """The last outcome of every run that counts: its cell exists with the same budget, and it was not set aside."""
        found = self.below.every() if self.below else {}
        for run, outcome in self._lines():
            found.pop(run, None)
            if outcome is not None:
                found[run] = outcome
        return {
            run: outcome
            for run, outcome in found.items()
            if run.cell in CELLS and outcome.steps == CELLS[run.cell].steps
        }

    def find(self, run: Run) -> Outcome | None:
        """The outcome of a run, if it counts."""
        return self.every().get(run)

    def add(self, outcome: Outcome) -> None:
        """Record an outcome."""
        self._append([_plain(outcome)])

    def set_aside(self, cells: Iterable[str], optimisers: Iterable[str], seeds: Iterable[int]) -> None:
        """Set aside the present outcomes of these cells, optimisers and seeds, here and below.

        >>> import tempfile
        >>> run = Run("bandit", "adam", lr=1e-3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     records = Records(Path(folder))
        ...     records.add(Outcome(run, 600, 0.25, None, 1.0))
        ...     records.set_aside(["bandit"], ["adam"], [0])
        ...     records.find(run) is None
        True
        """
        named = (set(cells), set(optimisers), set(seeds))
        hit = [r for r in self.every() if r.cell in named[0] and r.optimiser in named[1] and r.seed in named[2]]
        self._append([{**asdict(run), "aside": True} for run in hit])

    def tidy(self) -> None:
        """Rewrite the file: one line for each run that counts, in the order of the cells."""
        lines = dict(self._lines())
        known = self.below.every() if self.below else {}
        # keep the mark of a run that was set aside and not repeated, if there is an outcome below
        kept = {run: outcome for run, outcome in lines.items() if outcome is not None or run in known}
        order = {name: i for i, name in enumerate(CELLS)}
        ordered = sorted(kept, key=lambda r: (order.get(r.cell, len(order)), r.optimiser, r.lr or 0.0, r.seed))
        write_whole(self.path, "".join(json.dumps(_line(run, kept[run])) + "\n" for run in ordered))

    def _lines(self) -> list[tuple[Run, Outcome | None]]:
        if not self.path.exists():
            return []
        return [_read(json.loads(line)) for line in self.path.read_text().splitlines()]

    def _append(self, lines: list[dict[str, Any]]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))


def _line(run: Run, outcome: Outcome | None) -> dict[str, Any]:
    return {**asdict(run), "aside": True} if outcome is None else _plain(outcome)


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {
        **asdict(outcome.run),
        "steps": outcome.steps,
        "loss": float(f"{outcome.loss:.5g}") if math.isfinite(outcome.loss) else None,
        "logit": None if outcome.logit is None else float(f"{outcome.logit:.4g}"),
        "seconds": round(outcome.seconds, 2),
    }


def _read(fields: dict[str, Any]) -> tuple[Run, Outcome | None]:
    run = Run(*(fields[name] for name in ("cell", "optimiser", "lr", "seed")))
    if fields.get("aside"):
        return run, None
    loss = math.inf if fields["loss"] is None else fields["loss"]
    return run, Outcome(run, fields["steps"], loss, fields["logit"], fields["seconds"])
