"""What `compare` and `sweep` share: a live table while the runs train, a table and a figure at the end."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from autogd.cli.progress import on_test_set
from autogd.cli.tables import table
from autogd.report import draw, group_runs, summarise
from autogd.report.tables import cell, columns
from autogd.training import Config, Run, Stopped, Watch
from autogd.training.records import write_whole
from autogd.training.study import run_study

__all__ = ["carry_out", "final_table"]


def carry_out(trials: Mapping[str, Config], folder: Path, as_json: bool) -> list[dict[str, Any]]:
    """Train what is not recorded yet, and return the final table's rows."""
    try:
        if as_json:
            runs = run_study(trials, folder)
        else:
            with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
                board = _Board(trials, live)
                runs = run_study(trials, folder, lambda name: [board.watch(name)])
    except Stopped as stopped:
        told = f"stopped, and saved in {folder}; repeat the command to go on"
        raise Stopped(told, stopped.signal_number) from stopped
    groups = group_runs(runs)
    rows = summarise(groups)
    write_whole(folder / "figure.png", draw(groups, "png"))
    write_whole(folder / "table.json", json.dumps(rows, indent=1) + "\n")
    return rows


def final_table(rows: list[dict[str, Any]]) -> Table:
    """Mean and spread over the seeds, one row per group; JSON, the page and the figure also have the train accuracy.

    >>> final_table([]).columns[0].header
    'run'
    """
    shown = {name: title for name, title in columns(rows).items() if name != "train_accuracy"}
    epochs = {row["epochs"] for row in rows}
    if len(epochs) == 1:
        del shown["epochs"]
    first, *numbers = shown.values()
    made = table(_title(epochs), [first], numbers)
    for row in rows:
        label, *cells = (cell(row, name) for name in shown)
        seeds, _, diverged = cells[0].partition(" (")
        made.add_row(f"{label}\n({diverged}" if diverged else label, seeds, *cells[1:])
    return made


def _title(epochs: set[int]) -> str:
    if len(epochs) != 1:
        return ""
    (count,) = epochs
    return f"{count} epoch{'s' * (count != 1)}"


class _Board:
    """The live table: one line per trial, with its latest epoch."""

    def __init__(self, trials: Mapping[str, Config], live: Live) -> None:
        self.lines: dict[str, list[str]] = {name: ["waiting", "", "", ""] for name in trials}
        self.epochs = {name: config.epochs for name, config in trials.items()}
        self.live = live
        self.live.update(self.table())

    def table(self) -> Table:
        table = Table("run", "progress", "objective", "test", "η")
        for name, cells in self.lines.items():
            table.add_row(name, *cells)
        return table

    def watch(self, name: str) -> Watch:
        return _Line(self, name)


class _Line(Watch):
    def __init__(self, board: _Board, name: str) -> None:
        self.board, self.name, self.steps = board, name, 0

    def start(self, run: Run, step: int, steps: int) -> None:
        self.steps = steps
        self.step(step)

    def step(self, step: int) -> None:
        self.board.lines[self.name][0] = f"{step / self.steps:.0%}"
        if step % 10 == 0:
            self.board.live.update(self.board.table())

    def epoch(self, record: dict[str, Any]) -> None:
        numbers = [
            f"{record['objective']:.4f}",
            on_test_set(record, 2),
            f"{record['learning_rate_mean']:.3g}",
        ]
        self.board.lines[self.name][1:] = numbers
        self.board.live.update(self.board.table())
