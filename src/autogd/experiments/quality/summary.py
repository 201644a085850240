"""Summarise the records: every optimiser on every workload, compared with tuned Adam (AdamW on long workloads)."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args

from autogd.experiments.quality.grid import OURS, SEEDS, TUNED, UNTUNED, best, is_tuned
from autogd.experiments.quality.race import Cell, Outcome, Schedule
from autogd.experiments.quality.recipe import RIVALS
from autogd.experiments.quality.workloads import LONG

__all__ = [
    "EVERYONE",
    "LONG_OPTIMISERS",
    "OPTIMISERS",
    "Standing",
    "Tally",
    "Verdict",
    "compare",
    "fewest",
    "share_to_reach",
    "standings",
    "tally",
]

OPTIMISERS = (*OURS, *TUNED, *UNTUNED)
"""Of the suite, in the order of the table."""
LONG_OPTIMISERS = (*OURS, *RIVALS, *UNTUNED)
"""Of the long workloads, in the order of the table."""
REFERENCES = ("adam", "adamw")
EVERYONE = tuple(dict.fromkeys((*OURS, *REFERENCES, *TUNED, *RIVALS, *UNTUNED)))
"""Of both, in the order of the table."""
Verdict = Literal["below", "within spread", "above"]


@dataclass(frozen=True)
class Standing:
    """One optimiser on one workload.

    Args:
        lr: the best of the grid; None if none was searched.
        schedule: of the best run.
        rates: number of learning rates tried, for the schedule with the fewest.
        at_edge: whether a neighbour of the best rate was not tried.
        seeds: number of recorded seeds.
        lost: number of seeds whose final loss is not finite.
        loss: the final validation loss, mean over the seeds; infinite if one was lost.
        spread: its standard deviation over the seeds; None if there are fewer than two, or one was lost.
        accuracy: mean over the seeds; None if there are no classes.
        seconds: processor time of all training steps, mean over the first three seeds.
        ratio: of the loss to tuned Adam's; None if that is not recorded.
        steps_share: steps to tuned Adam's final mean loss, as a fraction of the budget; None if it was not reached.
        time_share: processor time to the same loss, as a fraction of tuned Adam's total time.
        verdict: against tuned Adam; None for Adam itself, or if Adam is not recorded.
    """

    workload: str
    optimiser: str
    lr: float | None
    schedule: Schedule | None
    rates: int
    at_edge: bool
    seeds: int
    lost: int
    loss: float
    spread: float | None
    accuracy: float | None
    seconds: float
    ratio: float | None = None
    steps_share: float | None = None
    time_share: float | None = None
    verdict: Verdict | None = None

    @property
    def settled(self) -> bool:
        """Whether every seed is there and, for a tuned optimiser, the grid is finished."""
        grid = self.lr is None or (self.rates >= fewest(self.workload) and not self.at_edge)
        return grid and self.seeds >= len(SEEDS)


@dataclass(frozen=True)
class Tally:
    """How often one optimiser is below another, over the workloads that both have run."""

    optimiser: str
    rival: str
    below: int
    within: int
    above: int


def fewest(workload: str) -> int:
    """The number of rates of a finished grid, for each schedule.

    >>> fewest("gpt"), fewest("char-gpt")
    (5, 3)
    """
    return 3 if workload in LONG else 5


def standings(outcomes: Iterable[Outcome]) -> list[Standing]:
    """The standings of all optimisers on one workload, from its outcomes.

    >>> def run(optimiser, lr, losses):
    ...     return Outcome(Cell("gpt", optimiser, lr), 100, losses, [math.nan] * 2, losses, [0.1] * 2, 5.0)
    >>> runs = [run("adam", 0.1, [2.0, 1.0]), run("adam", 0.01, [3.0, 2.0]), run("dog", None, [1.5, 0.5])]
    >>> [(each.optimiser, each.ratio, each.steps_share) for each in standings(runs)]
    [('adam', 1.0, 1.0), ('dog', 0.5, 0.75)]
    """
    every = list(outcomes)
    kept: dict[str, list[Outcome]] = {}
    found: dict[str, Standing] = {}
    for optimiser in EVERYONE:
        mine = [outcome for outcome in every if outcome.cell.optimiser == optimiser]
        grid = [outcome for outcome in mine if outcome.cell.seed == SEEDS[0]]
        tuned = bool(mine) and is_tuned(mine[0].cell.workload, optimiser)
        if tuned and not grid:
            continue
        cell = best(grid).cell if tuned else None
        runs = [outcome for outcome in mine if cell is None or replace(cell, seed=outcome.cell.seed) == outcome.cell]
        if runs:
            kept[optimiser] = runs
            found[optimiser] = _alone(runs, [outcome.cell for outcome in grid], cell)
    adam = next((found[name] for name in REFERENCES if name in found), None)
    if adam is None:
        return list(found.values())
    return [_beside(standing, adam, kept[standing.optimiser]) for standing in found.values()]


def share_to_reach(curve: Sequence[float], target: float) -> float | None:
    """The fraction of a run after which its curve first reaches a value; None if it never does.

    The curve has equally spaced points, with linear interpolation between them. If the first point is already
    below the value, it is the answer.

    >>> share_to_reach([4.0, 2.0, 1.0, 0.5], 1.5)
    0.625
    >>> share_to_reach([4.0, 2.0], 1.0) is None
    True
    """
    if curve[0] <= target:
        return 1 / len(curve)
    for i, (high, low) in enumerate(pairwise(curve), 1):
        if low <= target:
            return (i + ((high - target) / (high - low) if math.isfinite(high) else 1.0)) / len(curve)
    return None


def compare(one: Standing, other: Standing) -> Verdict:
    """Whether one loss is below or above another by more than the larger of their spreads.

    >>> def made(loss, spread):
    ...     return Standing("gpt", "dog", None, None, 0, False, 3, 0, loss, spread, None, 1.0)
    >>> compare(made(1.0, 0.1), made(1.05, 0.01)), compare(made(1.0, 0.1), made(1.2, 0.1))
    ('within spread', 'below')
    """
    if math.isinf(one.loss) and math.isinf(other.loss):
        return "within spread"
    gap = one.loss - other.loss
    if abs(gap) <= max(one.spread or 0.0, other.spread or 0.0):
        return "within spread"
    return "below" if gap < 0 else "above"


def tally(every: Iterable[Standing], optimiser: str = OURS[0]) -> list[Tally]:
    """Compare one optimiser with each of the others, over the workloads.

    >>> one, two = (Standing("gpt", name, None, None, 0, False, 3, 0, loss, 0.1, None, 1.0)
    ...             for name, loss in (("agd-stochastic", 1.0), ("dog", 2.0)))
    >>> tally([one, two])
    [Tally(optimiser='agd-stochastic', rival='dog', below=1, within=0, above=0)]
    """
    table = {(standing.workload, standing.optimiser): standing for standing in every}
    rows = []
    for rival in EVERYONE:
        pairs = [
            (table[workload, optimiser], standing)
            for (workload, name), standing in table.items()
            if name == rival != optimiser and (workload, optimiser) in table
        ]
        verdicts = [compare(*pair) for pair in pairs]
        if pairs:
            counts = (verdicts.count(word) for word in get_args(Verdict))
            rows.append(Tally(optimiser, rival, *counts))
    return rows


def _alone(runs: list[Outcome], grid: list[Cell], winner: Cell | None) -> Standing:
    last = [outcome.loss[-1] for outcome in runs]
    hits = [outcome.accuracy[-1] for outcome in runs]
    lost = sum(map(math.isinf, last))
    schedules = ("cosine",) if runs[0].cell.workload in LONG else get_args(Schedule)
    rates: dict[str, set[float]] = {schedule: set() for schedule in schedules}
    for cell in grid if winner else ():
        rates[cell.schedule].add(cell.lr or 0.0)
    tried = rates[winner.schedule] if winner else set()
    return Standing(
        workload=runs[0].cell.workload,
        optimiser=runs[0].cell.optimiser,
        lr=winner.lr if winner else None,
        schedule=winner.schedule if winner else None,
        rates=min(map(len, rates.values())) if winner else 0,
        at_edge=winner is not None and winner.lr in (min(tried), max(tried)),
        seeds=len(runs),
        lost=lost,
        loss=statistics.fmean(last),
        spread=statistics.stdev(last) if len(last) > 1 and not lost else None,
        accuracy=None if any(map(math.isnan, hits)) else statistics.fmean(hits),
        # seeds that were added later may have run on another machine
        seconds=statistics.fmean(outcome.seconds for outcome in _first(runs)),
    )


def _first(runs: list[Outcome]) -> list[Outcome]:
    return [outcome for outcome in runs if outcome.cell.seed in SEEDS] or runs


def _beside(standing: Standing, adam: Standing, runs: list[Outcome]) -> Standing:
    # use the mean of the curves, so that Adam reaches its own mean loss exactly at its end
    curve = [statistics.fmean(losses) for losses in zip(*(outcome.loss for outcome in runs), strict=True)]
    steps = share_to_reach(curve, adam.loss) if math.isfinite(adam.loss) else None
    return replace(
        standing,
        ratio=standing.loss / adam.loss if math.isfinite(adam.loss) else None,
        steps_share=steps,
        time_share=None if steps is None else steps * standing.seconds / adam.seconds,
        verdict=None if standing is adam else compare(standing, adam),
    )
