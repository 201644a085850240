"""Measure how far AGD and StochasticAGD lower the loss of models that nobody here wrote, beside Adam's best of three.

example: autogd bench zoo --steps 300
"""

import json as jsonlib
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.progress import track
from rich.table import Table

from autogd.experiments.zoo import ZOO
from autogd.experiments.zoo_race import RUNS, Drop, drops

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options:
    """What `autogd bench zoo` takes."""

    steps: int = 30
    """steps of each optimiser"""
    seed: int = 0
    """of the weights and of the batch"""
    json: bool = False
    """print JSON instead of a table"""


def run(options: Options) -> int:
    """Run the measurement and print its table."""
    console = Console(quiet=options.json)
    rows: list[Drop] = []
    for name in track(ZOO, "the zoo", console=console, disable=options.json):
        rows += drops(name, options.steps, options.seed)
    if options.json:
        print(jsonlib.dumps([asdict(row) for row in rows]))
        return 0
    shown = f" / {options.steps}" if options.steps != 30 else ""
    table = Table(
        title=f"drop of the loss on one fixed batch, after 30{shown} steps (and how many of the first 30 lowered it)"
    )
    for head in ("architecture", "loss at start", *(name for name in RUNS if "Adam" not in name), "Adam, best of 3"):
        table.add_column(head, justify="left" if head == "architecture" else "right")
    for name in ZOO:
        found = {row.optimiser: row for row in rows if row.architecture == name}
        adam = [row for row in found.values() if "Adam" in row.optimiser]
        best = _cell(max(row.after_30 for row in adam), max(row.after_all for row in adam), options.steps)
        ours = [row for row in found.values() if row not in adam]
        cells = [f"{_cell(row.after_30, row.after_all, options.steps)} ({row.lowered})" for row in ours]
        table.add_row(name, f"{found['AGD'].start:.2f}", *cells, best)
    console.print(table)
    return 0


def _cell(after_30: float, after_all: float, steps: int) -> str:
    return f"{after_30:.3f}" if steps == 30 else f"{after_30:.3f} / {after_all:.3f}"
