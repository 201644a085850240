"""The curves of runs, drawn from their records."""

import io
from collections.abc import Sequence
from typing import Any, Literal

from autogd.report.tables import Group

__all__ = ["PANELS", "draw"]

PANELS = ("objective", "accuracy", "learning_rate", "update_size")
_TITLES = {
    "objective": "training objective",
    "accuracy": "accuracy: test, and training dashed",
    "learning_rate": "learning rate η: mean, min to max",
    "update_size": "relative update size: mean, min to max",
}


def draw(groups: Sequence[Group], kind: Literal["png", "svg"], panels: Sequence[str] = PANELS) -> bytes:
    """The panels as one picture: for each group, the mean over its seeds as a line, and a band.

    The band of objective and accuracy is the range over the seeds. The band of learning rate and update size is the
    range over each epoch's steps.

    >>> draw([], "png")[1:4]
    b'PNG'
    """
    from matplotlib.figure import Figure  # not pyplot: no window, no global state
    from matplotlib.ticker import MaxNLocator

    across = min(2, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(4.6 * across, 3.0 * down), dpi=130, layout="constrained")
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(down, across, i + 1)
        axes.set_title(_TITLES[panel], fontsize=9)
        axes.set_xlabel("epoch", fontsize=8)
        axes.tick_params(which="both", labelsize=8)
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        for number, group in enumerate(groups):
            histories = [metrics for metrics in (run.metrics() for run in group.runs) if metrics]
            if histories:
                _line(axes, panel, histories, group.label, f"C{number % 10}")
        if panel != "accuracy" and axes.lines:
            axes.set_yscale("log")
        if i == 0 and axes.lines:
            axes.legend(fontsize=7)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    return buffer.getvalue()


def _line(axes: Any, panel: str, histories: list[list[dict[str, Any]]], label: str, colour: str) -> None:
    epochs = sorted({line["epoch"] for metrics in histories for line in metrics})
    marker = "o" if len(epochs) == 1 else None

    def over_seeds(name: str) -> list[list[float]]:
        found = {epoch: [] for epoch in epochs}  # type: dict[int, list[float]]
        for metrics in histories:
            for line in metrics:
                if line[name] is not None:
                    found[line["epoch"]].append(line[name])
        return [found[epoch] or [float("nan")] for epoch in epochs]

    def plot(name: str, low: str, high: str, **style: Any) -> None:
        values = over_seeds(name)
        mean = [sum(v) / len(v) for v in values]
        axes.plot(epochs, mean, color=colour, marker=marker, linewidth=1.4, **style)
        bottom, top = [min(v) for v in over_seeds(low)], [max(v) for v in over_seeds(high)]
        axes.fill_between(epochs, bottom, top, color=colour, alpha=0.18, linewidth=0)

    if panel == "objective":
        plot("objective", "objective", "objective", label=label)
    elif panel == "accuracy":
        plot("test_accuracy", "test_accuracy", "test_accuracy", label=label)
        plot("train_accuracy", "train_accuracy", "train_accuracy", linestyle="--")
    else:
        plot(f"{panel}_mean", f"{panel}_min", f"{panel}_max", label=label)
