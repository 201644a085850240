"""The command `autogd report`."""

import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from autogd.cli.output import check_output
from autogd.report import group_runs, summarise, write_page
from autogd.training import find_runs

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page about runs: settings, a table, the curves.

    example: autogd report runs/compare-digits-fcn --out comparison.html
    """

    runs: tyro.conf.Positional[tuple[str, ...]]
    """folders of runs, or folders with such folders in them"""
    out: str = "report.html"
    """the page to write"""
    json: bool = False
    """print the table as JSON and nothing else"""

    def run(self) -> int:
        """Read the records and write the page."""
        if not self.runs:
            raise ValueError("runs: name at least one folder of a run, for example one below runs/")
        check_output("--out", self.out, (".html", ".htm"))
        runs = [found for path in self.runs for found in find_runs(Path(path))]
        write_page(runs, Path(self.out))
        if self.json:
            print(json.dumps({"page": self.out, "rows": summarise(group_runs(runs))}))
        else:
            print(f"{len(runs)} run{'s' * (len(runs) != 1)}: {self.out}")
        return 0
