"""The command `autogd demo`."""

import json as jsonlib
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from autogd.cli.output import PICTURES, check_output, table
from autogd.experiments.demo import CONTENDERS, DEPTH, EPOCHS, WIDTH, Epoch, race
from autogd.report.command_figures import draw_demo
from autogd.training.process import using_threads

__all__ = ["Demo"]

SETTINGS = {"StochasticAGD": "none", "AGD": "none", "Adam": "its default rate, 0.001", "SGD": "rate 0.1"}


@dataclass(frozen=True)
class Demo:
    """Train a 32-layer network with StochasticAGD, AGD, Adam and SGD, none of them tuned, and compare.

    example: autogd demo --out demo.png
    """

    epochs: int = EPOCHS
    """passes over the data"""
    seed: int = 0
    """of the weights and of the order of the data"""
    out: Path = Path("demo.png")
    """the file of the figure"""
    json: bool = False
    """print JSON instead of a progress bar and a table"""

    def run(self) -> int:
        """Run all contenders, print the table, save the figure."""
        if self.epochs < 1:
            raise ValueError(f"epochs: at least one is needed, found {self.epochs}")
        check_output("--out", self.out, PICTURES)
        console = Console(quiet=self.json)
        records: list[Epoch] = []
        columns = (
            TextColumn("{task.description:13}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
        )
        # one thread: the layers are small, and more threads would wait for each other
        with Progress(*columns, console=console) as progress, using_threads(1):
            for name in CONTENDERS:
                bar = progress.add_task(name, total=self.epochs, note="")
                for epoch in race(name, self.epochs, self.seed):
                    records.append(epoch)
                    progress.update(bar, advance=1, note=f"test accuracy {100 * epoch.test_accuracy:5.1f}%")
        rows = [asdict(record) for record in records]
        title = f"A fully-connected network of {DEPTH} layers, width {WIDTH}, on the digits data set; nothing is tuned"
        draw_demo(rows, title, self.out)
        if self.json:
            print(jsonlib.dumps({"figure": str(self.out), "epochs": rows}))
            return 0
        shown = table(title, ["optimiser", "settings"], ["train\naccuracy", "test\naccuracy", "objective"])
        for name in CONTENDERS:
            last = [record for record in records if record.optimiser == name][-1]
            train, test = f"{100 * last.train_accuracy:.1f}%", f"{100 * last.test_accuracy:.1f}%"
            shown.add_row(name, SETTINGS[name], train, test, f"{last.objective:.4f}")
        console.print(shown)
        console.print(f"the figure: {self.out}")
        return 0
