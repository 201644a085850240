"""AGD beside tuned Adam and tuned SGD on eight layers: objective, accuracy, relative update size, and the grids."""

from typing import Any

from autogd.experiments.preset import Scale
from autogd.report.reproduction.claims import Claim, verdict
from autogd.report.reproduction.curves import COLOURS, accuracy, band, dress, empty, line
from autogd.report.reproduction.reading import Runs, best, budget, final, over_grid
from autogd.report.reproduction.showcase import grid_panel
from autogd.training import Run

__all__ = ["claims", "draw"]

PREFIX = "versus-tuned/fcn8"
RIVALS = {"adam": "Adam", "sgd": "SGD", "sgd-plain": "SGD, no momentum"}


def draw(runs: Runs, scale: Scale) -> Any:
    """Four panels: the paper's three, and the grids that they were chosen from."""
    agd = runs.get(f"{PREFIX}-agd")
    figure = empty(15, 4.2, "AGD and its rivals, each at its best rate", budget(agd.config()) if agd else "")
    objective, correct, size, grid = figure.subplots(1, 4)
    for name, label, run in _contenders(runs):
        line(objective, run, "objective", color=COLOURS[name], label=label)
        accuracy(correct, run, COLOURS[name], label)
        band(size, run, "update_size", COLOURS[name], label)
    size.set_yscale("log")
    grid_panel(grid, runs, PREFIX, tuple(RIVALS), "objective")
    grid.axvline(1e-4, color=COLOURS["adam"], lw=0.8, ls=(0, (6, 3)), label="the paper's best Adam")
    grid.axvline(1e-1, color=COLOURS["sgd"], lw=0.8, ls=(0, (6, 3)), label="the paper's best SGD")
    dress(objective, "training objective", y="objective")
    dress(correct, "accuracy: train solid, test dotted", y="accuracy (%)")
    dress(size, "relative update size: mean, min to max", y="‖ΔW‖/‖W‖, mean over layers")
    dress(grid, "the grids: objective of the last epoch (1.1: or above)", x="learning rate", y="objective")
    return figure


def claims(runs: Runs, scale: Scale) -> list[Claim]:
    """The best rates, and the order of the objectives."""
    small = scale != "paper"
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


def _contenders(runs: Runs) -> list[tuple[str, str, Run]]:
    """AGD and every rival at its best: name, label, run."""
    found = [("agd", "AGD", runs[f"{PREFIX}-agd"])] if f"{PREFIX}-agd" in runs else []
    for name, title in RIVALS.items():
        pair = best(runs, f"{PREFIX}-{name}")
        if pair:
            found.append((name, f"{title} {pair[0]:g}", pair[1]))
    return found
