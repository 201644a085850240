"""Records of many runs in one file a figure: a line of JSON for each run that has ended.

Runs are folders while they train. Packed, those of a figure are one file that a repository can hold; unpacked, they are
folders again, which figures are drawn from and which are never trained twice.
"""

import json
from pathlib import Path
from typing import Any

from autogd.training import Run
from autogd.training.records import locked, write_whole

__all__ = ["pack", "unpack"]

_FILES = ("config.json", "summary.json", "cost.json", "steps.json")


def pack(name: str, run: Run, records: Path) -> None:
    """Add an ended run to its figure's file, as a whole; a run that is there already is left as it is.

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
    """Make folders of the runs of every figure's file, but for those that are there; the names of the new ones.

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
            for each in reversed(_FILES):  # the config last: without it there is no run, and the next try begins anew
                if each in found:
                    write_whole(place / each, json.dumps(found[each], indent=1) + "\n")
            new.append(found["trial"])
    return new
