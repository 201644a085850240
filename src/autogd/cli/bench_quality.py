"""The command `autogd bench quality`."""

import json as jsonlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from autogd.cli.output import add_heading, check_folder, check_output, table
from autogd.experiments.packed import WHERE
from autogd.experiments.quality.grid import LONG_SEEDS, OURS, SEEDS, trial
from autogd.experiments.quality.race import Cell, Outcome
from autogd.experiments.quality.recipe import RIVALS
from autogd.experiments.quality.records import COMMITTED, COMMITTED_LONG, Recorder, Records
from autogd.experiments.quality.summary import LONG_OPTIMISERS, OPTIMISERS, Standing, standings, tally
from autogd.experiments.quality.workloads import LONG, WORKLOADS
from autogd.report.quality import draw, markdown, row, verdicts
from autogd.rivals import require
from autogd.training.records import write_whole

__all__ = ["Quality"]

LONG_DEFAULT = (OURS[0], *RIVALS)


@dataclass(frozen=True)
class Quality:
    """Train fixed workloads with our optimisers and with rivals; compare validation losses, steps and processor time.

    Adam, SGD and Muon are tuned with one seed, over a grid of learning rates, with a constant and a cosine schedule.
    Schedule-free AdamW and RAdam, Prodigy, Prodigy Plus, D-Adaptation, DoG, SOAP, PSGD and Scion run at their defaults;
    ours have nothing to set. The best rates and all others run with three seeds, on one torch thread. Times are
    processor seconds. Recorded runs are not repeated: repeat a stopped command to continue.

    example: autogd bench quality --workloads diabetes cells --optimisers agd-stochastic adam
    """

    workloads: tuple[str, ...] = ()
    """which workloads; default: all"""
    optimisers: tuple[str, ...] = ()
    """which optimisers; default: all, or with --long ours and the tuned rivals"""
    seeds: tuple[int, ...] = ()
    """of the weights and the order of the samples; default: 0 1 2, or 0 with --long. Grids are searched with 0"""
    data_dir: str | None = None
    """the folder with cifar-10-batches-py, fashion-mnist and tinyshakespeare.txt; else AUTOGD_DATA"""
    out: str | None = None
    """the folder of records, or one file if the name ends in .jsonl; default: runs/quality. New runs are
    added here, if the published records do not have them"""
    fresh: bool = False
    """ignore the published records and run everything again; records in --out still count"""
    long: bool = False
    """run the long workloads: all of CIFAR-10 with random crops and flips, and longer texts"""
    report: bool = False
    """train nothing: print the table of the published records, and of those in --out if it is given"""
    figure: str | None = None
    """also draw the table, to this PNG file"""
    markdown: bool = False
    """print Markdown instead of a table"""
    json: bool = False
    """print JSON instead of a table"""

    def run(self) -> int:
        """Run what is not recorded, and print the table."""
        if self.report and self.seeds:
            raise ValueError("--seeds: a report has the seeds that are recorded; leave the option out")
        known, rivals = (LONG, LONG_OPTIMISERS) if self.long else (WORKLOADS, OPTIMISERS)
        self = replace(
            self,
            workloads=self.workloads or tuple(known),
            optimisers=self.optimisers or (rivals if self.report or not self.long else LONG_DEFAULT),
            seeds=self.seeds or (LONG_SEEDS if self.long else SEEDS),
        )
        _check("workloads", self.workloads, tuple(known))
        _check("optimisers", self.optimisers, rivals)
        if self.figure:
            check_output("--figure", self.figure, (".png",))
        records = _records(self)
        if not self.report:
            require(*self.optimisers)
            _train(self, records)
        every = [each for name in self.workloads for each in standings(records.of(name))]
        shown = [each for each in every if each.optimiser in self.optimisers]
        if not shown:
            raise ValueError(f"{records.folder}: there is no record of these. {_way_out(self, records)}")
        if self.figure:
            write_whole(Path(self.figure), draw(shown))
        _print(self, shown)
        return 0


