"""The command `autogd reproduce`."""

import json as jsonlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from autogd.cli.output import check_folder, table
from autogd.experiments.catalogue import EXPERIMENTS, carry_out
from autogd.experiments.cost import Effort, cost, effort, left, spent
from autogd.experiments.packed import WHERE, pack, unpack
from autogd.experiments.trials import Scale
from autogd.report.reproduction import Shown, glance, show, text
from autogd.training import Run, Stopped, Watch
from autogd.training.records import write_whole

__all__ = ["Reproduce"]


@dataclass(frozen=True)
class Reproduce:
    """Reproduce a figure or a table of the paper: train what is not recorded, draw, and compare with the paper.

    Scales: `smoke` takes seconds, on embedded data; `laptop` takes minutes, on real CIFAR-10; `workstation` takes a
    night of two cores, on all of CIFAR-10; `paper` is the full experiment. Repeat the command to continue a stopped
    experiment; if all runs are recorded, it only draws again. The cost of each run is printed before it starts.

    example: autogd reproduce showcase --scale smoke
    """

    name: tyro.conf.Positional[str] = "all"
    """which experiment, or all; --list names them"""
    scale: Scale = "smoke"
    """the size: seconds, minutes on a laptop, a night of two cores, or as in the paper"""
    out: Path | None = None
    """the folder of records and figures; default: runs/reproduce/SCALE"""
    data_dir: str | None = None
    """the folder of the data sets, or where to download them; not recorded"""
    device: str = "auto"
    """cpu, cuda, cuda:1 and so on; auto takes an accelerator if there is one; not recorded"""
    only: str | None = None
    """train only the runs whose names match, such as 'versus-tuned/*-agd', and draw what is complete"""
    records: Path | None = None
    """a folder with one file per figure: its runs are not trained again, and finished runs are added to it"""
    list: bool = False
    """list the experiments and their cost at this scale, and do nothing else"""
    json: bool = False
    """print JSON and nothing else"""

    def run(self) -> int:
        """Train what is missing, then draw, compare with the paper and print."""
        names = [*EXPERIMENTS] if self.name == "all" else [self.name]
        if self.name != "all" and self.name not in EXPERIMENTS:
            raise ValueError(f"{self.name}: there is no such experiment; choose all or one of {', '.join(EXPERIMENTS)}")
        if self.list:
            return _list(self)
        every = [trial for name in names for trial in EXPERIMENTS[name].trials(self.scale)]
        if self.only is not None and not any(fnmatch(trial, self.only) for trial in every):
            raise ValueError(f"--only: {self.only} matches no run; there are {', '.join(every[:4])}, …")
        folder = check_folder("--out", self.out or Path("runs/reproduce") / self.scale)
        if self.records is not None:
            check_folder("--records", self.records)
        folder.mkdir(parents=True, exist_ok=True)
        console = Console(stderr=True, quiet=self.json)
        if self.records is not None:
            unpack(self.records, folder)
            if not any(self.records.glob("*.jsonl")):
                said = f"{self.records}: no records are here yet, so all runs are trained. {WHERE}."
                console.print(said, highlight=False, soft_wrap=True)
        if self.scale == "paper":
            trials = {k: v for name in names for k, v in EXPERIMENTS[name].trials("paper").items()}
            missing = [config for name, config in trials.items() if not _ended(folder, name)]
            console.print(f"{len(missing)} runs: {cost(missing)}", highlight=False)
        shown = {}
        for name in names:
            try:
                _train(name, self, folder, console)
            except Stopped as stopped:
                print(
                    "autogd reproduce: stopped; finished runs are recorded; repeat the command to continue",
                    file=sys.stderr,
                )
                return 128 + stopped.signal_number
            missing_runs = [each for each in EXPERIMENTS[name].trials(self.scale) if not _ended(folder, each)]
            if missing_runs and self.only is not None:
                console.print(
                    f"{name}: not drawn, {len(missing_runs)} of its runs are not recorded yet", highlight=False
                )
                continue
            shown[name] = show(name, self.scale, folder)
            _write(name, shown[name], folder, self.scale)
            if not self.json:
                _tell(name, shown[name], folder)
        if len(shown) == len(EXPERIMENTS):
            figure, table = glance({self.scale: folder})
            write_whole(folder / "overview.png", figure)
            write_whole(folder / "overview.txt", f"{table}\n")
        if self.json:
            found = {name: {"figure": _figure(name, each, folder), **_plain(each)} for name, each in shown.items()}
            print(jsonlib.dumps({"scale": self.scale, "folder": str(folder), "experiments": found}))
        return 0


def _ended(folder: Path, trial: str) -> bool:
    return Run(folder / trial).summary() is not None


