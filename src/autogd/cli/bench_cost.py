"""The commands `autogd bench step` and `autogd bench scale`: the cost of a step, measured here or planned on ranks."""

import json as jsonlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from autogd.cli.output import add_heading, check_output, table
from autogd.experiments.scale import Cost, tensors_of
from autogd.experiments.scale import costs as planned_costs
from autogd.experiments.speed.growth import TENSORS, WEIGHTS, fit, growth
from autogd.experiments.speed.step_cost import CONTENDERS, NETWORKS, REFERENCE, costs, shares
from autogd.experiments.speed.tensors import SETS, SHAPES
from autogd.report.command_figures import draw_growth
from autogd.report.scale import COLUMNS, cell, draw_scale
from autogd.rivals import require
from autogd.training.process import find_device

__all__ = ["Scale", "Step"]

MOST = 1 << 14  # ranks; a plan for so many takes a few minutes


@dataclass(frozen=True)
class Step:
    """Measure the cost of a step: time relative to fused Adam and to the memory's speed, and bytes per weight.

    All optimisers take turns in one process, and the best of several times counts. The traffic limit is the time of
    plain AGD's four passes over the weights at full memory speed. That speed is measured by adding one set of tensors
    to another (three passes). --share measures the step relative to forward and backward on three networks. --growth
    measures how time and memory grow with weights and with tensors.

    example: autogd bench step --sets mlp tiny --optimisers agd adam prodigy
    """

    sets: tuple[str, ...] = tuple(SETS)
    """which sets of parameters"""
    optimisers: tuple[str, ...] = ("agd", "agd-readable", "agd-averaged", "agd-stochastic", "adam", "sgd-fused")
    """which optimisers, or `all`; fused Adam is always included"""
    rounds: int = 7
    """number of timings; the best counts"""
    device: str = ""
    """cpu or cuda; default: cuda if there is one"""
    threads: int = 0
    """CPU threads; 0: all"""
    share: bool = False
    """measure a step relative to forward and backward instead"""
    batch: int = 0
    """with --share, samples per batch; 0: 32 sequences of 64 for the GPT, 128 for the others"""
    growth: bool = False
    """measure how a step grows with weights and tensors instead"""
    largest: int = max(WEIGHTS)
    """with --growth, the largest number of weights"""
    out: Path = Path("growth.png")
    """with --growth, the file of the figure"""
    json: bool = False
    """print JSON instead of a table"""

    def run(self) -> int:
        """Run the measurement and print its table."""
        names = tuple(CONTENDERS) if self.optimisers == ("all",) else self.optimisers
        _check("sets", self.sets, SETS)
        _check("optimisers", names, CONTENDERS)
        for option, value, least in (("rounds", self.rounds, 1), ("threads", self.threads, 0)):
            if value < least:
                raise ValueError(f"--{option}: expected at least {least}, found {value}")
        cores = os.cpu_count() or 1
        if self.threads > cores:
            raise ValueError(f"--threads: this machine has {cores} cores; expected 0 to {cores}, found {self.threads}")
        if self.batch < 0:
            raise ValueError(f"--batch: expected at least 0, found {self.batch}")
        if not self.sets or not names:
            raise ValueError("--sets and --optimisers: name at least one of each, or leave the option out")
        if self.growth:
            check_output("--out", self.out, (".png",))
            if self.largest < min(WEIGHTS):
                raise ValueError(f"--largest: expected at least {min(WEIGHTS):,}, found {self.largest:,}")
        require(*names)
        device = find_device(self.device or "auto")
        threads = torch.get_num_threads()
        if self.threads:
            torch.set_num_threads(self.threads)
        try:
            measure = _growth if self.growth else _share if self.share else _cost
            return measure(self, names, device)
        finally:
            torch.set_num_threads(threads)


