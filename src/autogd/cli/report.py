"""Write one self-contained HTML page about runs: settings, a table, the curves.

example: autogd report runs/compare-digits-fcn --out comparison.html
"""

import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from autogd.cli.output import check_output
from autogd.report import group_runs, summarise, write_page
from autogd.training import find_runs

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options:
    """What `autogd report` takes."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """folders of runs, or folders with such folders in them"""
    out: str = "report.html"
    """the page to write"""
    json: bool = False
    """print the table as JSON and nothing else"""


def run(options: Options) -> int:
    """Read the records and write the page."""
    if not options.runs:
        raise ValueError("runs: name at least one folder of a run, for example one below runs/")
    check_output("--out", options.out, (".html", ".htm"))
    runs = [found for path in options.runs for found in find_runs(Path(path))]
    write_page(runs, Path(options.out))
    if options.json:
        print(json.dumps({"page": options.out, "rows": summarise(group_runs(runs))}))
    else:
        print(f"{len(runs)} run{'s' * (len(runs) != 1)}: {options.out}")
    return 0
