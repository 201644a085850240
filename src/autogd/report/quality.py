"""The benchmark of training quality as a table of text, as Markdown, and as a figure."""

import math
from collections.abc import Sequence
from typing import Any

from autogd.experiments.quality.grid import OURS, SEEDS, TUNED
from autogd.experiments.quality.race import POINTS
from autogd.experiments.quality.recipe import RIVALS
from autogd.experiments.quality.summary import EVERYONE, LONG_OPTIMISERS, OPTIMISERS, Standing, fewest, tally
from autogd.experiments.quality.workloads import LONG, WORKLOADS
from autogd.report.markdown import grid
from autogd.report.reproduction.curves import dress, empty, picture

__all__ = ["HEADS", "draw", "heads", "markdown", "row", "verdicts", "workloads"]

HEADS = (
    "workload",
    "optimiser",
    "best of grid",
    "validation loss",
    "÷ Adam's",
    "accuracy",
    "steps to Adam's loss",
    "time to Adam's loss",
    "against Adam",
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


# colour, marker, size; all others are grey. In grey the markers tell them apart
_STYLES = {
    "agd-stochastic": ("#0b3d91", "*", 14.0),
    "agd-averaged": ("#1b9e77", "d", 7.0),
    "agd": ("#9467bd", "o", 6.0),
    "adam": ("#e6730a", "D", 6.0),
    "adamw": ("#e6730a", "D", 6.0),
    "sgd": ("#333333", "s", 5.5),
    "muon": ("#c2185b", "^", 7.0),
    "schedulefree-adamw": ("#8c6d31", "v", 6.5),
    "prodigy": ("#56b4e9", "P", 6.5),
}
_GREY = "#b0b0b0"
_MARKERS = {
    "muon-original": "h", "schedulefree-radam": "h", "prodigy-plus": "H", "dadaptation": "X", "dog": "p", "soap": "<",
    "psgd": ">", "scion": "8",
}  # fmt: skip
_LOW, _HIGH = 0.7, 1.5  # a marker beyond these ratios is drawn at the edge
_SHORT, _FAR = 0.05, 10.0  # the same for shares of tuned Adam's time
_NEVER = 30.0  # the position of optimisers that never reach tuned Adam's loss
_ACROSS = 8.6  # inches, the width of a page, so that fonts keep their nominal size


def draw(every: Sequence[Standing]) -> bytes:
    """Two panels with one row per workload: loss relative to tuned Adam's, and processor time to tuned Adam's loss.

    >>> draw([Standing("gpt", "adam", 0.1, "cosine", 5, False, 3, 0, 1.5, 0.01, 0.5, 9.0, 1.0, 1.0, 1.0)])[1:4]
    b'PNG'
    """
    names = list(dict.fromkeys(standing.workload for standing in every))
    if any(name in LONG for name in names):
        adam, what = "AdamW", "tuned: best of a grid of learning rates, with warm-up and cosine"
    else:
        adam, what = "Adam", "tuned: best of a grid of learning rates × {constant, cosine}; others at their defaults"
        what += f"\nmean and standard deviation of {len(SEEDS)} seeds"
    title = f"Validation loss after a fixed number of steps, relative to tuned {adam}'s"
    figure = empty(_ACROSS, 2.2 + 0.72 * len(names), title, what)
    loss, time = figure.subplots(1, 2, sharey=True, width_ratios=(1.7, 1))
    for standing in every:
        if standing.ratio is not None:
            _place(loss, time, standing, names.index(standing.workload))
    for axes in (loss, time):
        for number in range(0, len(names), 2):
            axes.axhspan(number - 0.5, number + 0.5, color="black", alpha=0.045, lw=0)
        axes.axvline(1.0, color=_STYLES["adam"][0], lw=0.9, zorder=1)
    loss.set_yticks(range(len(names)), names)
    loss.set_ylim(len(names) - 0.5, -0.5)
    _scale(loss, _LOW, _HIGH, {value: f"{value:g}" for value in (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5)})
    _scale(time, _SHORT, _NEVER * 1.6, {0.1: "10%", 0.3: "30%", 1.0: "100%", 3.0: "300%", _NEVER: "never"})
    dress(loss, f"validation loss ÷ tuned {adam}'s\n(left is better; arrows: beyond the edge)", "", legend=False)
    dress(time, f"processor time to tuned {adam}'s\nlast loss (share of its time)", "", legend=False)
    time.tick_params(labelleft=False)  # names only on the left
    for axes in (loss, time):
        axes.tick_params(labelsize=9)
    _legend(figure, {standing.optimiser for standing in every})
    return picture(figure)


def _style(name: str) -> tuple[str, str, float]:
    return _STYLES.get(name) or (_GREY, _MARKERS.get(name, "."), 5.0)


def _place(loss: Any, time: Any, standing: Standing, number: int) -> None:
    assert standing.ratio is not None
    colour, marker, size = _style(standing.optimiser)
    ours = standing.optimiser == OURS[0]
    order = LONG_OPTIMISERS if standing.workload in LONG else OPTIMISERS
    y = number + 0.8 * ((order.index(standing.optimiser) + 0.5) / len(order) - 0.5)
    style = {"color": colour, "ms": size, "mec": "black" if ours else "white", "mew": 0.6 if ours else 0.4}
    style |= {"ls": "none", "zorder": 5 if ours else 2 if colour == _GREY else 3}
    held = min(max(standing.ratio, _LOW), _HIGH)
    if held != standing.ratio:
        loss.plot(held, y, **style, marker="<" if held == _LOW else ">", clip_on=False)
        if ours:
            aside, place = ((10, "left") if held == _LOW else (-10, "right")), (held, y)
            words = f"{standing.ratio:.2g}" if math.isfinite(standing.ratio) else "lost"
            loss.annotate(words, place, (aside[0], 0), textcoords="offset points", va="center", ha=aside[1], fontsize=9)
    else:
        loss.plot(held, y, **style, marker=marker)
        if standing.spread and colour != _GREY:
            half = standing.ratio * standing.spread / standing.loss
            ends = [min(max(end, _LOW), _HIGH) for end in (standing.ratio - half, standing.ratio + half)]
            loss.plot(ends, [y, y], color=colour, lw=1.0, zorder=2)
    seconds = standing.time_share
    time.plot(_NEVER if seconds is None else min(max(seconds, _SHORT), _FAR), y, **style, marker=marker)


def _scale(axes: Any, low: float, high: float, marks: dict[float, str]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(list(marks), list(marks.values()))
    axes.minorticks_off()


def _legend(figure: Any, drawn: set[str]) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for name in EVERYONE:
        if name in drawn:
            colour, marker, size = _style(name)
            label = f"{name} (tuned)" if name in {*TUNED, *RIVALS} else name
            handles.append(Line2D([], [], color=colour, marker=marker, ms=size, ls="none", label=label))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
