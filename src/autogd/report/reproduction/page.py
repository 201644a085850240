"""From the records of an experiment to its figure and its claims."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autogd.experiments.catalogue import EXPERIMENTS
from autogd.experiments.trials import Scale
from autogd.report.markdown import grid
from autogd.report.reproduction import (
    architectures,
    batch_size,
    overview,
    showcase,
    tables,
    versus_tuned,
    width_depth,
)
from autogd.report.reproduction.curves import picture
from autogd.report.reproduction.reading import Runs
from autogd.report.reproduction.verdicts import Claim, Comparison, claims_table, second_row_table
from autogd.training import Run

__all__ = ["Shown", "glance", "show", "text"]

_FIGURES: dict[str, Callable[[Runs], Any]] = {
    "showcase": showcase.draw,
    "architectures": architectures.draw,
    "versus-tuned": versus_tuned.draw,
    "width-depth": width_depth.draw,
    "batch-size": batch_size.draw,
    "optimisers-table": tables.draw,
}
_CLAIMS: dict[str, Callable[[Runs], list[Claim]]] = {
    "showcase": showcase.claims,
    "architectures": architectures.claims,
    "versus-tuned": versus_tuned.claims,
    "width-depth": width_depth.claims,
    "batch-size": batch_size.claims,
    "optimisers-table": tables.optimiser_claims,
    "theories-table": lambda runs: tables.theory_claims(),
}
_SECOND_ROWS: dict[str, Callable[[Runs], list[Comparison]]] = {
    "showcase": showcase.second_row,
    "architectures": architectures.second_row,
    "versus-tuned": versus_tuned.second_row,
    "width-depth": width_depth.second_row,
    "batch-size": batch_size.second_row,
    "optimisers-table": tables.second_row,
}


@dataclass(frozen=True)
class Shown:
    """The result of an experiment: figure and table (head first) if it has them, claims, second row, runs, time."""

    figure: bytes | None
    table: list[tuple[str, ...]]
    claims: list[Claim]
    second_row: list[Comparison]
    runs: int
    seconds: float

    @property
    def effort(self) -> str:
        """The number of runs and their total time, as text; empty if there are no runs."""
        return f", from {self.runs} runs of {self.seconds:,.0f} s in all" if self.runs else ""


def show(name: str, scale: Scale, folder: Path) -> Shown:
    """Read the experiment's records under a folder, draw its figure and judge its claims.

    >>> shown = show("theories-table", "smoke", Path("nowhere"))
    >>> shown.figure is None, shown.table[0][0], len(shown.claims)
    (True, 'theory', 7)
    """
    trials = EXPERIMENTS[name].trials(scale)
    missing = [trial for trial in trials if Run(folder / trial).summary() is None]
    if missing:
        raise ValueError(f"{folder}: {', '.join(missing[:3])}: not recorded yet; run the experiment to its end first")
    runs = {trial: Run(folder / trial) for trial in trials}
    figure = picture(_FIGURES[name](runs)) if name in _FIGURES else None
    table: list[tuple[str, ...]] = []
    if name == "optimisers-table":
        table = [tables.OPTIMISERS_HEAD, *tables.optimisers(runs)]
    elif name == "theories-table":
        table = [tables.THEORIES_HEAD, *tables.theories()]
    seconds = sum(float((run.summary() or {}).get("seconds", 0)) for run in runs.values())
    second_row = _SECOND_ROWS[name](runs) if name in _SECOND_ROWS else []
    return Shown(figure, table, _CLAIMS[name](runs), second_row, len(runs), seconds)


def text(name: str, scale: Scale, shown: Shown) -> str:
    """The result as Markdown: the table if there is one, the claims, the second row, the command.

    >>> text("theories-table", "smoke", show("theories-table", "smoke", Path("nowhere"))).splitlines()[0]
    '| theory | handles the loss | handles the network | shown by |'
    """
    after = second_row_table(shown.second_row) if shown.second_row else ""
    claims = claims_table(shown.claims, f"autogd reproduce {name} --scale {scale}", shown.effort, after)
    if not shown.table:
        return claims
    head, *rows = shown.table
    return "\n".join([*grid(head, rows), "", claims])


def glance(folders: Mapping[Scale, Path]) -> tuple[bytes, str]:
    """All experiments in one figure, a PNG, and one table as Markdown, from the records under a folder for each scale.

    A claim is shown at the last of the scales at which its runs have all ended.
    """
    found: dict[str, overview.Line] = {}
    for scale, folder in folders.items():
        trials = [trial for experiment in EXPERIMENTS.values() for trial in experiment.trials(scale)]
        runs = {trial: run for trial in trials if (run := Run(folder / trial)).summary() is not None}
        found |= {line.claim: line for line in overview.lines(runs, trials, scale)}
    said = "on one core of a CPU, one seed; the paper's budget is far larger"
    figure = picture(overview.draw([*found.values()], said))
    commands = " and ".join(f"`autogd reproduce all --scale {scale}`" for scale in folders)
    return figure, f"{overview.table([*found.values()])}\n\nPrinted by {commands}."
