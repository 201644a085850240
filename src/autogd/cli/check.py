"""The command `autogd check`."""

import json
import math
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autogd.cli.output import table
from autogd.theory.check import STATEMENTS, Row, check
from autogd.training.process import using_threads

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """Check every statement of the paper on random networks, in float64: which hold, and with how much slack.

    Statements known to be false are in the table too, and must fail. The exit status is 1 if any result is not as
    expected.

    example: autogd check --draws 300
    """

    draws: int = 100
    """random draws per statement; statements about whole runs use a tenth of them"""
    seed: int = 0
    """the seed of the first draw; each further draw has the next number"""
    json: bool = False
    """print JSON instead of a table"""

    def run(self) -> int:
        """Print the table."""
        if self.draws < 2:
            raise ValueError(f"--draws: expected at least 2, found {self.draws}")
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(STATEMENTS[0].name, total=len(STATEMENTS))

            def report(row: Row) -> None:
                done = int(progress.tasks[0].completed) + 1
                following = STATEMENTS[done].name if done < len(STATEMENTS) else "done"
                progress.update(task, advance=1, description=following)

            with using_threads(1):  # the matrices are small: more threads would only wait for each other
                rows = check(self.draws, self.seed, report=report)
        right = all(row.as_expected for row in rows)
        if self.json:
            print(json.dumps({"as_expected": right, "statements": [_plain(row) for row in rows]}, indent=1))
        else:
            _print(rows, right)
        return 0 if right else 1


def _print(rows: list[Row], right: bool) -> None:
    console = Console()
    numbers = ("draws", "worst left", "right", "slack", "verdict")
    shown = table("The statements of arXiv 2304.05187, measured", ["statement"], numbers)
    for row in rows:
        cells = [str(row.draws), *(f"{value:.3g}" for value in (row.left, row.right, row.slack))]
        shown.add_row(f"[bold]{row.statement}[/]\n{escape(row.claim)}", *cells, _verdict(row))
    console.print(shown)
    for row in rows:
        if not row.holds:
            told = f"{row.statement} fails on {row.broken} of {row.draws} draws. Counterexample: {row.counterexample}"
            console.print(told, highlight=False, markup=False, soft_wrap=True)
    console.print(
        "Every result is as expected." if right else "NOT every result is as expected: see the rows marked !",
        markup=False,
    )


def _verdict(row: Row) -> str:
    word = "holds" if row.holds else "fails"
    colour = "green" if row.holds else "yellow"
    return f"[{colour}]{word}[/]" if row.as_expected else f"[bold red]{word} ![/]"


def _plain(row: Row) -> dict[str, object]:
    # JSON has no nan and no infinity
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.as_dict().items()}
