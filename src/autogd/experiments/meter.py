"""Core-hours of a run: planned before it starts, spent when it ends, both in cost.json."""

import json
import time
from pathlib import Path
from typing import Any

from autogd.experiments.cost import cost
from autogd.training import Run, Watch
from autogd.training.records import write_whole

__all__ = ["Meter", "spent"]

WRITE_EVERY = 60.0  # seconds of a core between two notes, so that a kill loses little


class Meter(Watch):
    """Counts the seconds of all cores that a run takes, over every part of it if it is stopped and resumed.

    >>> import tempfile
    >>> from autogd.training import Config, train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run.create(Config(depth=2, width=8, epochs=1), Path(folder) / "run")
    ...     _ = train(run, [Meter()])
    ...     sorted(spent(run))
    ['planned_core_hours', 'spent_core_hours']
    """

    def start(self, run: Run, step: int, steps: int) -> None:
        """Note what is planned, and go on counting from what was spent."""
        self.run, self.started, self.written = run, time.process_time(), 0.0
        before = spent(run)
        self.before = before.get("spent_core_hours", 0.0)
        self.planned = before.get("planned_core_hours", cost([run.config()]).core_hours)

    def epoch(self, record: dict[str, Any]) -> None:
        """Write if the last note is old."""
        if time.process_time() - self.started - self.written > WRITE_EVERY:
            self._write()

    def end(self) -> None:
        """Write what the run has taken so far."""
        self._write()

    def _write(self) -> None:
        self.written = time.process_time() - self.started
        found = {"planned_core_hours": self.planned, "spent_core_hours": self.before + self.written / 3600}
        rounded = {name: float(f"{hours:.3g}") for name, hours in found.items()}
        write_whole(_place(self.run), json.dumps(rounded) + "\n")


def spent(run: Run) -> dict[str, float]:
    """Planned and spent core-hours of a run; empty if nobody counted.

    >>> spent(Run(Path("nowhere")))
    {}
    """
    place = _place(run)
    return json.loads(place.read_text()) if place.is_file() else {}


def _place(run: Run) -> Path:
    return run.path / "cost.json"
