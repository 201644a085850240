"""The two phases of the learning rate, on a network that memorises its samples."""

import math
from typing import Any

from autogd.report.reproduction.curves import COLOURS, NAMES, accuracy, band, dress, line
from autogd.report.reproduction.reading import budget
from autogd.report.reproduction.verdicts import Comparison
from autogd.training import Run

__all__ = ["draw_phases", "memorised", "phases"]


def phases(run: Run) -> dict[str, float] | None:
    """η in the first epoch, at its minimum before the maximum, at the maximum and at the end; accuracies; speeds.

    η may dip in the first epochs, as the paper shows for batch sizes; the slow rise begins after that.

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


def memorised(agd: Run, ours: Run) -> Comparison:
    """The epoch in which each reaches 99% train accuracy (sooner is better), and the course of its η.

    >>> from pathlib import Path
    >>> memorised(Run(Path("nowhere")), Run(Path("nowhere"))).verdict
    'level with AGD'
    """
    first, second = ((phases(run) or {}).get("known", math.nan) for run in (agd, ours))
    a, b = (math.inf if math.isnan(epoch) else epoch for epoch in (first, second))
    word = "level with AGD" if a == b else "ahead of AGD" if b < a else "behind AGD"
    return Comparison("the two phases: train accuracy passes 99%", _course(agd), "–", _course(ours), word)


def _course(run: Run) -> str:
    seen = phases(run)
    if seen is None:
        return "–"
    known = "never" if math.isnan(seen["known"]) else f"in epoch {seen['known']:.0f}"
    top = f"{seen['top']:.3f} in epoch {seen['epoch']:.0f}, " if seen["epoch"] > 1 else ""
    rates = f"{seen['start']:.3f} in epoch 1, {top}{seen['end']:.3f} at the end"
    return f"{known} of {len(run.metrics())}; η {rates}"


def draw_phases(axes: Any, run: Run, ours: str) -> None:
    """Learning rate, objective and accuracy of a run in three panels.

    >>> from pathlib import Path
    >>> from autogd.report.reproduction.curves import empty
    >>> draw_phases(empty(6, 2, "", "").subplots(1, 3), Run(Path("nowhere")), "agd")
    """
    if not run.metrics():
        return
    rate, objective, correct = axes
    band(rate, run, "learning_rate", COLOURS[ours])
    line(objective, run, "objective", color=COLOURS[ours])
    accuracy(correct, run, COLOURS[ours], f"{NAMES[ours]}: train solid, test dotted")
    seen = phases(run)
    for each in axes:
        if seen and seen["known"] == seen["known"]:
            each.axvline(seen["known"], color="black", lw=0.8, ls=(0, (6, 3)), label="train accuracy 99%")
    head, _, tail = budget(run.config()).partition("; ")
    said = f"{head}\n{tail.partition(';')[0]}"
    dress(rate, f"{NAMES[ours]}, the two phases: learning rate η\n{said}", y="η: mean, min to max")
    objective.set_yscale("log")
    dress(objective, f"{NAMES[ours]}, the two phases: objective", y="objective")
    dress(correct, f"{NAMES[ours]}, the two phases: accuracy", y="accuracy (%)")
