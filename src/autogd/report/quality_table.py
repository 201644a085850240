"""The benchmark of training quality as a table of text, and as Markdown."""

from collections.abc import Sequence

from autogd.experiments.quality.grid import SEEDS
from autogd.experiments.quality.long import LONG
from autogd.experiments.quality.race import POINTS
from autogd.experiments.quality.summary import Standing, fewest, tally
from autogd.experiments.quality.workloads import WORKLOADS
from autogd.report.markdown import grid

__all__ = ["HEADS", "heads", "markdown", "row", "verdicts", "workloads"]

HEADS = (
    "workload",
    "optimiser",
    "best of grid",
    "validation loss",
    "÷ Adam's",
    "accuracy",
    "steps to Adam's loss",
    "time to Adam's loss",
    "beside Adam",
)


def heads(every: Sequence[Standing]) -> tuple[str, ...]:
    """The heads of a table; they name AdamW if that is the reference.

    >>> heads([Standing("char-gpt", "adamw", 0.1, "cosine", 3, False, 1, 0, 1.5, None, 0.5, 9.0)])[4]
    "÷ AdamW's"
    """
    long = any(standing.workload in LONG for standing in every)
    return tuple(head.replace("Adam", "AdamW") for head in HEADS) if long else HEADS


def row(standing: Standing, first: bool = True) -> tuple[str, ...]:
    """A standing as text; only the first row of a workload names it.

    >>> row(Standing("gpt", "dog", None, None, 0, False, 3, 0, 1.5, 0.01, 0.5, 9.0, 0.9, 0.8, 1.6, "below"))
    ('gpt', 'dog', '', '1.500 ± 0.010', '0.900', '50.0%', '80%', '160%', 'below')
    """
    shares = (standing.steps_share, standing.time_share)
    steps, time = ("–" if standing.ratio is None else "never" if share is None else f"{share:.0%}" for share in shares)
    early = standing.steps_share is not None and standing.steps_share <= 1 / POINTS
    return (
        standing.workload if first else "",
        standing.optimiser,
        _setting(standing),
        _loss(standing),
        "–" if standing.ratio is None else _number(standing.ratio),
        "" if standing.accuracy is None else f"{standing.accuracy:.1%}",
        f"≤ {steps}" if early else steps,
        f"≤ {time}" if early else time,
        standing.verdict or "",
    )


def verdicts(every: Sequence[Standing]) -> list[str]:
    """One line per rival: on how many workloads ours is below it.

    >>> one, two = (Standing("gpt", name, None, None, 0, False, 3, 0, loss, 0.1, None, 1.0)
    ...             for name, loss in (("agd-stochastic", 1.0), ("dog", 2.0)))
    >>> verdicts([one, two])
    ['agd-stochastic against dog: below on 1, within spread on 0, above on 0']
    """
    return [
        f"{each.optimiser} against {each.rival}: below on {each.below}, within spread on {each.within}, "
        f"above on {each.above}"
        for each in tally(every)
    ]


def markdown(every: Sequence[Standing]) -> str:
    """The table, and the counts as a list.

    >>> print(markdown([Standing("gpt", "dog", None, None, 0, False, 3, 0, 1.5, 0.01, 0.5, 9.0)]).splitlines()[-1])
    | gpt | dog |  | 1.500 ± 0.010 | – | 50.0% | – | – |  |
    """
    before = ["", *(standing.workload for standing in every)]
    rows = [row(standing, standing.workload != last) for standing, last in zip(every, before, strict=False)]
    return "\n".join([*grid(heads(every), rows), "", *(f"- {line}" for line in verdicts(every))]).rstrip()


def workloads(long: bool = False) -> str:
    """The suite, or the long workloads, as Markdown.

    >>> workloads().splitlines()[2]
    '| `fcn-8` | FCN, depth 8, width 128; square loss | cifar10 | 128 | 500 |'
    """
    rows = [
        (f"`{name}`", each.content, each.data, str(each.batch), f"{each.steps:,}")
        for name, each in (LONG if long else WORKLOADS).items()
    ]
    return "\n".join(grid(("workload", "what is trained", "data", "batch", "steps"), rows))


def _setting(standing: Standing) -> str:
    if standing.lr is None:
        return ""
    words = f"{standing.lr:g}, {standing.schedule}"
    if standing.rates == 1 and standing.workload in LONG:
        return words + " (no grid)"
    if standing.at_edge:
        return words + " (at an edge)"
    return words + (" (unfinished)" if standing.rates < fewest(standing.workload) else "")


def _loss(standing: Standing) -> str:
    words = _number(standing.loss) + ("" if standing.spread is None else f" ± {_number(standing.spread)}")
    if standing.lost:
        words = f"lost ({standing.lost} of {standing.seeds})"
    elif standing.seeds != len(SEEDS):
        words += f" ({standing.seeds} seed{'s' * (standing.seeds != 1)})"
    return words


def _number(value: float) -> str:
    return f"{value:.3f}" if value < 1e4 else f"{value:.1e}"
