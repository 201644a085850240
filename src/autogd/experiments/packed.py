"""The published records: one file per figure, with one line of JSON for each finished run.

A run is a folder while it trains. `pack` adds a finished run to the file of its figure, for the repository. `unpack`
restores the folders, so that figures are drawn from them and no run is trained twice.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autogd.training import Run
from autogd.training.records import write_whole

__all__ = ["RECORDS", "WHERE", "locked", "pack", "unpack"]

RECORDS = Path(__file__).parents[3] / "records"
"""The folder of a checkout; an installed package has none."""
WHERE = "The published records are in the folder `records` of the project's repository, not in the installed package"
"""For messages to users of an installed package."""

_FILES = ("config.json", "summary.json", "cost.json", "steps.json")


def pack(name: str, run: Run, records: Path) -> None:
    """Add a finished run to its figure's file, unless it is there already.

    >>> import tempfile
    >>> from autogd.training import Config
    >>> with tempfile.TemporaryDirectory() as place:
    ...     run = Run.create(Config(), Path(place) / "out/figure/small")
    ...     run.write_summary({"status": "finished"})
    ...     pack("figure/small", run, Path(place) / "records")
    ...     unpack(Path(place) / "records", Path(place) / "again")
    ['figure/small']
    """
    if run.summary() is None:
        return
    found: dict[str, Any] = {"trial": name, "metrics": run.metrics()}
    found |= {each: json.loads((run.path / each).read_text()) for each in _FILES if (run.path / each).is_file()}
    file = records / f"{name.partition('/')[0]}.jsonl"
    records.mkdir(parents=True, exist_ok=True)
    with locked(records):
        lines = file.read_text().splitlines() if file.is_file() else []
        if not any(json.loads(line)["trial"] == name for line in lines):
            write_whole(file, "".join(f"{line}\n" for line in [*lines, json.dumps(found)]))


def unpack(records: Path, folder: Path) -> list[str]:
    """Unpack the runs of every file into folders, unless they exist; returns the names of the new ones.

    >>> unpack(Path("nowhere"), Path("nowhere"))
    []
    """
    new = []
    for file in sorted(records.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            found = json.loads(line)
            place = folder / found["trial"]
            if (place / "config.json").exists():
                continue
            place.mkdir(parents=True, exist_ok=True)
            write_whole(place / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in found["metrics"]))
            # write the config last: a folder without it is no run, so an interrupted unpacking is repeated
            for each in reversed(_FILES):
                if each in found:
                    write_whole(place / each, json.dumps(found[each], indent=1) + "\n")
            new.append(found["trial"])
    return new


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder while a file in it is rewritten, so that no command loses the lines of another.

    >>> with locked(Path(".")):
    ...     pass
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
