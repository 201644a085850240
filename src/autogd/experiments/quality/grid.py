"""Tuned rivals and untuned ones: which cells there are, and the search for the best learning rate."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from autogd.experiments.quality.race import Cell, Outcome, Schedule

__all__ = ["SEEDS", "TUNED", "UNTUNED", "best", "search", "seeded"]

SEEDS = (0, 1, 2)
# learning rates 10^(k/2): where a search starts; it goes on until the best is not at an edge
TUNED = {"adam": range(-8, -3), "sgd": range(-5, 0), "muon": range(-7, -2)}
"""Rivals that get the best of a grid, for each schedule."""
UNTUNED = ("schedulefree-adamw", "prodigy", "dadaptation", "dog")
"""Rivals that come with a learning rate of their own: they run at their defaults."""
WIDEST = range(-12, 4)  # no learning rate beyond is tried

Run = Callable[[Cell], Outcome]


def rate(k: int) -> float:
    """Half decades.

    >>> [rate(k) for k in (-6, -5)]
    [0.001, 0.00316]
    """
    return float(f"{10 ** (k / 2):.3g}")


def search(workload: str, optimiser: str, schedule: Schedule, run: Run, stretch: int = 1) -> Iterator[Outcome]:
    """The grid with one seed, widened while its best is at an edge.

    >>> def fake(cell):
    ...     return Outcome(cell, 1, [abs(cell.lr - 1e-2)], [0.0], [0.0], [0.0], 0.0)
    >>> [outcome.cell.lr for outcome in search("gpt", "adam", "constant", fake)][-2:]
    [0.01, 0.0316]
    """
    tried: dict[int, Outcome] = {}
    wanted = list(TUNED[optimiser])
    while wanted:
        for k in wanted:
            tried[k] = run(Cell(workload, optimiser, rate(k), schedule, SEEDS[0], stretch))
            yield tried[k]
        best = min(tried, key=lambda k: tried[k].loss[-1])
        wanted = [k for k in (best - 1, best + 1) if k not in tried and k in WIDEST]


def best(outcomes: Iterator[Outcome]) -> Outcome:
    """The lowest last loss."""
    return min(outcomes, key=lambda outcome: outcome.loss[-1])


def seeded(cell: Cell, run: Run) -> Iterator[Outcome]:
    """The same cell with every seed."""
    for seed in SEEDS:
        yield run(replace(cell, seed=seed))
