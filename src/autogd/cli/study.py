"""The commands about several runs, side by side: compare, sweep and report."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.live import Live
from rich.table import Table

from autogd.baselines import PAPER_GRID, entry
from autogd.cli.output import check_folder, check_output, table
from autogd.cli.progress import on_test_set
from autogd.report import draw, group_runs, summarise, write_page
from autogd.report.tables import cell, columns
from autogd.training import Config, Run, Stopped, Watch, find_runs
from autogd.training.records import short_name, write_whole
from autogd.training.study import run_study

__all__ = ["Compare", "Report", "Sweep", "carry_out", "final_table"]


@dataclass(frozen=True)
class Compare(Config):
    """Train several optimisers on the same task, with the same seeds and the same budget, side by side.

    Recorded runs are not trained again: repeat the command to continue a stopped comparison.

    example: autogd compare --optimisers agd adam=0.001 sgd=0.1 --seeds 3
    """

    optimiser: tyro.conf.Suppress[str] = "agd-stochastic"
    lr: tyro.conf.Suppress[float | None] = None
    optimisers: tuple[str, ...] = ("agd-stochastic", "agd", "adam", "sgd")
    """names, each with a learning rate if it should not be the default: adam=0.001"""
    seeds: int = 3
    """number of runs of each, with seeds from --seed on"""
    out: str | None = None
    """the folder of all the runs; default: one under runs/, named after the task"""
    json: bool = False
    """print the table as JSON and nothing else"""

    def run(self) -> int:
        """Train what is missing, then print the table and draw the figure."""
        if not self.optimisers:
            raise ValueError("--optimisers: name at least one, for example: --optimisers agd-stochastic adam=0.001")
        if self.seeds < 1:
            raise ValueError(f"--seeds: expected at least 1, found {self.seeds}")
        task = Config.from_dict(self.as_dict()).resolved()
        names = short_name(task.data), short_name(task.model or "")
        usual = f"runs/compare-{'-'.join(names)}"
        folder = check_folder("--out", usual if self.out is None else self.out)
        trials = {}
        for word in self.optimisers:
            name, equals, rate = word.partition("=")
            try:
                lr = float(rate) if equals else None
            except ValueError as error:
                raise ValueError(f"--optimisers: {word}: expected NAME or NAME=RATE, for example adam=0.001") from error
            for seed in range(self.seed, self.seed + self.seeds):
                # an optimiser without a rate has nothing to schedule
                schedule = task.schedule if entry(name).rated else "constant"
                trials[f"{word}-seed{seed}"] = dataclasses.replace(
                    task, optimiser=name, lr=lr, seed=seed, schedule=schedule
                )
        rows = carry_out(trials, folder, self.json)
        if self.json:
            print(json.dumps({"folder": str(folder), "rows": rows}))
        else:
            Console().print(final_table(rows))
            print(f"mean ± standard deviation over the seeds; the runs and their figure are in {folder}")
        return 0


@dataclass(frozen=True)
class Sweep(Config):
    """Train a rival at every learning rate of a grid; by default the paper's.

    Recorded runs are not trained again: repeat the command to continue a stopped sweep.

    example: autogd sweep --optimiser adam --epochs 5
    """

    optimiser: str = "adam"
    """the rival to tune"""
    lr: tyro.conf.Suppress[float | None] = None
    grid: tuple[float, ...] = PAPER_GRID
    """learning rates to try"""
    seeds: int = 1
    """number of runs of each, with seeds from --seed on"""
    out: str | None = None
    """the folder of all the runs; default: one under runs/, named after the task and the rival"""
    json: bool = False
    """print the table as JSON and nothing else"""

    def run(self) -> int:
        """Train what is missing, then print the table, draw the figure and name the best."""
        if not entry(self.optimiser).rated:
            raise ValueError(f"optimiser: {self.optimiser} has no learning rate to sweep; choose a rival")
        if not self.grid:
            raise ValueError("--grid: name at least one learning rate, or leave the option out")
        if self.seeds < 1:
            raise ValueError(f"--seeds: expected at least 1, found {self.seeds}")
        task = Config.from_dict(self.as_dict()).resolved()
        names = short_name(task.data), short_name(task.model or ""), task.optimiser
        usual = f"runs/sweep-{'-'.join(names)}"
        folder = check_folder("--out", usual if self.out is None else self.out)
        trials = {
            f"lr{lr:g}-seed{seed}": dataclasses.replace(task, lr=lr, seed=seed)
            for lr in self.grid
            for seed in range(self.seed, self.seed + self.seeds)
        }
        rows = carry_out(trials, folder, self.json)
        # choose by the training objective: choosing by the test set would be training on it
        sound = [row for row in rows if row["objective_mean"] is not None and not row["diverged"]]
        best = min(sound, key=lambda row: row["objective_mean"], default=None)
        if self.json:
            print(json.dumps({"folder": str(folder), "best": best and best["label"], "rows": rows}))
        else:
            Console().print(final_table(rows))
            print(
                f"lowest training objective: {best['label'] if best else 'none, all diverged'}; "
                f"the runs are in {folder}"
            )
        return 0


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


def carry_out(trials: Mapping[str, Config], folder: Path, as_json: bool) -> list[dict[str, Any]]:
    """Train what is not recorded yet, with a live table, and return the rows of the final one."""
    try:
        if as_json:
            runs = run_study(trials, folder)
        else:
            with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
                board = _Board(trials, live)
                runs = run_study(trials, folder, lambda name: [board.watch(name)])
    except Stopped as stopped:
        told = f"stopped, and saved in {folder}; repeat the command to continue"
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