def _check(option: str, names: Sequence[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{option}: {name!r} is not known; choose from {', '.join(known)}")


def _cost(options: Step, names: Sequence[str], device: torch.device) -> int:
    with _progress(options) as progress:
        task = progress.add_task("steps", total=len(options.sets) * options.rounds)
        rows = list(costs(options.sets, names, options.rounds, device, lambda: progress.advance(task)))
    heads = ("ms", "of fused\nAdam", "of the\ntraffic limit", "state, bytes\nper weight", "peak, bytes\nper weight")
    shown = table(_title(options, device, "a step"), ["optimiser"], heads)
    before = ""
    for row in rows:
        if row.set != before:
            add_heading(shown, f"{row.set}: {row.weights:,} weights in {row.tensors:,} tensors")
        before = row.set
        cells = [f"{1e3 * row.seconds:.2f}", f"{row.of_adam:.2f}", f"{row.of_limit:.2f}"]
        shown.add_row(row.optimiser, *cells, f"{row.steady:.2f}", f"{row.peak:.3f}")
    return _print(options, shown, [asdict(row) for row in rows])


def _share(options: Step, names: Sequence[str], device: torch.device) -> int:
    with _progress(options) as progress:
        task = progress.add_task("steps", total=len(NETWORKS) * options.rounds)
        chosen = list(dict.fromkeys([*names, REFERENCE]))
        rows = list(
            shares(
                list(NETWORKS),
                chosen,
                options.rounds,
                device,
                options.batch or None,
                tick=lambda: progress.advance(task),
            )
        )
    title = _title(options, device, "a step beside forward and backward")
    heads = ("batch", "forward and\nbackward, ms", "step, ms", "share")
    shown = table(title, ["network", "optimiser"], heads)
    for row in rows:
        times = f"{1e3 * row.training:.1f}", f"{1e3 * row.step:.2f}"
        shown.add_row(row.network, row.optimiser, str(row.batch), *times, f"{row.share:.1%}")
    return _print(options, shown, [asdict(row) for row in rows])


def _growth(options: Step, names: Sequence[str], device: torch.device) -> int:
    chosen = list(dict.fromkeys([*names, REFERENCE]))
    sizes = [count for count in WEIGHTS if count <= options.largest]
    with _progress(options) as progress:
        task = progress.add_task("steps", total=(len(sizes) + len(TENSORS)) * options.rounds)
        points = growth(chosen, options.rounds, device, sizes, TENSORS, lambda: progress.advance(task))
    options.out.write_bytes(draw_growth(points))
    lines = [fit(points, along, name) for along in ("weights", "tensors") for name in chosen]
    heads = ("ms at\nthe start", "ns for\neach", "ms at\nthe end", "peak bytes\nat the end")
    shown = table(_title(options, device, "how a step grows"), ["along", "optimiser"], heads)
    for line in lines:
        last = [p for p in points if p.along == line.along and p.optimiser == line.optimiser][-1]
        cells = f"{1e3 * line.start:.3f}", f"{1e9 * line.each:.3g}", f"{1e3 * last.seconds:.2f}", f"{last.peak:,}"
        shown.add_row(line.along, line.optimiser, *cells)
    found = {"points": [asdict(p) for p in points], "lines": [asdict(line) for line in lines]}
    return _print(options, shown, {**found, "figure": str(options.out)})


def _progress(options: Step) -> Progress:
    return Progress(console=Console(stderr=True), transient=True, disable=options.json)


def _title(options: Step, device: torch.device, content: str) -> str:
    threads = torch.get_num_threads()
    cpu = "cpu, one thread, processor time" if threads == 1 else f"cpu, {threads} threads"
    where = cpu if device.type == "cpu" else device.type
    return f"{content}, best of {options.rounds}: {where}"


def _print(options: Step, shown: Table, found: Any) -> int:
    if options.json:
        print(jsonlib.dumps(found))
    else:
        Console().print(shown)
    return 0


@dataclass(frozen=True)
class Scale:
    """Plan a step on many ranks and print its cost for each rank: bytes over the network, FLOPs, memory.

    Nothing is run: the plan is made on meta tensors, as the ranks make it. The table shows the rank with the largest
    cost, and the mean over all ranks beside it. The methods are our own step (one owner per matrix), a step for which
    every rank gathers every matrix, AdamW, and a low-rank step like Dion's (its rank is a quarter of the smaller side).

    example: autogd bench scale --ranks 256 --shapes llama-3-8b
    """

    ranks: tuple[int, ...] = (8, 64, 256, 1024, 4096)
    """number of ranks; one table for each"""
    shapes: str = "llama-3-8b"
    """the model: gpt2-small, llama-3-8b or llama-3-70b"""
    mesh: str = "fsdp"
    """fsdp (weights sharded over all ranks), hsdp (sharded over 8, then replicated), or ddp (replicated)"""
    figure: Path | None = None
    """also draw the cost over the number of ranks, to this PNG file"""
    json: bool = False
    """print JSON instead of tables: every rank of every method"""

    def run(self) -> int:
        """Plan the step and print its tables."""
        if self.shapes not in SHAPES:
            raise ValueError(f"--shapes: {self.shapes!r} is not known; choose from {', '.join(SHAPES)}")
        if not self.ranks:
            raise ValueError("--ranks: expected one number or more, found none; for instance --ranks 8 64")
        wrong = [ranks for ranks in self.ranks if not 1 <= ranks <= MOST]
        if wrong:
            raise ValueError(f"--ranks: expected numbers from 1 to {MOST:,}, found {wrong[0]:,}")
        if self.figure is not None:
            check_output("--figure", self.figure, (".png",))
        tensors = tensors_of(SHAPES[self.shapes]())
        found = [cost for ranks in dict.fromkeys(self.ranks) for cost in planned_costs(tensors, ranks, self.mesh)]
        if self.figure is not None:
            self.figure.write_bytes(draw_scale(found))
        if self.json:
            print(jsonlib.dumps([asdict(cost) for cost in found]))
            return 0
        Console().print(_table(self, found))
        return 0


def _table(options: Scale, found: list[Cost]) -> Table:
    title = f"a step of {options.shapes}, {options.mesh}: the rank with the largest cost (mean)"
    shown = table(title, ["method"], ["sent", "received", "FLOPs", "state and\nbuffers"])
    before = 0
    for cost in found:
        if cost.ranks != before:
            add_heading(shown, f"{cost.ranks:,} rank{'s' * (cost.ranks != 1)}")
        before = cost.ranks
        shown.add_row(cost.method, *("\n".join(cell(cost, quantity)) for quantity in COLUMNS))
    return shown
