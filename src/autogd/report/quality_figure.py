"""The benchmark of training quality as a picture: one row per workload, one marker per optimiser."""

import math
from collections.abc import Sequence
from typing import Any

from autogd.experiments.quality.grid import OURS, SEEDS, TUNED
from autogd.experiments.quality.long import LONG
from autogd.experiments.quality.recipe import RIVALS
from autogd.experiments.quality.summary import EVERYONE, LONG_OPTIMISERS, OPTIMISERS, Standing
from autogd.report.reproduction.curves import dress, empty, picture

__all__ = ["draw"]

# colour, marker, size: eight in full colour, told apart in grey by their markers; all others are grey
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
_LOW, _HIGH = 0.7, 1.5  # markers beyond these ratios are drawn at the edge
_SHORT, _FAR = 0.05, 10.0  # the same for shares of tuned Adam's time
_NEVER = 30.0  # the position of optimisers that never reach tuned Adam's loss
_ACROSS = 8.6  # inches: the width of a page, so that letters have the size that they say


def draw(every: Sequence[Standing]) -> bytes:
    """Two panels with a row a workload: loss over tuned Adam's, and processor time to tuned Adam's loss.

    >>> draw([Standing("gpt", "adam", 0.1, "cosine", 5, False, 3, 0, 1.5, 0.01, 0.5, 9.0, 1.0, 1.0, 1.0)])[1:4]
    b'PNG'
    """
    names = list(dict.fromkeys(standing.workload for standing in every))
    if any(name in LONG for name in names):
        adam, what = "AdamW", "tuned: best of a grid of learning rates, with warm-up and cosine"
    else:
        adam, what = "Adam", "tuned: best of a grid of learning rates × {constant, cosine}; others at their defaults"
        what += f"\nmean and standard deviation of {len(SEEDS)} seeds"
    title = f"Validation loss after a fixed number of steps, beside tuned {adam}"
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
            number_said = f"{standing.ratio:.2g}" if math.isfinite(standing.ratio) else "lost"
            loss.annotate(
                number_said, place, (aside[0], 0), textcoords="offset points", va="center", ha=aside[1], fontsize=9
            )
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
