"""AGD at every width and depth, and the two phases of its learning rate."""

import math
from itertools import pairwise
from typing import Any

from autogd.experiments.preset import Scale
from autogd.report.reproduction.claims import Claim, verdict
from autogd.report.reproduction.curves import COLOURS, accuracy, band, dress, empty, line
from autogd.report.reproduction.reading import Runs, budget, final, percent
from autogd.training import Run

__all__ = ["claims", "draw", "grid", "phases"]

PHASES = "width-depth/phases"


def draw(runs: Runs, scale: Scale) -> Any:
    """Above, the grid: two tables of numbers, and η over the epochs; below, the run that knows its samples by heart."""
    cells = grid(runs)
    some = next(iter(cells.values()), None)
    said = budget(some.config(), width=True, depth=True) if some else ""
    figure = empty(13, 8, "AGD on fully-connected networks of every width and depth", f"above: {said}")
    panels = figure.subplots(2, 3)
    _table(panels[0][0], cells, "train_accuracy")
    _table(panels[0][1], cells, "test_accuracy")
    widest = max((width for depth, width in cells if depth == max(d for d, _ in cells)), default=0)
    for i, ((depth, _), run) in enumerate((key, run) for key, run in cells.items() if key[1] == widest):
        line(panels[0][2], run, "learning_rate_mean", color=f"C{i}", label=f"depth {depth}")
    dress(panels[0][2], f"learning rate η at width {widest}: mean of each epoch", y="η")
    if PHASES in runs:
        _phases(panels[1], runs[PHASES])
    return figure


def grid(runs: Runs) -> dict[tuple[int, int], Run]:
    """The runs by depth and width, in order.

    >>> grid({})
    {}
    """
    found = {}
    for name, run in runs.items():
        if name.startswith("width-depth/depth"):
            config = run.config()
            found[config.depth or 0, config.width or 0] = run
    return dict(sorted(found.items()))


def phases(run: Run) -> dict[str, float] | None:
    """η in the first epoch, at its lowest before its top, there and at the end; train accuracies; speeds.

    The first epochs may dip, as the paper shows for batch sizes; the slow rise begins after that.

    >>> from pathlib import Path
    >>> phases(Run(Path("nowhere"))) is None
    True
    """
    rows = run.metrics()
    if not rows:
        return None
    top = max(rows, key=lambda row: row["learning_rate_mean"])
    at = rows.index(top)
    low = min(rows[: at + 1], key=lambda row: row["learning_rate_mean"])
    below = [row["epoch"] for row in rows[:at] if row["learning_rate_mean"] <= top["learning_rate_mean"] / 2]
    after = [row["epoch"] for row in rows[at:] if row["learning_rate_mean"] <= top["learning_rate_mean"] / 2]
    return {
        "rise": top["epoch"] - max(below, default=math.nan),
        "fall": min(after, default=math.nan) - top["epoch"],
        "start": rows[0]["learning_rate_mean"],
        "low": low["learning_rate_mean"],
        "low_epoch": low["epoch"],
        "top": top["learning_rate_mean"],
        "end": rows[-1]["learning_rate_mean"],
        "epoch": top["epoch"],
        "known": next((row["epoch"] for row in rows if row["train_accuracy"] >= 0.99), math.nan),
        "top_accuracy": top["train_accuracy"],
        "end_accuracy": rows[-1]["train_accuracy"],
    }


