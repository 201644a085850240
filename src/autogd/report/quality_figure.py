"""The benchmark of training quality as a picture: a row a workload, a marker an optimiser."""

import math
from collections.abc import Sequence
from typing import Any

from autogd.experiments.quality.grid import OURS, SEEDS, TUNED
from autogd.experiments.quality.long import EVERY, LONG
from autogd.experiments.quality.recipe import RIVALS
from autogd.experiments.quality.summary import EVERYONE, LONG_OPTIMISERS, OPTIMISERS, Standing
from autogd.report.reproduction.curves import dress, empty, picture

__all__ = ["draw"]

# colour, marker, size; told apart in grey by their markers
_STYLES = {
    "agd-stochastic": ("#0072b2", "*", 12.0),
    "agd-averaged": ("#0072b2", "d", 5.0),
    "agd": ("#0072b2", "o", 4.5),
    "adam": ("#d55e00", "D", 5.0),
    "adamw": ("#d55e00", "D", 5.0),
    "sgd": ("#555555", "s", 4.5),
    "muon": ("#cc79a7", "^", 5.5),
    "muon-original": ("#cc79a7", "h", 5.0),
    "schedulefree-adamw": ("#009e73", "v", 5.0),
    "schedulefree-radam": ("#009e73", "h", 5.0),
    "prodigy": ("#e69f00", "P", 5.0),
    "prodigy-plus": ("#e69f00", "H", 5.0),
    "dadaptation": ("#56b4e9", "X", 5.0),
    "dog": ("#999999", "p", 5.0),
    "soap": ("#882255", "<", 5.0),
    "psgd": ("#882255", ">", 5.0),
    "scion": ("#cc79a7", "8", 5.0),
}
_LOW, _HIGH = 0.7, 1.5  # beyond these ratios markers stand at the edge
_SHORT, _FAR = 0.05, 10.0  # the same of shares of tuned Adam's time
_NEVER_STEPS, _NEVER_TIME = 1.25, 30.0  # where those stand that never reach tuned Adam's loss


def draw(every: Sequence[Standing]) -> bytes:
    """Three panels with a row a workload: loss over tuned Adam's, steps to tuned Adam's loss, and time to it.

    >>> draw([Standing("gpt", "adam", 0.1, "cosine", 5, False, 3, 0, 1.5, 0.01, 0.5, 9.0, 1.0, 1.0, 1.0)])[1:4]
    b'PNG'
    """
    names = list(dict.fromkeys(standing.workload for standing in every))
    if any(name in LONG for name in names):
        adam, what = "AdamW", "tuned: best of a grid of learning rates, with warm-up and cosine; AGD has nothing to set"
    else:
        what = (
            "tuned: best of a grid of learning rates × {constant, cosine}; others at defaults; AGD has nothing to set"
        )
        adam, what = "Adam", f"{what}; mean and standard deviation of {len(SEEDS)} seeds"
    title = f"Validation loss after a fixed number of steps, beside tuned {adam}"
    figure = empty(13, 1.9 + 0.78 * len(names), title, what)
    loss, steps, time = figure.subplots(1, 3, sharey=True, width_ratios=(1.5, 1, 1))
    for standing in every:
        if standing.ratio is not None:
            _place(loss, steps, time, standing, names.index(standing.workload))
    for axes in (loss, steps, time):
        for number in range(0, len(names), 2):
            axes.axhspan(number - 0.5, number + 0.5, color="black", alpha=0.045, lw=0)
        axes.axvline(1.0, color=_STYLES["adam"][0], lw=0.9, zorder=1)
    loss.set_yticks(range(len(names)), [f"{name}\n{EVERY[name].content.split(';')[0]}" for name in names])
    loss.set_ylim(len(names) - 0.5, -0.5)
    _scale(loss, _LOW, _HIGH, {value: f"{value:g}" for value in (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5)})
    steps.set_xlim(0, 1.35)
    steps.set_xticks([0, 0.25, 0.5, 0.75, 1, _NEVER_STEPS], ["0", "25%", "50%", "75%", "100%", "never"])
    marks = {0.1: "10%", 0.3: "30%", 1.0: "100%", 3.0: "300%", _NEVER_TIME: "never"}
    _scale(time, _SHORT, _NEVER_TIME * 1.6, marks)
    dress(loss, f"validation loss ÷ tuned {adam}'s\n(left is better; arrows: beyond the edge)", "", legend=False)
    dress(steps, f"steps to tuned {adam}'s last loss\n(share of the budget)", "", legend=False)
    dress(time, f"processor time to the same\n(share of tuned {adam}'s whole time)", "", legend=False)
    for axes in (steps, time):  # the names stand once, on the left
        axes.tick_params(labelleft=False)
    _legend(figure, {standing.optimiser for standing in every})
    return picture(figure)


def _place(loss: Any, steps: Any, time: Any, standing: Standing, number: int) -> None:
    assert standing.ratio is not None
    colour, marker, size = _STYLES[standing.optimiser]
    ours = standing.optimiser == OURS[0]
    order = LONG_OPTIMISERS if standing.workload in LONG else OPTIMISERS
    y = number + 0.72 * ((order.index(standing.optimiser) + 0.5) / len(order) - 0.5)
    style = {"color": colour, "ms": size, "mec": "black" if ours else "white", "mew": 0.6 if ours else 0.4}
    style |= {"ls": "none", "zorder": 5 if ours else 3}
    held = min(max(standing.ratio, _LOW), _HIGH)
    if held != standing.ratio:
        loss.plot(held, y, **style, marker="<" if held == _LOW else ">", clip_on=False)
        if ours:
            aside, place = ((10, "left") if held == _LOW else (-10, "right")), (held, y)
            number_said = f"{standing.ratio:.2g}" if math.isfinite(standing.ratio) else "lost"
            loss.annotate(
                number_said, place, (aside[0], 0), textcoords="offset points", va="center", ha=aside[1], fontsize=7.5
            )
    else:
        loss.plot(held, y, **style, marker=marker)
        if standing.spread:
            half = standing.ratio * standing.spread / standing.loss
            ends = [min(max(end, _LOW), _HIGH) for end in (standing.ratio - half, standing.ratio + half)]
            loss.plot(ends, [y, y], color=colour, lw=1.0, zorder=2)
    share, seconds = standing.steps_share, standing.time_share
    steps.plot(_NEVER_STEPS if share is None else share, y, **style, marker=marker)
    time.plot(_NEVER_TIME if seconds is None else min(max(seconds, _SHORT), _FAR), y, **style, marker=marker)


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
            colour, marker, size = _STYLES[name]
            label = f"{name} (tuned)" if name in {*TUNED, *RIVALS} else name
            handles.append(Line2D([], [], color=colour, marker=marker, ms=size, ls="none", label=label))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=math.ceil(len(handles) / 2), fontsize=8, frameon=False
    )
