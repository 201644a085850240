"""The benchmark of trust as a table of text, and as Markdown."""

from collections.abc import Sequence

from autogd.experiments.trust.cells import CELLS
from autogd.experiments.trust.runs import SEEDS
from autogd.experiments.trust.summary import RECOVERY, Side, Standing, count
from autogd.report.markdown import grid

__all__ = ["HEADS", "cells", "lines", "markdown", "row"]

HEADS = ("cell", "optimiser", "loss", "Adam's best (rate)", "ratio", "verdict", "÷ undisturbed", "largest logit")
LOGITS = "fitted-tables"  # the family whose logits are shown


def row(standing: Standing) -> tuple[str, ...]:
    """A standing as text.

    >>> ours, adam = (Side(lr, 5, 0, loss, 0.01, None, 1.0) for lr, loss in ((None, 0.5), (0.001, 0.25)))
    >>> row(Standing("gan", "gan", "agd-stochastic", ours, adam, 2.0, "lost", None, None))
    ('gan', 'agd-stochastic', '0.500 ± 0.010', '0.250 ± 0.010 (0.001)', '2.00', 'lost', '', '')
    """
    ours, adam = standing.ours, standing.adam
    return (
        standing.cell,
        standing.optimiser,
        _loss(ours),
        _loss(adam) + (f" ({adam.lr:g})" if adam else ""),
        "–" if standing.ratio is None else _number(standing.ratio, 2),
        standing.verdict or "",
        _beside(standing.recovery, standing.adam_recovery, 2),
        _beside(ours.logit if ours else None, adam.logit if adam else None, 0) if standing.family == LOGITS else "",
    )


def lines(every: Sequence[Standing]) -> list[str]:
    """The counts of verdicts per family and in all, and of disturbed starts that recover.

    >>> side = Side(None, 5, 0, 0.5, 0.01, None, 1.0)
    >>> lines([Standing("own-loss-10", "bad-starts", "agd-stochastic", side, side, 1.0, "even", 1.5, 1.0)])[-1]
    'agd-stochastic, disturbed starts that end within 10% of the undisturbed: 0 of 1 (Adam: 1 of 1)'
    """
    found = []
    for optimiser in dict.fromkeys(each.optimiser for each in every):
        mine = [each for each in every if each.optimiser == optimiser]
        found += [
            f"{optimiser}, {each.family}: won {each.won}, even {each.even}, lost {each.lost}" for each in count(mine)
        ]
        starts = [each.recovery for each in mine if each.recovery is not None]
        adam = [each.adam_recovery for each in mine if each.adam_recovery is not None]
        if starts:
            found.append(
                f"{optimiser}, disturbed starts that end within {RECOVERY - 1:.0%} of the undisturbed: "
                f"{_recovered(starts)} (Adam: {_recovered(adam)})"
            )
    return found


def markdown(every: Sequence[Standing]) -> str:
    """The table, and the counts as a list.

    >>> print(markdown([Standing("gan", "gan", "agd-stochastic", None, None, None, None, None, None)]).splitlines()[-1])
    | gan | agd-stochastic | – | – | – |  |  |  |
    """
    if not every:
        return ""
    table = grid(HEADS, map(row, every))
    return "\n".join([*table, "", *(f"- {line}" for line in lines(every))]).rstrip()


def cells() -> str:
    """All cells as Markdown.

    >>> cells().splitlines()[2]
    '| `gru-1` | small-batches | GRU of width 64 on characters, batch 1 | 640 |'
    """
    rows = [(f"`{each.name}`", each.family, each.content, f"{each.steps:,}") for each in CELLS.values()]
    return "\n".join(grid(("cell", "family", "what is trained", "steps"), rows))


def _loss(side: Side | None) -> str:
    if side is None:
        return "–"
    if side.failed:
        return f"not finite ({side.failed} of {side.seeds})"
    words = _number(side.loss, 3) + ("" if side.spread is None else f" ± {_number(side.spread, 3)}")
    return words if side.seeds == len(SEEDS) else f"{words} ({side.seeds} seed{'s' * (side.seeds != 1)})"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value < 1e4 else f"{value:.1e}"


def _beside(ours: float | None, adam: float | None, digits: int) -> str:
    if ours is None and adam is None:
        return ""
    one, other = ("–" if value is None else _number(value, digits) for value in (ours, adam))
    return f"{one} (Adam {other})"


def _recovered(ratios: Sequence[float]) -> str:
    return f"{sum(ratio <= RECOVERY for ratio in ratios)} of {len(ratios)}"
