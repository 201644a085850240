"""Several runs in one folder: finished runs are skipped, interrupted ones are resumed."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from autogd.training.config import Config
from autogd.training.loop import Watch, train
from autogd.training.records import Run
from autogd.training.step import Diverged
from autogd.training.tryout import check_config

__all__ = ["run_study"]


def run_study(
    trials: Mapping[str, Config],
    folder: Path,
    watches: Callable[[str], Sequence[Watch]] = lambda name: (),
    where: Mapping[str, Any] | None = None,
) -> list[Run]:
    """Train every trial in turn, in a folder of its name; a run that diverges is recorded as diverged.

    `where` has the settings of the machine (data_dir, device), which are not recorded.

    >>> import tempfile
    >>> trial = {"small": Config(depth=2, width=8, epochs=1)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, again = run_study(trial, Path(folder)), run_study(trial, Path(folder))
    ...     len(again[0].metrics())
    1
    """
    configs = {name: config.resolved() for name, config in trials.items()}
    for name, config in configs.items():  # refuse before anything is trained
        check_config(config)
        _known(folder / name, config)
    runs = []
    for name, config in configs.items():
        known = _known(folder / name, config)
        with Run.created(config, folder / name) if known is None else nullcontext(known) as run:
            if run.summary() is None:
                with suppress(Diverged):  # it is in the run's summary
                    train(run, watches(name), dataclasses.replace(run.config(), **(where or {})))
        runs.append(run)
    return runs


def _known(path: Path, config: Config) -> Run | None:
    """The run that is recorded there; None if there is none, an error if its settings differ."""
    if not (path / "config.json").exists():
        return None
    run = Run.open(path)
    different = run.config().difference(config)
    if different:
        raise ValueError(
            f"{path}: recorded with other settings ({', '.join(different)}); choose another --out, or remove it"
        )
    return run
