"""Summarise the records: an optimiser on every cell, compared with the best of Adam's three rates."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from autogd.experiments.trust.cell import Cell, Outcome, Run
from autogd.experiments.trust.runs import OURS, REFERENCE

__all__ = ["MARGIN", "RECOVERY", "Count", "Side", "Standing", "Verdict", "count", "side", "standings", "verdict"]

MARGIN = 1.2  # a cell is lost above this multiple of Adam's loss, and won below its inverse
RECOVERY = 1.1  # a disturbed start recovers if it ends below this multiple of the undisturbed loss
Verdict = Literal["won", "even", "lost"]


@dataclass(frozen=True)
class Side:
    """One optimiser on one cell, at its best rate if it has several.

    Args:
        lr: the rate; None if there is none to set.
        seeds: number of recorded seeds.
        failed: number of seeds whose final loss is not finite.
        loss: mean over the seeds; infinite if one failed.
        spread: standard deviation over the seeds; None if there are fewer than two, or one failed.
        logit: the largest over the seeds; None if outputs are not logits, or a run failed.
        seconds: processor time, mean over the seeds.
    """

    lr: float | None
    seeds: int
    failed: int
    loss: float
    spread: float | None
    logit: float | None
    seconds: float


@dataclass(frozen=True)
class Standing:
    """One optimiser on a cell, compared with Adam.

    Args:
        ours: the optimiser; None if it is not recorded.
        adam: at the best of its rates; None if it is not recorded.
        ratio: of the losses; None if one is missing or Adam's is not finite.
        verdict: None if one is missing.
        recovery: the loss relative to the undisturbed twin's; None if there is no twin, or no record of it.
        adam_recovery: the same for Adam.
    """

    cell: str
    family: str
    optimiser: str
    ours: Side | None
    adam: Side | None
    ratio: float | None
    verdict: Verdict | None
    recovery: float | None
    adam_recovery: float | None


@dataclass(frozen=True)
class Count:
    """How many cells of a family are won, even and lost."""

    family: str
    won: int
    even: int
    lost: int


def side(outcomes: Iterable[Outcome]) -> Side | None:
    """The outcomes at the rate with the lowest mean loss over the seeds.

    >>> runs = [Outcome(Run("gan", "adam", lr, seed), 1, lr + seed, None, 1.0) for lr in (0.5, 0.25) for seed in (0, 1)]
    >>> side(runs).lr, side(runs).loss
    (0.25, 0.75)
    """
    by_rate: dict[float | None, list[Outcome]] = {}
    for outcome in outcomes:
        by_rate.setdefault(outcome.run.lr, []).append(outcome)
    sides = [_alone(lr, runs) for lr, runs in by_rate.items()]
    # a rate with fewer seeds must not win by luck
    most = max((each.seeds for each in sides), default=0)
    return min((each for each in sides if each.seeds == most), key=lambda each: each.loss, default=None)


def verdict(ours: float, adam: float) -> Verdict:
    """Won or lost by more than a fifth; a loss that is not finite is lost.

    >>> verdict(1.21, 1.0), verdict(1.19, 1.0), verdict(0.8, 1.0), verdict(math.inf, math.inf)
    ('lost', 'even', 'won', 'lost')
    """
    if not math.isfinite(ours) or ours > MARGIN * adam:
        return "lost"
    return "won" if MARGIN * ours < adam else "even"


def standings(records: Mapping[Run, Outcome], cells: Sequence[Cell], optimiser: str = OURS) -> list[Standing]:
    """The standings of one optimiser, on each cell that has a record of it or of Adam.

    >>> from autogd.experiments.trust.cells import CELLS
    >>> made = [Outcome(Run("gan", name, lr), 600, loss, None, 1.0)
    ...         for name, lr, loss in (("adam", 1e-3, 0.5), ("agd-stochastic", None, 0.25))]
    >>> [each.verdict for each in standings({outcome.run: outcome for outcome in made}, [CELLS["gan"]])]
    ['won']
    """
    grouped: dict[tuple[str, str], list[Outcome]] = {}
    for run, outcome in records.items():
        grouped.setdefault((run.cell, run.optimiser), []).append(outcome)
    sides = {key: side(outcomes) for key, outcomes in grouped.items()}

    def recovery(cell: Cell, name: str) -> float | None:
        twin = sides.get((cell.twin or "", name))
        here = sides.get((cell.name, name))
        return here.loss / twin.loss if here and twin and math.isfinite(twin.loss) else None

    rows = []
    for cell in cells:
        ours, adam = sides.get((cell.name, optimiser)), sides.get((cell.name, REFERENCE))
        if ours or adam:
            rows.append(
                Standing(
                    cell=cell.name,
                    family=cell.family,
                    optimiser=optimiser,
                    ours=ours,
                    adam=adam,
                    ratio=ours.loss / adam.loss if ours and adam and math.isfinite(adam.loss) else None,
                    verdict=verdict(ours.loss, adam.loss) if ours and adam else None,
                    recovery=recovery(cell, optimiser),
                    adam_recovery=recovery(cell, REFERENCE),
                )
            )
    return rows


def count(every: Iterable[Standing]) -> list[Count]:
    """Count the verdicts per family, and over all families.

    >>> one = Standing("gan", "gan", "agd-stochastic", None, None, 2.0, "lost", None, None)
    >>> count([one])
    [Count(family='gan', won=0, even=0, lost=1), Count(family='all', won=0, even=0, lost=1)]
    """
    judged = [each for each in every if each.verdict]
    families = dict.fromkeys(each.family for each in judged)
    kinds = [(name, [each.verdict for each in judged if each.family == name]) for name in families]
    kinds.append(("all", [each.verdict for each in judged]))
    return [Count(name, *(found.count(word) for word in ("won", "even", "lost"))) for name, found in kinds if found]


def _alone(lr: float | None, runs: list[Outcome]) -> Side:
    losses = [outcome.loss for outcome in runs]
    failed = sum(not math.isfinite(loss) for loss in losses)
    logits = [outcome.logit for outcome in runs if outcome.logit is not None]
    return Side(
        lr=lr,
        seeds=len(runs),
        failed=failed,
        loss=statistics.fmean(losses),
        spread=statistics.stdev(losses) if len(losses) > 1 and not failed else None,
        logit=max(logits) if len(logits) == len(runs) else None,
        seconds=statistics.fmean(outcome.seconds for outcome in runs),
    )
