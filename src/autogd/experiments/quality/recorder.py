"""Run what is not recorded yet, and record it at once."""

from collections.abc import Callable

import torch

from autogd.experiments.quality.race import Cell, Outcome, race
from autogd.experiments.quality.records import Records
from autogd.experiments.quality.workloads import WORKLOADS

__all__ = ["Recorder"]


class Recorder:
    """A run by its record, or else a race, on one torch thread, that leaves one.

    Args:
        records: where outcomes are looked up and added.
        data_dir: the folder that holds the data sets.
        watch: told of the cell, the step and all steps, while a race runs.
        done: told of every new outcome.

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
        if found and found.steps == WORKLOADS[cell.workload].steps * cell.stretch:  # an old budget does not count
            return found
        if self.watch:
            self.watch(cell, 0, WORKLOADS[cell.workload].steps * cell.stretch)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # processor seconds then are those of the work, not of threads that wait
        try:
            outcome = race(cell, self.data_dir, self._step(cell))
        finally:
            torch.set_num_threads(threads)
        self.records.add(outcome)
        if self.done:
            self.done(outcome)
        return outcome

    def _step(self, cell: Cell) -> Callable[[int, int], None]:
        def told(step: int, steps: int) -> None:
            if self.watch:
                self.watch(cell, step, steps)

        return told