def _way_out(options: Quality, records: Records) -> str:
    published = _committed(options).folder
    if records.folder == published and not published.exists():
        return (
            f"{WHERE}: run the command in a checkout, name its records/{published.name} with --out, or leave --report "
            "out to run them"
        )
    return "Leave --report out to run them"


def _check(option: str, named: tuple[str, ...], known: tuple[str, ...]) -> None:
    strange = [name for name in named if name not in known]
    if strange:
        raise ValueError(f"{option}: {', '.join(strange)}: not known; choose from {', '.join(known)}")


def _records(options: Quality) -> Records:
    committed = _committed(options)
    if options.report and options.out is None and not options.fresh:
        return committed
    path = Path("runs/quality" if options.out is None else options.out)
    if options.report and options.out is not None and not path.exists():
        raise ValueError(f"--out: {path}: no records are there")
    if not options.report:
        check_folder("--out", path.parent if path.suffix == ".jsonl" else path)
    return Records(path, below=None if options.fresh else committed)


def _committed(options: Quality) -> Records:
    return Records(COMMITTED_LONG if options.long else COMMITTED)


def _train(options: Quality, records: Records) -> None:
    with _progress(options, records) as (run, pairs, bar):
        for workload in options.workloads:
            for optimiser in options.optimisers:
                for _ in trial(workload, optimiser, run, options.seeds):
                    pass
                pairs.advance(bar)


@contextmanager
def _progress(options: Quality, records: Records) -> Iterator[tuple[Recorder, Progress, Any]]:
    """Print one line for every new run, and below them the progress of the run and of all runs."""
    console = Console(stderr=True, quiet=options.json)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    total = len(options.workloads) * len(options.optimisers)
    whole = progress.add_task("workloads × optimisers", total=total)
    steps = progress.add_task("steps", total=None)

    def watch(cell: Cell, step: int, total: int) -> None:
        progress.update(steps, description=_words(cell), completed=step, total=total)

    def done(outcome: Outcome) -> None:
        known = _committed(options).find(outcome.cell)
        said = f" (recorded: {known.loss[-1]:.4f})" if known else ""
        line = f"{_words(outcome.cell)}: {outcome.loss[-1]:.4f}{said}, {outcome.seconds:.1f} s"
        progress.console.print(line, highlight=False, soft_wrap=True)

    try:
        with progress:
            yield Recorder(records, options.data_dir, watch, done), progress, whole
    except KeyboardInterrupt:
        console.print(f"{records.folder} has every finished run; repeat the command to continue")
        raise


def _words(cell: Cell) -> str:
    setting = "" if cell.lr is None else f" {cell.lr:g} {cell.schedule}"
    return f"{cell.workload} {cell.optimiser}{setting} seed {cell.seed}"


def _print(options: Quality, shown: list[Standing]) -> None:
    if options.json:
        rows = [{**asdict(each), "settled": each.settled} for each in shown]
        plain = [
            {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in each.items()}
            for each in rows
        ]
        print(jsonlib.dumps({"standings": plain, "tally": [asdict(each) for each in tally(shown)]}))
        return
    if options.markdown:
        print(markdown(shown))
        return
    adam = "AdamW" if options.long else "Adam"
    title = f"validation loss at the end of the budget, beside {adam} at the best rate of its grid"
    numbers = ("loss", f"÷\n{adam}", "accu-\nracy", "steps\nto it", "time\nto it", f"beside\n{adam}")
    caption = f"to it: to {adam}'s last loss, as a share of {adam}'s run"
    found = table(title, ["optimiser"], numbers, caption)
    before = ""
    for each in shown:
        if each.workload != before:
            add_heading(found, each.workload)
        _, optimiser, setting, *cells, verdict = row(each)
        name = f"{optimiser}\n  {setting}" if setting else optimiser
        found.add_row(name, *cells, verdict.split(" ")[0], style="bold" if each.optimiser == OURS[0] else "")
        before = each.workload
    console = Console()
    console.print(found)
    for line in verdicts(shown):
        console.print(line, highlight=False)
