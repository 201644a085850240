"""Construct both optimisers on every architecture that transformers builds; with --train, train those that shrink.

example: autogd bench coverage --train
"""

import json as jsonlib
import warnings
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from rich.console import Console
from rich.progress import track

from autogd.cli.tables import table
from autogd.experiments.coverage import Built, Trained, architectures, build, built, shrunk_names, trained

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options:
    """What `autogd bench coverage` takes."""

    train: bool = False
    """shrink the architectures of four tasks until they run, read a forward pass, and train them beside Adam"""
    every: int = 1
    """take only every n-th architecture"""
    steps: int = 30
    """of training"""
    json: bool = False
    """print JSON instead of a table"""


def run(options: Options) -> int:
    """Run the measurement and print its table; the status is 0 if nothing was refused, unread or contradicted."""
    if options.every < 1 or options.steps < 1:
        raise ValueError("--every and --steps: expected at least 1")
    if find_spec("transformers") is None:
        raise ValueError("bench coverage needs transformers: pip install 'autogd[bench]'")
    warnings.simplefilter("ignore")  # other packages' own
    console = Console(quiet=options.json)
    if options.train:
        pairs = shrunk_names()[:: options.every]
        found = [
            trained(*pair, options.steps) for pair in track(pairs, "training", console=console, disable=options.json)
        ]
        return _tell_trained([row for row in found if row is not None], len(pairs), options.json, console)
    names = architectures()[:: options.every]
    rows = [
        built(name, model)
        for name in track(names, "building", console=console, disable=options.json)
        if (model := build(name)) is not None
    ]
    return _tell_built(rows, options.json, console)


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
