"""The command `autogd bench trust`."""

import json as jsonlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autogd.cli.output import add_heading, check_folder, table
from autogd.experiments.packed import WHERE
from autogd.experiments.trust.cell import Cell, Run
from autogd.experiments.trust.cells import named
from autogd.experiments.trust.records import COMMITTED, Records
from autogd.experiments.trust.runs import OPTIMISERS, OURS, REFERENCE, SEEDS, attempt, runs
from autogd.experiments.trust.summary import Standing, count, standings
from autogd.report.trust import lines, markdown, row
from autogd.rivals import require

__all__ = ["Trust"]


@dataclass(frozen=True)
class Trust:
    """Find out where an optimiser with nothing to set fails: small cells, each with one kind of difficulty.

    The difficulties: batches of one sample, bad starts, spikes, wrong labels, a change of task, a GAN, a policy
    gradient, physics-informed losses, tables that can be fitted exactly. Ours runs with five seeds. Adam runs with five
    seeds at three learning rates, and its best rate counts. A cell is lost if a run is not finite, or if the mean ends
    more than 20% above Adam's. Recorded runs are not repeated: repeat a stopped command to continue. All cells take
    about 15 minutes of one core.

    example: autogd bench trust --fresh --optimisers agd-stochastic --cells spikes fitted-tables
    """

    cells: tuple[str, ...] = ()
    """which cells, by name or by family; default: all"""
    optimisers: tuple[str, ...] = (OURS, REFERENCE)
    """which optimisers; each is compared with Adam"""
    seeds: tuple[int, ...] = SEEDS
    """of the weights and the samples"""
    data_dir: str | None = None
    """the folder with tinyshakespeare.txt, for the cells on characters; else AUTOGD_DATA"""
    out: str | None = None
    """the folder of records; default: runs/trust. New runs are added here, if the published records
    do not have them"""
    fresh: bool = False
    """set aside all records of the named cells, optimisers and seeds, and run them again"""
    report: bool = False
    """train nothing: print the table of the published records, and of those in --out if it is given"""
    markdown: bool = False
    """print Markdown instead of a table"""
    json: bool = False
    """print JSON instead of a table"""

    def run(self) -> int:
        """Run what is not recorded, and print the table."""
        cells = named(self.cells)
        strange = [name for name in self.optimisers if name not in OPTIMISERS]
        if strange:
            raise ValueError(f"optimisers: {', '.join(strange)}: not known; choose from {', '.join(OPTIMISERS)}")
        if not self.optimisers or not self.seeds:
            raise ValueError("--optimisers and --seeds: name at least one of each, or leave the option out")
        if self.report and self.seeds != SEEDS:
            raise ValueError("--seeds: a report has the seeds that are recorded; leave the option out")
        records = _records(self)
        if not self.report:
            require(*self.optimisers)
            _train(self, cells, records)
        # other seeds than these are recorded too: a report shows all, a run only its own
        found = {run: outcome for run, outcome in records.every().items() if self.report or run.seed in self.seeds}
        judged = [name for name in self.optimisers if name != REFERENCE] or [OURS]
        shown = [each for name in judged for each in standings(found, cells, name)]
        if not shown:
            raise ValueError(
                f"{records.path}: there is no record of these. {WHERE}: run the command in a checkout, name a "
                "folder of records with --out, or leave --report out to run them"
            )
        _print(self, shown)
        return 0


def _records(options: Trust) -> Records:
    published = Records(COMMITTED)
    if options.report and options.out is None:
        return published
    folder = Path("runs/trust" if options.out is None else options.out)
    if options.report and not folder.exists():
        raise ValueError(f"--out: {folder}: no records are there")
    if not options.report:
        check_folder("--out", folder)
    return published if folder.resolve() == COMMITTED.resolve() else Records(folder, below=published)


def _train(options: Trust, cells: list[Cell], records: Records) -> None:
    names = [cell.name for cell in cells]
    if options.fresh:
        records.set_aside(names, options.optimisers, options.seeds)
    known = records.every()
    missing = [each for each in runs(names, options.optimisers, options.seeds) if each not in known]
    if not missing:
        return
    console = Console(stderr=True, quiet=options.json)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task("runs", total=len(missing))
            for each in missing:
                progress.update(bar, description=_words(each))
                outcome = attempt(each, options.data_dir)
                records.add(outcome)
                progress.advance(bar)
                line = f"{_words(each)}: {outcome.loss:.4f}, {outcome.seconds:.1f} s"
                progress.console.print(line, highlight=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print(f"{records.path} has every finished run; repeat the command without --fresh to continue")
        raise
    records.tidy()


def _words(each: Run) -> str:
    setting = "" if each.lr is None else f" {each.lr:g}"
    return f"{each.cell} {each.optimiser}{setting} seed {each.seed}"


def _print(options: Trust, shown: list[Standing]) -> None:
    if options.json:
        counts = {
            name: [asdict(each) for each in count(each for each in shown if each.optimiser == name)]
            for name in dict.fromkeys(each.optimiser for each in shown)
        }
        print(jsonlib.dumps({"standings": [_plain(asdict(each)) for each in shown], "counts": counts}))
        return
    if options.markdown:
        print(markdown(shown))
        return
    numbers = ("loss", "Adam's best\n(its rate)", "ratio", "verdict")
    title = "held-out loss at the end, beside the best of Adam's three rates"
    found = table(title, ["cell"], numbers, "÷: the loss, divided by that of the undisturbed start")
    several = len({each.optimiser for each in shown}) > 1
    before = ""
    for each in shown:
        if each.family != before:
            add_heading(found, each.family)
        cell, optimiser, loss, adam, ratio, verdict, recovery, logit = row(each)
        more = [f"÷ {recovery}" if recovery else "", f"logits {logit}" if logit else ""]
        name = "\n  ".join([cell, *[optimiser] * several, *filter(None, more)])
        # on a line of its own, the number of seeds leaves room for the cells' names
        loss, adam = (text.replace(" (", "\n(", 1) if "seed" in text else text for text in (loss, adam))
        found.add_row(name, loss, adam, ratio, verdict, style="bold" if each.verdict == "lost" else "")
        before = each.family
    console = Console()
    console.print(found)
    for line in lines(shown):
        console.print(line, highlight=False)


def _plain(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
