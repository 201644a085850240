"""Measure how far AGD lowers the loss of models that nobody here wrote, beside Adam at its best of three rates.

example: autogd bench zoo --steps 300
"""

import json as jsonlib
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.progress import track
from rich.table import Table

from autogd.experiments.zoo import ZOO
from autogd.experiments.zoo_race import Drop, drops

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
    table = Table(title=f"drop of the loss on one fixed batch, after 30 and after {options.steps} steps")
    for head in (
        "architecture",
        "loss at start",
        "AGD",
        "lowered",
        "AGD from initialise_",
        "lowered",
        "Adam, best of 3",
    ):
        table.add_column(head, justify="left" if head == "architecture" else "right")
    for name in ZOO:
        own, ours, *adam = [row for row in rows if row.architecture == name]
        best = max(adam, key=lambda row: row.after_all)
        cells = [f"{row.after_30:.3f} / {row.after_all:.3f}" for row in (own, ours)]
        rival = f"{max(row.after_30 for row in adam):.3f} / {best.after_all:.3f}"
        table.add_row(name, f"{own.start:.2f}", cells[0], f"{own.lowered}/30", cells[1], f"{ours.lowered}/30", rival)
    console.print(table)
    return 0