def claims(runs: Runs, scale: Scale) -> list[Claim]:
    """Best and worst, the order by width and by depth, and the two phases."""
    cells, small = grid(runs), scale != "paper"
    test = {key: final(run, "test_accuracy") for key, run in cells.items()}
    train = {key: final(run, "objective") for key, run in cells.items()}
    said = budget(next(iter(cells.values())).config(), width=True, depth=True)
    top, low = max(test, key=lambda k: test[k]), min(test, key=lambda k: test[k])
    rows = [[train[k] for k in sorted(train) if k[0] == depth] for depth in sorted({d for d, _ in train})]
    wider = [a > b for row in rows for a, b in pairwise(row)]
    found = [
        Claim(
            "the best test accuracy of the grid, and where",
            "63.7% (depth 4, width 2048)",
            f"{percent(test[top])} (depth {top[0]}, width {top[1]})",
            verdict(not small and abs(test[top] - 0.637) < 0.02, top == (4, max(w for _, w in test)), small),
            said,
        ),
        Claim(
            "the worst test accuracy of the grid, and where",
            "42.55% (depth 2, width 64)",
            f"{percent(test[low])} (depth {low[0]}, width {low[1]})",
            verdict(not small and abs(test[low] - 0.4255) < 0.02, low == (2, 64), small),
            said,
        ),
        Claim(
            "wider always trains better (lower objective at equal depth)",
            "always",
            f"{sum(wider)} of {len(wider)} doublings of the width lower it",
            verdict(all(wider), sum(wider) >= 0.8 * len(wider), small),
            said,
        ),
    ]
    widest = max((w for d, w in train if d == max(d for d, _ in train)), default=0)
    column = {depth: train[depth, width] for depth, width in sorted(train) if width == widest}
    if {8, 16, 32} <= set(column):
        good = [column[depth] < column[32] for depth in (8, 16)]
        ours = ", ".join(f"{value:.3f} at depth {depth}" for depth, value in column.items())
        found.append(
            Claim(
                "depth 8 and 16 train better than 32",
                "objective lower",
                f"objective at width {widest}: {ours}",
                verdict(all(good), any(good), small),
                said,
            )
        )
    seen = phases(runs[PHASES])
    if seen:
        rises, falls = seen["top"] > 1.2 * seen["low"], seen["end"] < 0.5 * seen["top"]
        dipped = f"{seen['low']:.3f} in epoch {seen['low_epoch']:.0f}, " if seen["low_epoch"] > 1 else ""
        full = rises and falls and seen["fall"] < seen["rise"] and seen["end_accuracy"] > 0.99
        known = (
            f"train accuracy passes 99% in epoch {seen['known']:.0f}" if seen["known"] == seen["known"] else "never 99%"
        )
        found.append(
            Claim(
                "two phases: η rises slowly, then falls fast as train accuracy nears 100%",
                "seen on large networks",
                f"η {seen['start']:.3f} in epoch 1, {dipped}"
                f"{seen['top']:.3f} in epoch {seen['epoch']:.0f} (train accuracy "
                f"{percent(seen['top_accuracy'])}), {seen['end']:.3f} at the end "
                f"({percent(seen['end_accuracy'])}); {known}; its last doubling: {_epochs(seen['rise'])}, "
                f"its first halving: {_epochs(seen['fall'])}",
                verdict(full, rises or falls, small),
                budget(runs[PHASES].config()),
            )
        )
    return found


def _epochs(count: float) -> str:
    return "never" if math.isnan(count) else f"{count:.0f} epochs"


def _table(axes: Any, cells: dict[tuple[int, int], Run], what: str) -> None:
    depths, widths = sorted({depth for depth, _ in cells}), sorted({width for _, width in cells})
    values = [[math.nan] * len(widths) for _ in depths]
    for (depth, width), run in cells.items():
        values[depths.index(depth)][widths.index(width)] = 100 * final(run, what)
    axes.imshow(values, cmap="viridis", aspect="auto")
    known = [v for row in values for v in row if not math.isnan(v)]
    middle = (min(known) + max(known)) / 2 if known else 0
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            text, colour = ("not run", "black") if math.isnan(value) else (f"{value:.1f}", "white")
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color="black" if value > middle else colour)
    axes.set_xticks(range(len(widths)), widths)
    axes.set_yticks(range(len(depths)), depths)
    name, _, _ = what.partition("_")
    said = "" if name == "train" else "; the paper: 63.7 at 4, 2048 and 42.55 at 2, 64"
    dress(axes, f"{name} accuracy (%){said}", x="width", y="depth")
    axes.grid(False)


def _phases(axes: Any, run: Run) -> None:
    rate, objective, correct = axes
    band(rate, run, "learning_rate", COLOURS["agd"])
    line(objective, run, "objective", color=COLOURS["agd"])
    accuracy(correct, run, COLOURS["agd"], "AGD: train solid, test dotted")
    seen = phases(run)
    for each in axes:
        if seen and seen["known"] == seen["known"]:
            each.axvline(seen["known"], color="black", lw=0.8, ls=(0, (6, 3)), label="train accuracy 99%")
    head, _, tail = budget(run.config()).partition("; ")
    dress(rate, f"the two phases: learning rate η\n{head}\n{tail.partition(';')[0]}", y="η: mean, min to max")
    objective.set_yscale("log")
    dress(objective, "the two phases: objective", y="objective")
    dress(correct, "the two phases: accuracy", y="accuracy (%)")
