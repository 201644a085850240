"""Measure how far AGD and StochasticAGD lower the loss of other people's models, beside Adam's best of three rates.

example: autogd bench zoo --steps 300
"""

import json as jsonlib
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from rich.console import Console
from rich.progress import track

from autogd.cli.tables import table
from autogd.experiments.zoo import RATES, ZOO, Drop, drops

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
    if options.steps < 1:
        raise ValueError(f"--steps: expected at least 1, found {options.steps}")
    missing = [name for name in ("transformers", "peft") if find_spec(name) is None]
    if missing:  # say it before any run
        raise ValueError(f"the zoo needs {' and '.join(missing)}: pip install 'autogd[bench]'")
    console = Console(quiet=options.json)
    rows: list[Drop] = []
    for name in track(ZOO, "the zoo", console=console, disable=options.json):
        rows += drops(name, options.steps, options.seed)
    if options.json:
        print(jsonlib.dumps([asdict(row) for row in rows]))
        return 0
    short = min(30, options.steps)
    shown = f"{short} / {options.steps}" if options.steps > 30 else str(short)
    lowered = f"(and how many of the first {short} lowered it)"
    title = f"drop of the loss on one fixed batch, after {shown} steps {lowered}"
    drop = table(title, ["architecture"], ["loss at\nstart", "AGD", "StochasticAGD", "Adam,\nbest of 3"])
    for name in ZOO:
        found = {row.optimiser: row for row in rows if row.architecture == name}
        for start in ("", ", initialise_"):
            ours = [found[f"{optimiser}{start}"] for optimiser in ("AGD", "StochasticAGD")]
            adam = [found[f"Adam {rate:g}{start}"] for rate in RATES]
            cells = [f"{_cell(each.after_30, each.after_all, options.steps)} ({each.lowered})" for each in ours]
            cells.append(_cell(max(row.after_30 for row in adam), max(row.after_all for row in adam), options.steps))
            drop.add_row(f"{name}{start}", f"{ours[0].start:.2f}", *cells)
    console.print(drop)
    return 0


def _cell(after_30: float, after_all: float, steps: int) -> str:
    return f"{after_30:.3f}" if steps <= 30 else f"{after_30:.3f} / {after_all:.3f}"
