"""AGD at every width and depth, and the two phases of its learning rate."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

from autogd.report.figures import series_styles
from autogd.report.reproduction.curves import NAMES, dress, empty, line
from autogd.report.reproduction.phases import draw_phases, memorised, phases
from autogd.report.reproduction.reading import Runs, budget, final, moving, percent
from autogd.report.reproduction.verdicts import OURS, Claim, Comparison, compare, verdict
from autogd.training import Run

__all__ = ["claims", "draw", "grid", "second_row"]

PHASES = "width-depth/phases"


def draw(runs: Runs) -> Any:
    """The grid (two tables of accuracies, η over the epochs), then the two phases; for AGD, then for StochasticAGD.

    StochasticAGD has only the networks of the grid that it was run on.
    """
    some = next(iter(grid(runs).values()), None)
    said = budget(some.config(), width=True, depth=True) if some else ""
    what = "Networks of every width and depth: AGD above, our own StochasticAGD below"
    mine, every = len(grid(runs, OURS)), len(grid(runs))
    few = f"; ours on {mine} of the {every} networks" if mine < every else ""
    figure = empty(13, 15.4, what, f"the grid: {said}{few}")
    panels = figure.subplots(4, 3)
    panels[2][2].sharey(panels[0][2])
    for above, below in zip(panels[1], panels[3], strict=True):
        below.sharex(above)
        below.sharey(above)
    for row, ours, phases_run in ((0, "agd", PHASES), (2, OURS, f"{PHASES}-{OURS}")):
        _cells(panels[row], runs, ours)
        if phases_run in runs:
            draw_phases(panels[row + 1], runs[phases_run], ours)
    return figure


def _cells(panels: Any, runs: Runs, ours: str) -> None:
    cells = grid(runs, ours)
    places, shades = list(grid(runs)), {}
    for what in ("train_accuracy", "test_accuracy"):
        ends = [100 * final(run, what) for each in NAMES for run in grid(runs, each).values()]
        known = [end for end in ends if not math.isnan(end)]
        shades[what] = (min(known), max(known)) if known else (0.0, 100.0)
    _table(panels[0], cells, "train_accuracy", places, shades["train_accuracy"], ours)
    _table(panels[1], cells, "test_accuracy", places, shades["test_accuracy"], ours)
    widest = max((width for depth, width in cells if depth == max(d for d, _ in cells)), default=0)
    depths = sorted({depth for depth, _ in places})  # one style per depth in both rows
    for (depth, _), run in ((key, run) for key, run in cells.items() if key[1] == widest):
        style = series_styles(len(depths))[depths.index(depth)]
        line(panels[2], run, "learning_rate_mean", label=f"depth {depth}", color=style["color"], ls=style["linestyle"])
    dress(panels[2], f"{NAMES[ours]}: mean η of each epoch, width {widest}", y="η")


def grid(runs: Runs, ours: str = "agd") -> dict[tuple[int, int], Run]:
    """The runs of AGD, or of StochasticAGD, by depth and width.

    >>> grid({})
    {}
    """
    found = {}
    for name, run in runs.items():
        if name.startswith("width-depth/depth"):
            config = run.config()
            if config.optimiser == ours:
                found[config.depth or 0, config.width or 0] = run
    return dict(sorted(found.items()))


def claims(runs: Runs) -> list[Claim]:
    """Claims about the best and the worst, the order by width and by depth, and the two phases."""
    cells = grid(runs)
    small = moving(*cells.values(), what="objective")
    test = {key: final(run, "test_accuracy") for key, run in cells.items()}
    first = next(iter(cells.values())).config()
    said = budget(first, width=True, depth=True)
    longer = {key: run.config().epochs for key, run in cells.items() if run.config().epochs != first.epochs}
    everywhere = said + "".join(f"; depth {d}, width {w}: {epochs} epochs" for (d, w), epochs in longer.items())
    # compare only networks with the same budget
    train = {key: final(run, "objective") for key, run in cells.items() if key not in longer}
    top, low = max(test, key=lambda k: test[k]), min(test, key=lambda k: test[k])
    rows = [[train[k] for k in sorted(train) if k[0] == depth] for depth in sorted({d for d, _ in train})]
    wider = [a > b for row in rows for a, b in pairwise(row)]
    found = [
        Claim(
            "the best test accuracy of the grid, and where",
            "63.7% (depth 4, width 2048)",
            f"{percent(test[top])} (depth {top[0]}, width {top[1]})",
            verdict(abs(test[top] - 0.637) < 0.02, top == (4, max(w for _, w in test)), moving(cells[top])),
            everywhere,
        ),
        Claim(
            "the worst test accuracy of the grid, and where",
            "42.55% (depth 2, width 64)",
            f"{percent(test[low])} (depth {low[0]}, width {low[1]})",
            verdict(low == (2, 64) and abs(test[low] - 0.4255) < 0.02, low == (2, 64), moving(cells[low])),
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
                verdict(full, rises or falls, moving(runs[PHASES], what="train_accuracy")),
                budget(runs[PHASES].config()),
            )
        )
    return found


def second_row(runs: Runs) -> list[Comparison]:
    """StochasticAGD on its networks of the grid, and on the two phases.

    >>> second_row({})
    []
    """
    agd, mine = grid(runs), grid(runs, OURS)
    found = [
        compare(f"depth {depth}, width {width}", what, agd[depth, width], run)
        for what in ("objective", "test_accuracy")
        for (depth, width), run in mine.items()
    ]
    if f"{PHASES}-{OURS}" in runs:
        pair = runs[PHASES], runs[f"{PHASES}-{OURS}"]
        widths = [run.config().width for run in pair]
        said = f" (AGD at width {widths[0]}, ours at {widths[1]})" if widths[0] != widths[1] else ""
        row = memorised(*pair)
        found.append(replace(row, quantity=row.quantity + said))
    return found


def _epochs(count: float) -> str:
    return "never" if math.isnan(count) else f"{count:.0f} epochs"


def _table(
    axes: Any,
    cells: dict[tuple[int, int], Run],
    what: str,
    places: list[tuple[int, int]],
    shades: tuple[float, float],
    ours: str,
) -> None:
    """Accuracies by depth and width; both rows of the figure share rows, columns and shades."""
    depths, widths = sorted({depth for depth, _ in places}), sorted({width for _, width in places})
    values = [[math.nan] * len(widths) for _ in depths]
    for (depth, width), run in cells.items():
        values[depths.index(depth)][widths.index(width)] = 100 * final(run, what)
    axes.imshow(values, cmap="viridis", aspect="auto", vmin=shades[0], vmax=shades[1])
    middle = sum(shades) / 2
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            text, colour = ("not run", "black") if math.isnan(value) else (f"{value:.1f}", "white")
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color="black" if value > middle else colour)
    axes.set_xticks(range(len(widths)), widths)
    axes.set_yticks(range(len(depths)), depths)
    name, _, _ = what.partition("_")
    said = "" if name == "train" else "\nthe paper's AGD: 63.7 at 4, 2048 and 42.55 at 2, 64"
    dress(axes, f"{NAMES[ours]}: {name} accuracy (%){said}", x="width", y="depth")
    axes.grid(False)
