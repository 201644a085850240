"""Four networks: AGD's learning rate and objective above, accuracies below; the tuned rival in faint lines."""

from typing import Any

from autogd.report.reproduction.curves import COLOURS, NAMES, accuracy, band, below, dress, empty, line, mark, wrapped
from autogd.report.reproduction.reading import Runs, best, budget, final, moving, point, tuning
from autogd.report.reproduction.verdicts import OURS, Claim, Comparison, compare, tuned, verdict
from autogd.training import Run

__all__ = ["NETWORKS", "claim", "claims", "draw", "second_row"]

# prefix of the runs, name, rival, the paper's test accuracies of AGD and of the rival
NETWORKS = (
    ("architectures/fcn16", "FCN, 16 layers", "adam", 52.7, 53.5),
    ("showcase/resnet18", "ResNet-18", "adam", 91.2, 92.9),
    ("architectures/vgg16", "VGG-16", "adam", 67.4, 69.7),
    ("showcase/resnet50", "ResNet-50", "sgd", 65.5, None),
)
_SETS = ("CIFAR-10", "CIFAR-10", "CIFAR-100", "ImageNet")


def draw(runs: Runs) -> Any:
    """Two rows of four panels, as in the paper, and the same two with StochasticAGD instead of AGD."""
    what = "learning rate η (mean, min to max) and objective, then accuracy: train solid, test dotted"
    said = "first and second row: AGD (solid) and the tuned rival (faint); third and fourth: our own StochasticAGD"
    figure = empty(15, 12.8, said, what)
    panels = figure.subplots(4, 4)
    objectives = [[axes.twinx() for axes in panels[row]] for row in (0, 2)]
    for first, second in ((panels[0], panels[2]), (panels[1], panels[3]), objectives):
        for above, under in zip(first, second, strict=True):
            under.sharey(above)
    _rows(panels[:2], objectives[0], runs, "agd")
    _rows(panels[2:], objectives[1], runs, OURS)
    for axes in panels[0]:
        axes.set_ylim(bottom=0)  # after both rows are drawn, since it fixes the upper limit too
    return figure


def _rows(panels: Any, objectives: Any, runs: Runs, name: str) -> None:
    for i, (prefix, _, rival, ours, theirs) in enumerate(NETWORKS):
        top, bottom = panels[0][i], panels[1][i]
        agd, pair = runs.get(f"{prefix}-{name}"), best(runs, f"{prefix}-{rival}")
        if agd is None:
            continue
        band(top, agd, "learning_rate", COLOURS[name], f"η, {NAMES[name]}")
        other = objectives[i]
        other.tick_params(labelsize=7.5)
        line(other, agd, "objective", color="black", ls="--", label="objective (right)")
        if pair:
            line(other, pair[1], "objective", color=COLOURS[rival], ls="--", alpha=0.45, label=_rival(rival, pair))
        other.spines["top"].set_visible(False)
        if i == 3:
            other.set_ylabel("objective", fontsize=8)
        dress(top, wrapped(budget(agd.config())), y="η" if i == 0 else "", legend=False, wrap=30)
        handles = [
            h + o for h, o in zip(top.get_legend_handles_labels(), other.get_legend_handles_labels(), strict=True)
        ]
        below(other, *handles)
        accuracy(bottom, agd, COLOURS[name], NAMES[name])
        if pair:
            accuracy(bottom, pair[1], COLOURS[rival], _rival(rival, pair), alpha=0.5)
        mark(bottom, ours, f"paper: AGD {ours}%, {_SETS[i]}", COLOURS["agd"], above=False)
        if theirs is not None:
            mark(bottom, theirs, f"paper: Adam {theirs}%", COLOURS[rival])
        # both rows share the axis: no curve of either may leave it
        bottom.set_ylim(0, max(ours + 8, (theirs or 0) + 8, bottom.dataLim.y1 + 8, bottom.get_ylim()[1]))
        dress(bottom, "", y="accuracy (%)" if i == 0 else "")


def second_row(runs: Runs) -> list[Comparison]:
    """StochasticAGD on the four networks.

    >>> second_row({})
    []
    """
    return [
        compare(title, what, runs[f"{prefix}-agd"], runs[f"{prefix}-{OURS}"], tuned(runs, prefix, [rival]))
        for prefix, title, rival, _, _ in NETWORKS
        if f"{prefix}-{OURS}" in runs
        for what in ("objective", "test_accuracy")
    ]


def claims(runs: Runs) -> list[Claim]:
    """One claim per network."""
    return [claim(runs, prefix) for prefix, *_ in NETWORKS]


def claim(runs: Runs, prefix: str) -> Claim:
    """The claim about the network whose runs have this prefix.

    AGD must not end more than two points below the paper's accuracy, and the rival's lead over AGD must equal the
    paper's within two points. On another data set only the lead is judged.
    """
    (_, title, rival, ours, theirs), data = next(
        pair for pair in zip(NETWORKS, _SETS, strict=True) if pair[0][0] == prefix
    )
    agd, pair = runs[f"{prefix}-agd"], best(runs, f"{prefix}-{rival}")
    words = f"AGD {point(agd)}" + (f", {_rival(rival, pair)} {point(pair[1])}" if pair else "")
    stand_in = not budget(agd.config()).split("; ")[1].startswith(f"{data},")
    reached = not stand_in and 100 * final(agd, "test_accuracy") > ours - 2
    lead = 100 * (final(pair[1], "test_accuracy") - final(agd, "test_accuracy")) if pair else 100.0
    alike = theirs is not None and abs(lead - (theirs - ours)) < 2
    return Claim(
        f"{title} on {data}: test accuracy",
        f"AGD {ours}%" + (f", Adam {theirs}%" if theirs else ""),
        words + (", on a stand-in" if stand_in else ""),
        verdict(reached and (alike or theirs is None), reached or alike, small=stand_in or moving(agd)),
        budget(agd.config()) + tuning(runs, f"{prefix}-{rival}"),
    )


def _rival(name: str, pair: tuple[float, Run]) -> str:
    return f"{'Adam' if name == 'adam' else 'SGD'} {pair[0]:g}"
