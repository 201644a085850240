"""The runs of one optimiser on one workload, and the search for the best learning rate.

The grids of the suite are half decades, with a constant and with a cosine schedule. A long workload has its own rates.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import get_args

from autogd.experiments.quality.race import Cell, Outcome, Schedule
from autogd.experiments.quality.recipe import RIVALS
from autogd.experiments.quality.workloads import EVERY

__all__ = [
    "LONG_SEEDS",
    "OURS",
    "SEEDS",
    "TUNED",
    "UNTUNED",
    "Run",
    "best",
    "is_tuned",
    "rate",
    "search",
    "searched",
    "seeded",
    "trial",
]

SEEDS = (0, 1, 2)
LONG_SEEDS = (0,)  # the default for long workloads
OURS = ("agd-stochastic", "agd-averaged", "agd")
"""Our optimisers, with nothing to set."""
# a search starts with these rates, 10^(k/2), and widens until the best is not at an edge
TUNED = {"adam": range(-8, -3), "sgd": range(-5, 0), "muon": range(-7, -2)}
"""Rivals that are tuned over a grid, for each schedule."""
UNTUNED = (
    "schedulefree-adamw",
    "schedulefree-radam",
    "prodigy",
    "prodigy-plus",
    "dadaptation",
    "dog",
    "soap",
    "psgd",
    "scion",
)
"""Rivals that run at their defaults."""
WIDEST = range(-12, 4)  # the limits of a search

Run = Callable[[Cell], Outcome]


def rate(k: int) -> float:
    """The rate 10^(k/2), rounded to three digits.

    >>> [rate(k) for k in (-6, -5)]
    [0.001, 0.00316]
    """
    return float(f"{10 ** (k / 2):.3g}")


def search(workload: str, optimiser: str, schedule: Schedule, run: Run) -> Iterator[Outcome]:
    """Search the grid with one seed; widen it while the best rate is at an edge.

    >>> def fake(cell):
    ...     return Outcome(cell, 1, [abs(cell.lr - 1e-2)], [0.0], [0.0], [0.0], 0.0)
    >>> [outcome.cell.lr for outcome in search("gpt", "adam", "constant", fake)][-2:]
    [0.01, 0.0316]
    """
    tried: dict[int, Outcome] = {}
    wanted = list(TUNED[optimiser])
    while wanted:
        for k in wanted:
            tried[k] = run(Cell(workload, optimiser, rate(k), schedule, SEEDS[0]))
            yield tried[k]
        best = min(tried, key=lambda k: tried[k].loss[-1])
        wanted = [k for k in (best - 1, best + 1) if k not in tried and k in WIDEST]


def best(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome with the lowest final loss.

    >>> slow, fast = (Outcome(Cell("gpt", "adam", lr), 1, [lr], [0.0], [0.0], [0.0], 0.0) for lr in (0.2, 0.1))
    >>> best([slow, fast]).cell.lr
    0.1
    """
    return min(outcomes, key=lambda outcome: outcome.loss[-1])


def seeded(cell: Cell, run: Run, seeds: Iterable[int] = SEEDS) -> Iterator[Outcome]:
    """The same cell with every seed.

    >>> [seed for seed in seeded(Cell("gpt", "dog"), lambda cell: cell.seed)]
    [0, 1, 2]
    """
    for seed in seeds:
        yield run(replace(cell, seed=seed))


def is_tuned(workload: str, optimiser: str) -> bool:
    """Whether a workload searches an optimiser's learning rate.

    >>> is_tuned("gpt", "adam"), is_tuned("gpt", "dog"), is_tuned("char-gpt", "sgd")
    (True, False, False)
    """
    rates = EVERY[workload].rates
    return optimiser in TUNED if rates is None else optimiser in rates


def searched(workload: str, optimiser: str, run: Run) -> Iterator[Outcome]:
    """Run all grids of a tuned optimiser on a workload.

    >>> def fake(cell):
    ...     return Outcome(cell, 1, [cell.lr], [0.0], [0.0], [0.0], 0.0)
    >>> [outcome.cell.lr for outcome in searched("char-gpt", "muon-original", fake)]
    [0.02]
    """
    rates = EVERY[workload].rates
    if rates is None:
        for schedule in get_args(Schedule):
            yield from search(workload, optimiser, schedule, run)
        return
    for lr in rates[optimiser]:
        yield run(Cell(workload, optimiser, lr, "cosine", SEEDS[0]))


def trial(workload: str, optimiser: str, run: Run, seeds: Iterable[int] = SEEDS) -> Iterator[Outcome]:
    """All runs of one optimiser on one workload: its grid, if it is tuned, then every seed.

    A tuned rival is skipped on a long workload that has no rates for it.

    >>> def fake(cell):
    ...     return Outcome(cell, 1, [abs(cell.lr - 1e-3)], [0.0], [0.0], [0.0], 0.0)
    >>> last = [*trial("gpt", "adam", fake)][-1].cell
    >>> last.lr, last.schedule, last.seed
    (0.001, 'constant', 2)
    """
    cell = Cell(workload, optimiser)
    if is_tuned(workload, optimiser):
        grid: list[Outcome] = []
        for outcome in searched(workload, optimiser, run):
            grid.append(outcome)
            yield outcome
        cell = best(grid).cell
    elif optimiser in (*TUNED, *RIVALS):
        return
    yield from seeded(cell, run, seeds)
