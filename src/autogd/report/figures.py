"""The curves of runs, drawn from their records."""

import io
from collections.abc import Sequence
from typing import Any, Literal

from autogd.report.tables import Group, one_a_seed

__all__ = ["COLOURS", "PANELS", "draw", "png_with_legend", "series_styles"]

PANELS = ("objective", "accuracy", "learning_rate", "update_size")
# distinct for colour-blind readers, and in grey by their dashes
COLOURS = ("#0b3d91", "#e6730a", "#1b9e77", "#c2185b", "#56b4e9", "#333333", "#9467bd", "#8c6d31")
REST = "#bbbbbb"
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), "-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
_Histories = list[list[dict[str, Any]]]
_TITLES = {
    "objective": "training objective",
    "accuracy": "accuracy: test thick, training thin",
    "test_objective": "test objective",
    "learning_rate": "learning rate: mean, min to max",
    "eta": "η, the relative size of a step: mean, min to max",
    "update_size": "relative update size: mean, min to max",
}


def draw(groups: Sequence[Group], kind: Literal["png", "svg"], panels: Sequence[str] = PANELS) -> bytes:
    """The panels as one picture; each group is a line, the mean over its seeds, and a band.

    The band of objective and accuracy is the range over the seeds. The band of learning rate and update size is the
    range over each epoch's steps.

    >>> draw([], "png")[1:4]
    b'PNG'
    """
    from matplotlib.figure import Figure  # not pyplot: no window, no global state
    from matplotlib.ticker import MaxNLocator

    across = min(2, len(panels))
    down = -(-len(panels) // across)
    shown = _best_first([(group, found) for group in groups if (found := _histories(group))])
    ours = [group.label for group, _ in shown if _derives_its_rate(group)]
    lines = [line for _, histories in shown for metrics in histories for line in metrics]
    regression = bool(lines) and all(line["test_accuracy"] is None for line in lines)
    styles = series_styles(len(shown))
    named = min(len(shown), len(COLOURS))
    legend = 0.22 * -(-named // across) + (0.22 if len(shown) > named else 0) + 0.1 if shown else 0
    figure = Figure(figsize=(4.6 * across, 3.0 * down + legend), dpi=130, layout="constrained")
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(down, across, i + 1)
        if panel == "accuracy" and regression:
            panel = "test_objective"
        # η and learning rates are not comparable: they never share an axis
        chosen = ours if panel == "learning_rate" and ours else [group.label for group, _ in shown]
        axes.set_title(_TITLES["eta" if panel == "learning_rate" and ours else panel], fontsize=9)
        axes.set_xlabel("epoch", fontsize=8)
        axes.tick_params(which="both", labelsize=8)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        for (group, histories), style in zip(shown, styles, strict=True):
            if group.label in chosen:
                _line(axes, panel, histories, style)
        if panel != "accuracy" and axes.lines:
            axes.set_yscale("log")
    if shown:
        _legend(figure, [group.label for group, _ in shown], styles, across)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    return buffer.getvalue()


def png_with_legend(figure: Any) -> bytes:
    """The figure as a PNG; the legend below all panels is that of the panel with the most lines."""
    handles, labels = max((axes.get_legend_handles_labels() for axes in figure.axes), key=lambda legend: len(legend[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def series_styles(count: int) -> list[dict[str, Any]]:
    """The style of each series: eight have their own colours and dashes, the rest are thin and grey.

    >>> [style["color"] for style in series_styles(10)][-3:]
    ['#8c6d31', '#bbbbbb', '#bbbbbb']
    """
    own = [
        {"color": colour, "linestyle": dash, "linewidth": 1.5, "zorder": 3}
        for colour, dash in zip(COLOURS, _DASHES, strict=True)
    ]
    return own[:count] + [{"color": REST, "linestyle": "-", "linewidth": 0.7, "zorder": 1}] * (count - len(own))


def _legend(figure: Any, labels: list[str], styles: list[dict[str, Any]], across: int) -> None:
    """The legend, below the panels; the grey series share one entry."""
    from matplotlib.lines import Line2D

    named = [(Line2D([], [], **style), _cut(label)) for label, style in zip(labels, styles, strict=True)][
        : len(COLOURS)
    ]
    rest = len(labels) - len(named)
    if rest:
        named.append((Line2D([], [], **styles[-1]), f"{rest} more, with a higher objective"))
    handles, words = zip(*named, strict=True)
    figure.legend(handles, words, loc="outside lower center", ncols=across, fontsize=7, frameon=False)


def _cut(label: str, longest: int = 60) -> str:
    return label if len(label) <= longest else f"{label[: longest - 1]}…"


def _best_first(shown: list[tuple[Group, _Histories]]) -> list[tuple[Group, _Histories]]:
    """The groups in their order; if colours are too few, the lowest last objective first, so that the best have one."""
    if len(shown) <= len(COLOURS):
        return shown

    def last(entry: tuple[Group, _Histories]) -> float:
        found = [metrics[-1]["objective"] for metrics in entry[1]]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if known else float("inf")

    return sorted(shown, key=last)


def _derives_its_rate(group: Group) -> bool:
    return group.runs[0].config().optimiser.startswith("agd")


def _histories(group: Group) -> list[list[dict[str, Any]]]:
    return [metrics for metrics in (run.metrics() for run in one_a_seed(group.runs)) if metrics]


def _rounded(value: float) -> float:
    """Drop the last digits: matplotlib warns if an axis spans only the rounding errors of a constant rate."""
    return float(f"{value:.9g}")


def _line(axes: Any, panel: str, histories: list[list[dict[str, Any]]], style: dict[str, Any]) -> None:
    epochs = sorted({line["epoch"] for metrics in histories for line in metrics})
    marker = "o" if len(epochs) == 1 else None

    def over_seeds(name: str) -> list[list[float]]:
        found = {epoch: [] for epoch in epochs}  # type: dict[int, list[float]]
        for metrics in histories:
            for line in metrics:
                if line[name] is not None:
                    found[line["epoch"]].append(_rounded(line[name]))
        return [found[epoch] or [float("nan")] for epoch in epochs]

    def plot(name: str, low: str, high: str, **changes: Any) -> None:
        values = over_seeds(name)
        mean = [_rounded(sum(v) / len(v)) for v in values]
        axes.plot(epochs, mean, marker=marker, **{**style, **changes})
        if style["color"] == REST:
            return
        bottom, top = [min(v) for v in over_seeds(low)], [max(v) for v in over_seeds(high)]
        axes.fill_between(epochs, bottom, top, color=style["color"], alpha=0.15, linewidth=0)

    if panel in ("objective", "test_objective"):
        plot(panel, panel, panel)
    elif panel == "accuracy":
        plot("test_accuracy", "test_accuracy", "test_accuracy")
        plot("train_accuracy", "train_accuracy", "train_accuracy", linewidth=0.6 * style["linewidth"], alpha=0.7)
    else:
        plot(f"{panel}_mean", f"{panel}_min", f"{panel}_max")
