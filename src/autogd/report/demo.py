"""The demo's figure: accuracy and learning rate over time, one panel each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["COLOURS", "draw"]

# distinct in grey, and for colour-blind readers
COLOURS = {"StochasticAGD": "#0b3d91", "AGD": "#9467bd", "Adam": "#e6730a", "SGD": "#333333"}
STYLES = {"SGD": (0, (4, 3))}  # dashed, so that two rivals on one line are both visible


def draw(records: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Draw the records of the demo's runs as a PNG.

    >>> import tempfile
    >>> record = {"optimiser": "AGD", "epoch": 1, "train_accuracy": 0.5, "test_accuracy": 0.5, "learning_rate": 0.1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw([record], "a title", Path(folder) / "demo.png")
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
