"""A run is a folder: config.json, metrics.jsonl, summary.json and checkpoints.

config.json and summary.json are written once, atomically. metrics.jsonl gets one line per epoch, which is synced to the
disk before the epoch's checkpoint. So a kill between the two leaves one line too many, never one too few, and
resuming removes it. Names, types and ranges are checked on reading.
"""

import json
import os
import re
import shlex
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from autogd.training.config import Config
from autogd.training.schema import Field, check, compare_names, read_json

__all__ = ["Run", "find_runs", "short_name", "sync_folder", "under_way", "write_whole"]

_NUMBER = Field((float, type(None)), required=False)
_SHARE = Field((float, type(None)), low=0, high=1, required=False)
_LINE = {
    "epoch": Field((int,), low=1),
    "step": Field((int,), low=0, required=False),
    "objective": _NUMBER,
    "train_accuracy": _SHARE,
    "test_objective": _NUMBER,
    "test_accuracy": _SHARE,
    **{f"{name}_{what}": _NUMBER for name in ("learning_rate", "update_size") for what in ("min", "mean", "max")},
    "seconds": Field((float,), low=0, required=False),
    "samples_per_second": _NUMBER,
    "peak_memory_bytes": Field((int,), low=0, required=False),
}


@dataclass(frozen=True)
class Run:
    """A run's folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run.create(Config(), Path(folder) / "first")
    ...     run.append({"epoch": 1, "objective": 0.5})
    ...     run.config().data, run.metrics()
    ('digits', [{'epoch': 1, 'objective': 0.5}])
    """

    path: Path

    @classmethod
    def create(cls, config: Config, path: Path | None = None) -> "Run":
        """A new folder with its config; without a path, one with a readable, unique name under runs/."""
        path = path or _fresh(config)
        if (path / "config.json").exists():
            raise ValueError(f"{path}: holds a run already; continue it with --resume {path}, or choose another --out")
        try:
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"{path}: a run's folder cannot be made there ({error.strerror})") from error
        write_whole(path / "config.json", json.dumps(config.as_dict(), indent=1) + "\n")
        return cls(path)

    @classmethod
    @contextmanager
    def created(cls, config: Config, path: Path | None = None) -> Iterator["Run"]:
        """A new run; if an error ends the block before anything is trained, its folder is removed.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     try:
        ...         with Run.created(Config(), Path(folder) / "ghost"):
        ...             raise ValueError
        ...     except ValueError:
        ...         (Path(folder) / "ghost").exists()
        False
        """
        run = cls.create(config, path)
        try:
            yield run
        except BaseException:
            run.discard()
            raise

    @classmethod
    def open(cls, path: Path) -> "Run":
        """A folder that holds a run."""
        if not (path / "config.json").is_file():
            raise ValueError(
                f"{path}: no run is here (there is no config.json); `autogd train --out {path}` starts one"
            )
        return cls(path)

    def discard(self) -> None:
        """Remove the folder if nothing was trained in it: no epoch, no checkpoint, no summary."""
        trained = [self.path / "metrics.jsonl", self.path / "summary.json", *self.checkpoints.glob("step-*")]
        if any(each.exists() for each in trained):
            return
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        (self.path / "config.json").unlink(missing_ok=True)
        with suppress(OSError):  # keep it if it has other files
            self.path.rmdir()

    def extend(self, epochs: int) -> None:
        """Raise the number of epochs; a finished run can then be resumed."""
        config = self.config()
        if config.schedule != "constant":
            raise ValueError(
                f"--epochs: the schedule of {self.path} ends at epoch {config.epochs}; start another run, or use "
                "--schedule constant"
            )
        if epochs < config.epochs:
            raise ValueError(f"--epochs: {self.path} has {config.epochs} epochs already; choose a larger number")
        write_whole(self.path / "config.json", json.dumps(replace(config, epochs=epochs).as_dict(), indent=1) + "\n")
        (self.path / "summary.json").unlink(missing_ok=True)

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.path / "checkpoints"

    def config(self) -> Config:
        """The config that the run was started with."""
        return Config.from_dict(read_json(self.path / "config.json"))

    def metrics(self) -> list[dict[str, Any]]:
        """One object per epoch; an incomplete last line, left by a kill, is ignored."""
        return [line for line, _ in self._lines()]

    def append(self, record: dict[str, Any]) -> None:
        """Add an epoch's line, and sync it to the disk."""
        with open(self.path / "metrics.jsonl", "ab") as file:
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def keep_epochs(self, epochs: int) -> None:
        """Remove lines after a checkpoint's epoch: an incomplete line, or an epoch that will be repeated.

        Warns if lines of earlier epochs are missing.
        """
        metrics = self.path / "metrics.jsonl"
        end, found = 0, set()
        for line, position in self._lines(complete=True):
            if line["epoch"] <= epochs:
                end = position
                found.add(line["epoch"])
        missing = [str(epoch) for epoch in range(1, epochs + 1) if epoch not in found]
        if missing:
            warnings.warn(
                f"{metrics}: has no line for epoch {', '.join(missing)}, though the checkpoint is later; training "
                "continues, and curves and totals will not have it",
                stacklevel=2,
            )
        if metrics.exists() and metrics.stat().st_size > end:
            os.truncate(metrics, end)

    def summary(self) -> dict[str, Any] | None:
        """The summary of the run; None while it is not finished."""
        path = self.path / "summary.json"
        if not path.is_file():
            return None
        found = read_json(path)
        if found.get("status") not in ("finished", "diverged"):
            raise ValueError(
                f"{path}: 'status': expected finished or diverged, found {str(found.get('status'))[:60]!r}; remove the "
                f"file to have it written again: rm {shlex.quote(str(path))}, and resume"
            )
        return found

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write the summary, which marks the run as finished."""
        write_whole(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")

    def write_steps(self, steps: dict[str, list[float]]) -> None:
        """Write the numbers of every step of the first epoch."""
        write_whole(self.path / "steps.json", json.dumps(steps) + "\n")

    def steps(self) -> dict[str, list[float]] | None:
        """Every step of the first epoch, one list per quantity; None if the run did not trace them."""
        path = self.path / "steps.json"
        return read_json(path) if path.is_file() else None

    def _lines(self, complete: bool = False) -> Iterator[tuple[dict[str, Any], int]]:
        """Every complete line, checked, and its end in the file; if `complete`, every key must be present."""
        path = self.path / "metrics.jsonl"
        end, before = 0, 0
        for number, text in enumerate(path.read_bytes().split(b"\n")[:-1] if path.exists() else [], start=1):
            end += len(text) + 1
            try:
                line = _parse_line(text, f"{path}, line {number}", before, complete)
            except ValueError as error:
                raise ValueError(
                    f"{error}. Mend the line, or remove it and lose that epoch's numbers: "
                    f"sed -i {number}d {shlex.quote(str(path))}"
                ) from error
            before = line["epoch"]
            yield line, end


def short_name(name: str) -> str:
    """A data set's or a network's name as part of a folder's.

    >>> short_name("digits"), short_name("src/mine.py:load")
    ('digits', 'mine-load')
    """
    source, _, last = name.rpartition(":")
    stem = Path(source).name.removesuffix(".py").rpartition(".")[2]
    return re.sub(r"[^\w.-]+", "-", f"{stem}-{last}" if source else name)


def find_runs(path: Path) -> list[Run]:
    """The run in a folder, or the runs in the folders below it.

    >>> find_runs(Path("/nowhere"))
    Traceback (most recent call last):
    ...
    ValueError: /nowhere: no run is here (looked for config.json in it and in the folders below)
    """
    if (path / "config.json").is_file():
        return [Run(path)]
    found = [Run(file.parent) for file in sorted(path.glob("**/config.json"))]
    if not found:
        raise ValueError(f"{path}: no run is here (looked for config.json in it and in the folders below)")
    return found


def under_way(config: Config, path: Path | None) -> Run | None:
    """The unfinished run that a restarted command continues: the one at its path, or the newest under runs/.

    >>> under_way(Config(), Path("/nowhere")) is None
    True
    """
    if path is not None:
        return Run(path) if (path / "config.json").is_file() else None
    files = sorted(Path("runs").glob("*/config.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    candidates = (Run(file.parent) for file in files)
    return next((run for run in candidates if run.summary() is None and not run.config().difference(config)), None)


def write_whole(path: Path, text: str | bytes) -> None:
    """Write a file atomically: a reader, or a crash, finds all of it or none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "a.txt", "all")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.txt']
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Sync the entries of a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _parse_line(text: bytes, where: str, before: int, complete: bool) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error})") from error
    line = check(found, _LINE, where)
    if complete:
        compare_names(line, _LINE, where)
    if line["epoch"] <= before:
        raise ValueError(f"{where}: epoch {line['epoch']} comes after epoch {before}")
    return line


def _fresh(config: Config) -> Path:
    """A new folder like runs/digits-fcn-agd-20260131-120000, with a number appended if that name is taken."""
    names = [short_name(name) for name in (config.data, config.model or "model", config.optimiser)]
    name = "-".join([*names, datetime.now().strftime("%Y%m%d-%H%M%S")])
    number = 1
    while True:
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
