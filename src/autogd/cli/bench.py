"""Measure AGD against its rivals; every measurement has its own options (`autogd bench zoo --help`) and --json.

example: autogd bench quality --report
"""

import json as jsonlib
import warnings
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from inspect import getdoc
from typing import Annotated, Any, Union

from rich.console import Console
from rich.progress import track
from tyro.conf import subcommand

from autogd.cli.bench_cost import Scale, Step
from autogd.cli.bench_quality import Quality
from autogd.cli.bench_trust import Trust
from autogd.cli.output import table
from autogd.experiments.coverage import Built, Trained, architectures, build, built, shrunk_names, trained
from autogd.experiments.zoo import RATES, ZOO, Drop, drops

__all__ = ["MEASUREMENTS", "Bench", "Coverage", "Zoo"]


@dataclass(frozen=True)
class Coverage:
    """Construct both optimisers on every architecture that transformers builds; with --train, train small versions.

    example: autogd bench coverage --train
    """

    train: bool = False
    """shrink the architectures of four tasks until they run, read a forward pass, and train them beside Adam"""
    every: int = 1
    """take only every n-th architecture"""
    steps: int = 30
    """of training"""
    json: bool = False
    """print JSON instead of a table"""

    def run(self) -> int:
        """Run the measurement and print its table; the status is 0 if nothing was refused, unread or contradicted."""
        if self.every < 1 or self.steps < 1:
            raise ValueError("--every and --steps: expected at least 1")
        if find_spec("transformers") is None:
            raise ValueError("bench coverage needs transformers: pip install 'autogd[bench]'")
        warnings.simplefilter("ignore")  # of other packages
        console = Console(quiet=self.json)
        if self.train:
            pairs = shrunk_names()[:: self.every]
            found = [
                trained(*pair, self.steps) for pair in track(pairs, "training", console=console, disable=self.json)
            ]
            return _tell_trained([row for row in found if row is not None], len(pairs), self.json, console)
        names = architectures()[:: self.every]
        rows = [
            built(name, model)
            for name in track(names, "building", console=console, disable=self.json)
            if (model := build(name)) is not None
        ]
        return _tell_built(rows, self.json, console)


def _tell_built(rows: list[Built], json: bool, console: Console) -> int:
    refused = [row for row in rows if row.error]
    if json:
        print(jsonlib.dumps([asdict(row) for row in rows]))
        return bool(refused)
    shown = table("architectures of transformers, default size", [""], ["architectures", "parameters"])
    taken = [row for row in rows if not row.error]
    shown.add_row("built", str(len(rows)), str(sum(row.parameters for row in rows)))
    shown.add_row("taken by both optimisers", str(len(taken)), str(sum(row.parameters for row in taken)))
    shown.add_row("known before a forward pass", str(sum(not r.shape for r in taken)), str(sum(r.known for r in taken)))
    shown.add_row(
        "with matrices to be read from the first pass",
        str(sum(r.shape > 0 for r in taken)),
        str(sum(r.shape for r in taken)),
    )
    console.print(shown)
    for row in refused:
        console.print(f"{row.architecture}: {row.error}", markup=False)
    return bool(refused)


def _tell_trained(rows: list[Trained], tried: int, json: bool, console: Console) -> int:
    unread = [row for row in rows if row.unread or row.contradicted]
    if json:
        print(jsonlib.dumps([{**asdict(row), "ratio": row.ratio} for row in rows]))
        return bool(unread)
    title = f"{len(rows)} of {tried} architectures run when shrunk; drop of the loss beside Adam's best of 3"
    heads = ("run", "≥ 1", "≥ 0.8", "≥ 0.5", "smallest", "parameters", "unread", "contradicted")
    shown = table(title, ["task"], heads)
    for family in [*dict.fromkeys(row.family for row in rows), "all"]:
        some = [row for row in rows if family in (row.family, "all")]
        ratios = [row.ratio for row in some]
        shown.add_row(
            family,
            str(len(some)),
            *(str(sum(ratio >= least for ratio in ratios)) for least in (1, 0.8, 0.5)),
            f"{min(ratios):.2f}",
            *(str(sum(getattr(row, name) for row in some)) for name in ("parameters", "unread", "contradicted")),
        )
    console.print(shown)
    for row in sorted(rows, key=lambda row: row.ratio):
        if row.ratio < 0.8 or row.unread or row.contradicted:
            numbers = f"{row.ours:.3f} of {row.adam:.3f}, {row.unread} unread, {row.contradicted} contradicted"
            console.print(f"{row.architecture} ({row.family}): {numbers}", markup=False)
    return bool(unread)


@dataclass(frozen=True)
class Zoo:
    """Measure how far AGD and StochasticAGD lower the loss of other people's models, beside Adam's best of three rates.

    example: autogd bench zoo --steps 300
    """

    steps: int = 30
    """steps of each optimiser"""
    seed: int = 0
    """of the weights and of the batch"""
    json: bool = False
    """print JSON instead of a table"""

    def run(self) -> int:
        """Run the measurement and print its table."""
        if self.steps < 1:
            raise ValueError(f"--steps: expected at least 1, found {self.steps}")
        missing = [name for name in ("transformers", "peft") if find_spec(name) is None]
        if missing:  # before any run
            raise ValueError(f"the zoo needs {' and '.join(missing)}: pip install 'autogd[bench]'")
        console = Console(quiet=self.json)
        rows: list[Drop] = []
        for name in track(ZOO, "the zoo", console=console, disable=self.json):
            rows += drops(name, self.steps, self.seed)
        if self.json:
            print(jsonlib.dumps([asdict(row) for row in rows]))
            return 0
        short = min(30, self.steps)
        shown = f"{short} / {self.steps}" if self.steps > 30 else str(short)
        lowered = f"(and how many of the first {short} lowered it)"
        title = f"drop of the loss on one fixed batch, after {shown} steps {lowered}"
        drop = table(title, ["architecture"], ["loss at\nstart", "AGD", "StochasticAGD", "Adam,\nbest of 3"])
        for name in ZOO:
            found = {row.optimiser: row for row in rows if row.architecture == name}
            for start in ("", ", initialise_"):
                ours = [found[f"{optimiser}{start}"] for optimiser in ("AGD", "StochasticAGD")]
                adam = [found[f"Adam {rate:g}{start}"] for rate in RATES]
                cells = [f"{_cell(each.after_30, each.after_all, self.steps)} ({each.lowered})" for each in ours]
                cells.append(_cell(max(row.after_30 for row in adam), max(row.after_all for row in adam), self.steps))
                drop.add_row(f"{name}{start}", f"{ours[0].start:.2f}", *cells)
        console.print(drop)
        return 0


def _cell(after_30: float, after_all: float, steps: int) -> str:
    return f"{after_30:.3f}" if steps <= 30 else f"{after_30:.3f} / {after_all:.3f}"


MEASUREMENTS = (Coverage, Quality, Scale, Step, Trust, Zoo)
"""Each is a dataclass with a method `run`, like a command."""

Bench: Any = Union[  # noqa: UP007  # `|` does not take a tuple
    tuple(Annotated[each, subcommand(each.__name__.lower(), description=getdoc(each))] for each in MEASUREMENTS)
]
