"""AGD against tuned Adam and tuned SGD on eight layers: objective, accuracy, relative update size, and the grids."""

from typing import Any

from autogd.report.reproduction.curves import COLOURS, NAMES, accuracy, band, dress, empty, line
from autogd.report.reproduction.reading import Runs, best, budget, final, moving, over_grid
from autogd.report.reproduction.showcase import grid_panel
from autogd.report.reproduction.verdicts import OURS, Claim, Comparison, compare, tuned, verdict
from autogd.training import Run

__all__ = ["claims", "draw", "second_row"]

PREFIX = "versus-tuned/fcn8"
RIVALS = {"adam": "Adam", "sgd": "SGD", "sgd-plain": "SGD, no momentum"}


def draw(runs: Runs) -> Any:
    """Four panels: the paper's three, and the grids of learning rates; the same below with StochasticAGD."""
    agd = runs.get(f"{PREFIX}-agd")
    what = "Rivals at their best rates, and, above, AGD; below, on the same axes, our own StochasticAGD"
    figure = empty(9.2, 14, what, budget(agd.config()) if agd else "")
    panels = figure.subplots(4, 2)
    for above, below in zip(panels[:2].flat, panels[2:].flat, strict=True):
        below.sharey(above)
    for rows, ours in zip((panels[:2], panels[2:]), NAMES, strict=True):
        _rows(rows.flat, runs, ours)
    return figure


def _rows(panels: Any, runs: Runs, ours: str) -> None:
    objective, correct, size, grid = panels
    for name, label, run in _contenders(runs, ours):
        line(objective, run, "objective", color=COLOURS[name], label=label)
        accuracy(correct, run, COLOURS[name], label)
        band(size, run, "update_size", COLOURS[name], label)
    size.set_yscale("log")
    grid_panel(grid, runs, PREFIX, tuple(RIVALS), "objective", ours)
    grid.axvline(1e-4, color=COLOURS["adam"], lw=0.8, ls=(0, (6, 3)), label="the paper's best Adam")
    grid.axvline(1e-1, color=COLOURS["sgd"], lw=0.8, ls=(0, (6, 3)), label="the paper's best SGD")
    dress(objective, f"{NAMES[ours]}: training objective", y="objective")
    dress(correct, f"{NAMES[ours]}: accuracy, train solid, test dotted", y="accuracy (%)", wrap=60)
    dress(size, f"{NAMES[ours]}: relative update size, mean, min to max", y="‖ΔW‖/‖W‖, mean over layers", wrap=60)
    dress(
        grid,
        f"{NAMES[ours]} and the grids: last objective (1.1: or above)",
        x="learning rate",
        y="objective",
        wrap=60,
    )


def second_row(runs: Runs) -> list[Comparison]:
    """StochasticAGD on the eight layers.

    >>> second_row({})
    []
    """
    if f"{PREFIX}-{OURS}" not in runs:
        return []
    agd, ours, rivals = runs[f"{PREFIX}-agd"], runs[f"{PREFIX}-{OURS}"], tuned(runs, PREFIX, tuple(RIVALS))
    return [
        compare("8-layer FCN", what, agd, ours, rivals) for what in ("objective", "train_accuracy", "test_accuracy")
    ]


def claims(runs: Runs) -> list[Claim]:
    """Claims about the best rates and the order of the objectives."""
    small = moving(*(run for _, _, run in _contenders(runs)), what="objective")
    said = budget(runs[f"{PREFIX}-agd"].config())
    found = []
    for name, title, rate in (
        ("adam", "Adam", 1e-4),
        ("sgd", "SGD", 1e-1),
        ("sgd-plain", "SGD without momentum", 1e-1),
    ):
        pair = best(runs, f"{PREFIX}-{name}")
        grid = over_grid(runs, f"{PREFIX}-{name}")
        words = ", ".join(f"{_short(final(run, 'objective'))} at {each:g}" for each, run in grid.items())
        ours = f"{pair[0]:g} (objective: {words})" if pair else "every rate diverged"
        good = pair is not None and pair[0] == rate
        found.append(
            Claim(f"the best rate of {title} over the grid", f"{rate:g}", ours, verdict(good, small=small), said)
        )
    ends = {label: final(run, "objective") for _, label, run in _contenders(runs)}
    sgd = [value for label, value in ends.items() if label.startswith("SGD")]
    others = [value for label, value in ends.items() if not label.startswith("SGD")]
    found.append(
        Claim(
            "SGD ends with the highest objective",
            "AGD and Adam lower than SGD",
            ", ".join(f"{label} {value:.3f}" for label, value in ends.items()),
            verdict(bool(sgd) and min(sgd) > max(others), bool(sgd) and max(sgd) > max(others), small=small),
            said,
        )
    )
    return found


def _short(objective: float) -> str:
    return f"{objective:.3f}" if objective < 100 else f"{objective:.0e}"


def _contenders(runs: Runs, ours: str = "agd") -> list[tuple[str, str, Run]]:
    """AGD or StochasticAGD, and every rival at its best rate: name, label, run."""
    found = [(ours, NAMES[ours], runs[f"{PREFIX}-{ours}"])] if f"{PREFIX}-{ours}" in runs else []
    for name, title in RIVALS.items():
        pair = best(runs, f"{PREFIX}-{name}")
        if pair:
            found.append((name, f"{title} {pair[0]:g}", pair[1]))
    return found
