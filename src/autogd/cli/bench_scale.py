"""Plan a step on many ranks and print what it costs each of them: bytes over the network, FLOPs, memory.

Nothing is run: the plan is worked out on meta tensors, as the ranks themselves do it. Shown is the rank that has the
most, with the mean over all ranks beside it. The methods are our own step (one owner a matrix), every rank gathering
every matrix, AdamW, and a low-rank step like Dion's (its rank is a quarter of the smaller side).

example: autogd bench scale --ranks 256 --shapes llama-3-8b
"""

import json as jsonlib
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from autogd.cli.output import check_output
from autogd.cli.tables import add_heading, table
from autogd.experiments.scale import Cost, costs, tensors_of
from autogd.experiments.speed.tensors import SHAPES
from autogd.report.scale import COLUMNS, cell, draw_scale

__all__ = ["Options", "run"]

MOST = 1 << 14  # ranks; the plan takes a few minutes for so many


@dataclass(frozen=True)
class Options:
    """What `autogd bench scale` takes."""

    ranks: tuple[int, ...] = (8, 64, 256, 1024, 4096)
    """how many ranks; several make several tables"""
    shapes: str = "llama-3-8b"
    """whose parameters: gpt2-small, llama-3-8b or llama-3-70b"""
    mesh: str = "fsdp"
    """fsdp (weights cut over all ranks), hsdp (over 8, copies of that), or ddp (copies)"""
    figure: Path | None = None
    """where a figure over the number of ranks goes"""
    json: bool = False
    """print JSON instead of tables: every rank of every method"""


def run(options: Options) -> int:
    """Plan the step and print its tables."""
    if options.shapes not in SHAPES:
        raise ValueError(f"--shapes: {options.shapes!r} is not known; choose from {', '.join(SHAPES)}")
    if not options.ranks:
        raise ValueError("--ranks: expected one number or more, found none; for instance --ranks 8 64")
    wrong = [ranks for ranks in options.ranks if not 1 <= ranks <= MOST]
    if wrong:
        raise ValueError(f"--ranks: expected numbers from 1 to {MOST:,}, found {wrong[0]:,}")
    if options.figure is not None:
        check_output("--figure", options.figure, (".png",))
    tensors = tensors_of(SHAPES[options.shapes]())
    found = [cost for ranks in dict.fromkeys(options.ranks) for cost in costs(tensors, ranks, options.mesh)]
    if options.figure is not None:
        options.figure.write_bytes(draw_scale(found))
    if options.json:
        print(jsonlib.dumps([asdict(cost) for cost in found]))
        return 0
    Console().print(_table(options, found))
    return 0


def _table(options: Options, found: list[Cost]) -> Table:
    title = f"a step of {options.shapes}, {options.mesh}: the rank that has the most (mean)"
    shown = table(title, ["method"], ["sent", "received", "FLOPs", "state and\nbuffers"])
    before = 0
    for cost in found:
        if cost.ranks != before:
            add_heading(shown, f"{cost.ranks:,} rank{'s' * (cost.ranks != 1)}")
        before = cost.ranks
        shown.add_row(cost.method, *("\n".join(cell(cost, quantity)) for quantity in COLUMNS))
    return shown
