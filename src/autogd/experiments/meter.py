"""Core-hours of a run: planned before it starts, spent when it ends, both in cost.json."""

import json
import time
from pathlib import Path
from typing import Any

from autogd.experiments.cost import cost
from autogd.training import Run, Watch
from autogd.training.records import write_whole

__all__ = ["Meter", "spent"]

WRITE_EVERY = 60.0  # write every so many processor seconds, so that a kill loses little


class Meter(Watch):
    """Counts the processor seconds of a run, also over stops and resumes.

    >>> import tempfile
    >>> from autogd.training import Config, train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run.create(Config(depth=2, width=8, epochs=1), Path(folder) / "run")
    ...     _ = train(run, [Meter()])
    ...     sorted(spent(run))
    ['planned_core_hours', 'spent_core_hours']
    """

    def start(self, run: Run, step: int, steps: int) -> None:
        """Read what was planned and spent so far."""
        self.run, self.started, self.written = run, time.process_time(), 0.0
        before = spent(run)
        self.before = before.get("spent_core_hours", 0.0)
        self.planned = before.get("planned_core_hours", cost([run.config()]).core_hours)

    def epoch(self, record: dict[str, Any]) -> None:
        """Write, if the last write is long ago."""
        if time.process_time() - self.started - self.written > WRITE_EVERY:
            self._write()

    def end(self) -> None:
        """Write the core-hours so far."""
        self._write()

    def _write(self) -> None:
        self.written = time.process_time() - self.started
        found = {"planned_core_hours": self.planned, "spent_core_hours": self.before + self.written / 3600}
        rounded = {name: float(f"{hours:.3g}") for name, hours in found.items()}
        write_whole(_place(self.run), json.dumps(rounded) + "\n")


def spent(run: Run) -> dict[str, float]:
    """Planned and spent core-hours of a run; empty if they were not counted.

    >>> spent(Run(Path("nowhere")))
    {}
    """
    place = _place(run)
    return json.loads(place.read_text()) if place.is_file() else {}


def _place(run: Run) -> Path:
    return run.path / "cost.json"
