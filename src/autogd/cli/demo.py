"""Train a 32-layer network with StochasticAGD, AGD, Adam and SGD, none of them tuned, and compare.

example: autogd demo --out demo.png
"""

import json as jsonlib
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from autogd.cli.output import PICTURES, check_output
from autogd.cli.tables import table
from autogd.experiments.demo import CONTENDERS, DEPTH, EPOCHS, WIDTH, Epoch, race
from autogd.report.command_figures import draw_demo
from autogd.training.threads import using

__all__ = ["Options", "run"]

SETTINGS = {"StochasticAGD": "none", "AGD": "none", "Adam": "its default rate, 0.001", "SGD": "rate 0.1"}


@dataclass(frozen=True)
class Options:
    """What `autogd demo` takes."""

    epochs: int = EPOCHS
    """passes over the data"""
    seed: int = 0
    """of the weights and of the order of the data"""
    out: Path = Path("demo.png")
    """the file of the figure"""
    json: bool = False
    """print JSON instead of a progress bar and a table"""


def run(options: Options) -> int:
    """Run all contenders, print the table, save the figure."""
    if options.epochs < 1:
        raise ValueError(f"epochs: at least one is needed, found {options.epochs}")
    check_output("--out", options.out, PICTURES)
    console = Console(quiet=options.json)
    records: list[Epoch] = []
    columns = (TextColumn("{task.description:13}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress, using(1):
        # its layers are small: more threads would wait for each other
        for name in CONTENDERS:
            bar = progress.add_task(name, total=options.epochs, note="")
            for epoch in race(name, options.epochs, options.seed):
                records.append(epoch)
                progress.update(bar, advance=1, note=f"test accuracy {100 * epoch.test_accuracy:5.1f}%")
    rows = [asdict(record) for record in records]
    title = f"A fully-connected network of {DEPTH} layers, width {WIDTH}, on the digits data set; nothing is tuned"
    draw_demo(rows, title, options.out)
    if options.json:
        print(jsonlib.dumps({"figure": str(options.out), "epochs": rows}))
        return 0
    shown = table(title, ["optimiser", "settings"], ["train\naccuracy", "test\naccuracy", "objective"])
    for name in CONTENDERS:
        last = [record for record in records if record.optimiser == name][-1]
        train, test = f"{100 * last.train_accuracy:.1f}%", f"{100 * last.test_accuracy:.1f}%"
        shown.add_row(name, SETTINGS[name], train, test, f"{last.objective:.4f}")
    console.print(shown)
    console.print(f"the figure: {options.out}")
    return 0