def _list(options: Reproduce) -> int:
    rows = []
    folder = options.out or Path("runs/reproduce") / options.scale
    for name, experiment in EXPERIMENTS.items():
        trials = experiment.trials(options.scale)
        found = cost(trials.values())
        rows.append({"name": name, "content": experiment.content, "runs": len(trials), "steps": found.steps})
        rows[-1] |= {"operations": found.operations, "gpu_hours": found.gpu_hours}
        rows[-1] |= {f"core_hours_{what}": hours for what, hours in _hours(effort(name, trials, folder)).items()}
    if options.json:
        print(jsonlib.dumps(rows))
        return 0
    heads = ("runs", "operations", "GPU-hours", "core-hours", "spent")
    shown = table(f"scale {options.scale}", ["figure"], heads, "core-hours: of runs that no figure above has")
    for row in rows:
        hours = [f"{row[what]:,.2f}" for what in ("gpu_hours", "core_hours_planned", "core_hours_spent")]
        cells = (str(row["runs"]), f"{row['operations']:.1e}", *hours)
        shown.add_row(f"[bold]{row['name']}[/]\n{row['content']}", *cells)
    Console().print(shown)
    return 0


def _hours(found: Effort) -> dict[str, float]:
    return {"planned": found.planned, "planned_of_ended": found.planned_of_ended, "spent": found.spent}


def _train(name: str, options: Reproduce, folder: Path, console: Console) -> None:
    """Train what is not recorded, with two progress bars: runs of the experiment, and steps of the run."""
    trials = EXPERIMENTS[name].trials(options.scale)
    chosen = [trial for trial in trials if options.only is None or fnmatch(trial, options.only)]
    todo = [trial for trial in chosen if not _ended(folder, trial)]
    if todo:
        hours = sum(left(trials[trial], Run(folder / trial)) for trial in todo)
        console.print(f"{name}: {len(todo)} runs to train, about {hours:.2g} core-hours", highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=options.json or not todo) as progress:
        whole = progress.add_task(name, total=len(chosen))
        part = progress.add_task("")
        where = {"data_dir": options.data_dir, "device": options.device}

        def watch(trial: str) -> Watch:
            hours = left(trials[trial], Run(folder / trial))
            console.print(f"{trial}: starts, about {hours:.2g} core-hours", highlight=False, soft_wrap=True)
            return _Bar(progress, part, trial)

        for each in carry_out(trials, folder, watch, where, chosen):
            progress.advance(whole)
            trial = str(each.path.relative_to(folder))
            if options.records is not None:
                pack(trial, each, options.records)
            if trial in todo:
                console.print(f"{trial}: {_ending(each)}{_took(each)}", highlight=False, soft_wrap=True)


class _Bar(Watch):
    def __init__(self, progress: Progress, task: TaskID, name: str) -> None:
        self.progress, self.task, self.name = progress, task, name

    def start(self, run: Run, step: int, steps: int) -> None:
        self.progress.reset(self.task, description=self.name.partition("/")[2], total=steps, completed=step)

    def step(self, step: int) -> None:
        self.progress.update(self.task, completed=step)


def _ending(run: Run) -> str:
    summary: dict[str, Any] = run.summary() or {}
    if summary.get("status") != "finished":
        return f"diverged: {summary.get('error')}"
    accuracies = f"train {summary['train_accuracy']:.1%}, test {summary['test_accuracy']:.1%}"
    return f"objective {summary['objective']:.4g}, {accuracies}, {summary['seconds']:.0f} s"


def _took(run: Run) -> str:
    hours = spent(run)
    return f", {hours['spent_core_hours']:.2g} of {hours['planned_core_hours']:.2g} core-hours" if hours else ""


def _write(name: str, shown: Shown, folder: Path, scale: Scale) -> None:
    if shown.figure is not None:
        write_whole(folder / f"{name}.png", shown.figure)
    write_whole(folder / f"{name}.txt", text(name, scale, shown) + "\n")


def _tell(name: str, shown: Shown, folder: Path) -> None:
    if shown.table:
        head, *rows = shown.table
        _print_words(name, head, rows)
    claims = [(claim.statement, claim.paper, claim.ours, claim.verdict) for claim in shown.claims]
    _print_words(f"{name}: the paper's claims and ours", ("claim", "the paper", "ours", "verdict"), claims)
    if shown.second_row:
        heads = ("the second row", "AGD", "the best rival", "StochasticAGD (ours)", "ours is")
        _print_words(f"{name}: our own rule beside AGD", heads, [astuple(each) for each in shown.second_row])
    print(f"{_figure(name, shown, folder) or 'no figure'}; the table with budgets: {folder / name}.txt")


def _print_words(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    shown = table(title, heads, ())
    for row in rows:
        shown.add_row(*row, end_section=True)
    Console().print(shown)


def _figure(name: str, shown: Shown, folder: Path) -> str | None:
    return None if shown.figure is None else str(folder / f"{name}.png")


def _plain(shown: Shown) -> dict[str, Any]:
    claims = [asdict(claim) for claim in shown.claims]
    rows = [asdict(row) for row in shown.second_row]
    return {"table": shown.table, "claims": claims, "second_row": rows, "runs": shown.runs, "seconds": shown.seconds}
