"""Run what is not recorded yet, and record it at once."""

import platform
from collections.abc import Callable

import torch

from autogd.experiments.quality.long import EVERY
from autogd.experiments.quality.race import Cell, Outcome, race
from autogd.experiments.quality.records import Records
from autogd.experiments.quality.sources import SOURCES

__all__ = ["Recorder"]


class Recorder:
    """Looks a run up in the records; if it is missing, runs it on one torch thread and records it.

    Args:
        records: of the outcomes.
        data_dir: the folder that holds the data sets.
        watch: called with the cell, the step and the number of steps, during a run.
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
        if found and found.steps == EVERY[cell.workload].steps:  # a record with another budget does not count
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
                f"has {here} ({EVERY[cell.workload].data}; Python {platform.python_version()}). Run it with the Python "
                "that they were made with, or all of it again with --fresh and a new --out"
            )

    def _step(self, cell: Cell) -> Callable[[int, int], None]:
        def told(step: int, steps: int) -> None:
            if self.watch:
                self.watch(cell, step, steps)

        return told
