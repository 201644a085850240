"""Several runs in one folder: finished runs are skipped, interrupted ones are resumed."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autogd.training.config import Config
from autogd.training.finite import Diverged
from autogd.training.loop import Watch, train
from autogd.training.records import Run

__all__ = ["run_study"]


def run_study(
    trials: Mapping[str, Config],
    folder: Path,
    watches: Callable[[str], Sequence[Watch]] = lambda name: (),
    where: Mapping[str, Any] | None = None,
) -> list[Run]:
    """Train every trial in turn, in a folder of its name; a run that diverges is recorded as diverged.

    `where` has settings of the machine (data_dir, device), which are not recorded.

    >>> import tempfile
    >>> trial = {"small": Config(depth=2, width=8, epochs=1)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, again = run_study(trial, Path(folder)), run_study(trial, Path(folder))
    ...     len(again[0].metrics())
    1
    """
    runs = [_open(folder / name, config.resolved()) for name, config in trials.items()]
    for name, run in zip(trials, runs, strict=True):
        if run.summary() is None:
            try:
                train(run, watches(name), dataclasses.replace(run.config(), **(where or {})))
            except Diverged:
                continue  # the run's summary says so
    return runs


def _open(path: Path, config: Config) -> Run:
    if not (path / "config.json").exists():
        return Run.create(config, path)
    run = Run.open(path)
    different = run.config().difference(config)
    if different:
        raise ValueError(
            f"{path}: recorded with other settings ({', '.join(different)}); choose another --out, or remove it"
        )
    return run
