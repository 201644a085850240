"""The figures that single commands draw: the demo's race, the growth of a step, and the width test."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autogd.experiments.speed.growth import Point
from autogd.report.figures import png_with_legend, series_styles

__all__ = ["COLOURS", "draw_demo", "draw_growth", "draw_width"]

# distinct for colour-blind readers, and in grey
COLOURS = {"StochasticAGD": "#0b3d91", "AGD": "#9467bd", "Adam": "#e6730a", "SGD": "#333333"}
STYLES = {"SGD": (0, (4, 3))}  # dashed, so that two rivals on the same curve are both visible


def draw_demo(records: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Draw the records of the demo's runs as a PNG.

    >>> import tempfile
    >>> record = {"optimiser": "AGD", "epoch": 1, "train_accuracy": 0.5, "test_accuracy": 0.5, "learning_rate": 0.1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_demo([record], "a title", Path(folder) / "demo.png")
    ...     (Path(folder) / "demo.png").exists()
    True
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for name in dict.fromkeys(record["optimiser"] for record in records):
        runs = [record for record in records if record["optimiser"] == name]
        epochs = [record["epoch"] for record in runs]
        for axes, key in ((left, "train_accuracy"), (middle, "test_accuracy")):
            values = [100 * record[key] for record in runs]
            axes.plot(epochs, values, color=COLOURS.get(name), ls=STYLES.get(name, "-"), lw=2, label=name)
        if name.endswith("AGD"):
            right.plot(epochs, [record["learning_rate"] for record in runs], color=COLOURS[name], lw=2)
    for axes, label in (
        (left, "train accuracy (%)"),
        (middle, "test accuracy (%)"),
        (right, "η, as derived"),
    ):
        axes.set_title(label, fontsize=10)
        axes.set_xlabel("epoch")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (left, middle):
        axes.set_ylim(0, 102)
    handles, labels = middle.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=150)


def draw_growth(points: Sequence[Point]) -> bytes:
    """Time and memory of a step, against weights and against tensors, as a PNG.

    >>> draw_growth([Point("weights", "agd", 100, 1, 1e-3, 400)])[1:4]
    b'PNG'
    """
    from matplotlib.figure import Figure  # not pyplot: no window, no global state

    figure = Figure(figsize=(8.6, 6.4), dpi=130, layout="constrained")
    names = list(dict.fromkeys(point.optimiser for point in points))
    titles = {"seconds": "seconds a step", "peak": "bytes held during a step"}
    for row, (quantity, title) in enumerate(titles.items()):
        for column, along in enumerate(("weights", "tensors")):
            if all(point.along != along for point in points):
                continue
            axes = figure.add_subplot(2, 2, 2 * row + column + 1)
            for optimiser, style in zip(names, series_styles(len(names)), strict=True):
                chosen = [p for p in points if p.optimiser == optimiser and p.along == along]
                counts = [getattr(p, along) for p in chosen]
                axes.plot(
                    counts, [getattr(p, quantity) for p in chosen], marker="o", label=optimiser, markersize=3, **style
                )
            axes.set_xscale("log")
            if quantity == "peak":
                axes.set_yscale("symlog", linthresh=100)
                axes.set_ylim(bottom=0)
            else:
                axes.set_yscale("log")
            axes.set_title(f"{title}, against {along}", fontsize=9)
            axes.tick_params(which="both", labelsize=8)
            axes.grid(alpha=0.3)
    return png_with_legend(figure)


def draw_width(moves: Mapping[int, float], path: Path) -> None:
    """Draw how far the first step moves the output, against the width.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_width({1: 0.1, 2: 0.1}, Path(folder) / "width.png")
    ...     (Path(folder) / "width.png").exists()
    True
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(list(moves), list(moves.values()), "o-", color="#0b6fb8", lw=2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(moves), [f"×{factor}" for factor in moves])
    axes.minorticks_off()
    axes.set_ylim(0, 1.3 * max(moves.values()))
    axes.set_xlabel("width of the network")
    axes.set_ylabel("root-mean-square move of the output")
    axes.set_title("AGD's first step, at several widths:\na flat line is right", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
