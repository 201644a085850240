"""AGD at several batch sizes: every step of the first epoch above, epoch by epoch below."""

from dataclasses import dataclass
from typing import Any

from autogd.report.reproduction.curves import NAMES, dress, empty, line, mark
from autogd.report.reproduction.reading import Runs, budget, final, moving, point
from autogd.report.reproduction.verdicts import OURS, Claim, Comparison, compare, verdict
from autogd.training import Run

__all__ = ["Dip", "claims", "dip", "draw", "second_row"]

PAPER = (55.0, 58.0, 60.0, 59.8)  # test accuracies by batch size, from 32 to 4,096
SHADES = {
    "agd": ("#9ecae1", "#4292c6", "#08519c", "#08214d"),
    "agd-stochastic": ("#a1d99b", "#41ab5d", "#00733c", "#00331b"),
}


def draw(runs: Runs) -> Any:
    """Two rows of three panels: η, objective and accuracy; and the same two with StochasticAGD."""
    ordered = _ordered(runs)
    said = budget(next(iter(ordered.values())).config(), batch_size=True) if ordered else ""
    left_out = [str(size) for size in ordered if size not in _ordered(runs, OURS)]
    who = "AGD above, our own StochasticAGD below" + (f" (not at {', '.join(left_out)})" if left_out else "")
    figure = empty(13, 13.4, f"Batch sizes: every step of the first epoch, then every epoch; {who}", said)
    panels = figure.subplots(4, 3)
    for above, below in zip(panels[:2].flat, panels[2:].flat, strict=True):
        below.sharey(above)
    _rows(panels[:2], runs, "agd")
    _rows(panels[2:], runs, OURS)
    panels[1][2].set_ylim(0, max(68, panels[1][2].get_ylim()[1]))
    return figure


def _rows(panels: Any, runs: Runs, ours: str) -> None:
    shades = dict(zip(_ordered(runs), SHADES[ours], strict=False))
    for size, run in _ordered(runs, ours).items():
        colour = shades[size]
        steps = run.steps() or {}
        for axes, name, factor in zip(panels[0], ("learning_rate", "objective", "accuracy"), (1, 1, 100), strict=True):
            values = [factor * value for value in steps.get(name, [])]
            places = [(i + 1) / len(values) for i in range(len(values))]
            marker = "o" if len(values) < 20 else None
            axes.plot(places, values, color=colour, lw=0.9, marker=marker, ms=2.5, label=f"batch {size}")
        line(panels[1][0], run, "learning_rate_mean", color=colour, label=f"batch {size}")
        line(panels[1][1], run, "objective", color=colour, label=f"batch {size}")
        line(panels[1][2], run, "test_accuracy", 100, color=colour, label=f"batch {size}")
    x = "share of the first epoch"
    dress(panels[0][0], f"{NAMES[ours]}: learning rate η, every step", x, "η")
    dress(panels[0][1], f"{NAMES[ours]}: objective of each batch", x, "objective")
    dress(panels[0][2], f"{NAMES[ours]}: train accuracy of each batch", x, "accuracy (%)")
    dress(panels[1][0], f"{NAMES[ours]}: learning rate η, mean of each epoch", y="η")
    dress(panels[1][1], f"{NAMES[ours]}: objective, mean of each epoch", y="objective")
    mark(panels[1][2], PAPER[2], "the paper: 60.0% at best, 55.0% at batch 32")
    mark(panels[1][2], PAPER[0], "")
    dress(panels[1][2], f"{NAMES[ours]}: test accuracy", y="accuracy (%)")


@dataclass(frozen=True)
class Dip:
    """How far η falls below its first value, as a fraction of it; after how many steps; and whether it recovers."""

    fall: float
    step: int
    recovered: bool


def dip(run: Run) -> Dip:
    """The dip of a run's η: from every step of the first epoch, and from the minimum of each later epoch.

    >>> from pathlib import Path
    >>> dip(Run(Path("nowhere"))).fall
    0.0
    """
    rates, rows = (run.steps() or {}).get("learning_rate", []), run.metrics()
    if not rates:
        return Dip(0.0, 0, False)
    lows = [*((rate, i + 1) for i, rate in enumerate(rates)), *((r["learning_rate_min"], r["step"]) for r in rows[1:])]
    low, step = min(lows)
    recovered = step < rows[-1]["step"] and rows[-1]["learning_rate_mean"] > 1.1 * low
    return Dip(1 - low / rates[0], step, recovered)


def claims(runs: Runs) -> list[Claim]:
    """Claims about the accuracies, the dip, and the metrics of every step."""
    ordered = _ordered(runs)
    small = moving(*ordered.values())
    said = budget(next(iter(ordered.values())).config(), batch_size=True)
    test = [final(run, "test_accuracy") for run in ordered.values()]
    near = len(test) == len(PAPER) and all(abs(100 * a - b) < 2 for a, b in zip(test, PAPER, strict=True))
    dips = {size: dip(run) for size, run in ordered.items()}
    falls = [each.fall for each in dips.values()]
    recovered = all(each.recovered for each in dips.values())
    words = [f"{100 * each.fall:.0f}% (batch {size}, {_after(each)})" for size, each in dips.items()]
    steps = {size: len((run.steps() or {}).get("objective", [])) for size, run in ordered.items()}
    return [
        Claim(
            f"test accuracy at batches {', '.join(map(str, ordered))}: larger is mostly better",
            ", ".join(f"{value}%" for value in PAPER) + " (32 … 4096)",
            ", ".join(point(run) for run in ordered.values()),
            verdict(near, test == sorted(test), small),
            said,
        ),
        Claim(
            "η dips at first, and more at larger batches",
            "dips, more at larger batches",
            f"below its first value by {', '.join(words)}",
            verdict(recovered and min(falls) > 0.02 and falls == sorted(falls), max(falls) > 0.02, small=not recovered),
            said,
        ),
        Claim(
            "metrics of every step in the first epoch",
            "shown",
            ", ".join(f"{count} steps (batch {size})" for size, count in steps.items()),
            verdict(all(steps.values()), small=False),
            said,
        ),
    ]


def second_row(runs: Runs) -> list[Comparison]:
    """StochasticAGD at each batch size.

    >>> second_row({})
    []
    """
    agd = _ordered(runs)
    return [
        compare(f"batch {size}", what, agd[size], run)
        for what in ("objective", "test_accuracy")
        for size, run in _ordered(runs, OURS).items()
    ]


def _after(dip: Dip) -> str:
    return f"by step {dip.step}" + ("" if dip.recovered else ", not yet recovered")


def _ordered(runs: Runs, ours: str = "agd") -> dict[int, Run]:
    configs = {name: run.config() for name, run in runs.items() if name.startswith("batch-size/")}
    found = {config.batch_size: runs[name] for name, config in configs.items() if config.optimiser == ours}
    return dict(sorted(found.items()))
