"""The showcase: a deep network at defaults, a residual one against grids, and the large one."""

from typing import Any

from autogd.report.reproduction.curves import COLOURS, MARKERS, NAMES, accuracy, dress, empty, line, mark, wrapped
from autogd.report.reproduction.reading import Runs, best, budget, final, moving, over_grid, point, tuning
from autogd.report.reproduction.verdicts import OURS, Claim, Comparison, compare, tuned, verdict

__all__ = ["claims", "deep", "draw", "grid_panel", "second_row"]

CEILING = 1.1  # higher objectives are drawn at this value; a network that outputs zero has 1
MARGIN = 0.20  # AGD trains and a rival fails if their train accuracies are this far apart


def draw(runs: Runs) -> Any:
    """Three panels, as in the paper's first figure; the same with StochasticAGD; and ResNet-18 over the epochs."""
    what = "AGD has nothing to set; rivals at their defaults (left, right) or over a grid (middle)"
    said = "first row: AGD; second, on the same axes: our own StochasticAGD; third: all of them on ResNet-18"
    figure = empty(13, 12.6, what, said)
    panels = figure.subplots(3, 3)
    for above, below in zip(panels[0], panels[1], strict=True):
        below.sharey(above)
    for row, ours in zip(panels, NAMES, strict=False):
        _row(row, runs, ours)
    panels[0][0].set_ylim(bottom=0)  # after both rows are drawn, since it fixes the upper limit too
    _over_epochs(panels[2], runs)
    return figure


def _over_epochs(panels: Any, runs: Runs) -> None:
    """ResNet-18: AGD, StochasticAGD, and Adam and SGD at their best rates."""
    prefix = "showcase/resnet18"
    lines = [(name, label, runs[f"{prefix}-{name}"]) for name, label in NAMES.items() if f"{prefix}-{name}" in runs]
    for name, label in (("adam", "Adam"), ("sgd", "SGD")):
        pair = best(runs, f"{prefix}-{name}")
        lines += [(name, f"{label} {pair[0]:g}, its best rate", pair[1])] if pair else []
    for axes, what, unit in zip(
        panels, ("objective", "train_accuracy", "test_accuracy"), ("", " (%)", " (%)"), strict=True
    ):
        for name, label, run in lines:
            line(axes, run, what, 100 if unit else 1, color=COLOURS[name], label=label)
        dress(axes, f"ResNet-18: {what.replace('_', ' ')}", y=what.partition("_")[2] + unit if unit else what)
    panels[2].sharey(panels[1])
    mark(panels[2], 91.2, "the paper: AGD 91.2%, 200 epochs")
    panels[2].set_ylim(top=100)


def _row(panels: Any, runs: Runs, ours: str) -> None:
    left, middle, right = panels
    rivals = {"adam-0.001": "Adam 0.001", "sgd-0.1": "SGD 0.1", "sgd-plain-0.1": "SGD 0.1, no momentum"}
    for name, label in {ours: NAMES[ours], **rivals}.items():
        key = f"showcase/fcn32-{name}"
        if key in runs:
            style = {"ls": (0, (4, 3))} if "plain" in name else {}
            accuracy(left, runs[key], COLOURS[runs[key].config().optimiser], label, **style)
    dress(left, "(a) 32 layers: train solid, test dotted\n" + _said(runs, "fcn32", ours), y="accuracy (%)")
    grid_panel(middle, runs, "showcase/resnet18", ("adam", "sgd"), ours=ours)
    said = "(b) ResNet-18, last epoch (the paper's AGD: 91.2%, Adam 92.9%)"
    dress(middle, f"{said}\n{_said(runs, 'resnet18', ours)}", x="learning rate", y="accuracy (%)")
    for name, label in {ours: NAMES[ours], "sgd-0.1": "SGD 0.1"}.items():
        key = f"showcase/resnet50-{name}"
        if key in runs:
            accuracy(right, runs[key], COLOURS[runs[key].config().optimiser], label)
    mark(right, 65.5, "the paper: AGD 65.5% test (ImageNet, 350 epochs)")
    right.set_ylim(0, 75)
    dress(right, "(c) ResNet-50: train solid, test dotted\n" + _said(runs, "resnet50", ours), y="accuracy (%)")


def grid_panel(
    axes: Any, runs: Runs, prefix: str, rivals: tuple[str, ...], what: str = "accuracy", ours: str = "agd"
) -> None:
    """The final accuracy of each rival by learning rate; a horizontal line for AGD or StochasticAGD, which have none.

    >>> grid_panel(empty(2, 2, "", "").subplots(), {}, "showcase/resnet18", ("adam",))
    """
    kinds = {"accuracy": (("train_accuracy", "-"), ("test_accuracy", ":")), "objective": (("objective", "-"),)}[what]
    factor, ceiling = (100.0, 100.0) if what == "accuracy" else (1.0, CEILING)
    titles = {"adam": "Adam", "sgd": "SGD", "sgd-plain": "SGD, no momentum"}
    if f"{prefix}-{ours}" in runs:
        for name, style in kinds:
            label = f"{NAMES[ours]}, no learning rate" if style == "-" else None
            axes.axhline(factor * final(runs[f"{prefix}-{ours}"], name), color=COLOURS[ours], ls=style, label=label)
    for rival in rivals:
        grid = over_grid(runs, f"{prefix}-{rival}")
        for name, style in kinds:
            values = [min(factor * final(run, name), ceiling) for run in grid.values()]
            label = titles[rival] + tuning(runs, f"{prefix}-{rival}") if style == "-" else None
            drawn = {"color": COLOURS[rival], "ls": style, "marker": MARKERS[COLOURS[rival]], "label": label}
            axes.plot(list(grid), values, ms=3.5, lw=1.6, **drawn)
            long = best(runs, f"{prefix}-{rival}") if tuning(runs, f"{prefix}-{rival}") else None
            if long:
                end, face = min(factor * final(long[1], name), ceiling), COLOURS[rival] if style == "-" else "white"
                axes.plot([long[0]], [end], color=COLOURS[rival], marker="*", ms=9, mfc=face, ls="")
    axes.set_xscale("log")


def claims(runs: Runs) -> list[Claim]:
    """The three claims of the paper's first figure."""
    return [deep(runs), _residual(runs), _large(runs)]


def deep(runs: Runs) -> Claim:
    """The claim about the 32 layers."""
    agd, *rivals = (runs[f"showcase/fcn32-{n}"] for n in ("agd", "adam-0.001", "sgd-0.1", "sgd-plain-0.1"))
    least = min(final(agd, "train_accuracy") - final(run, "train_accuracy") for run in rivals)
    words = [point(run, "train_accuracy") for run in (agd, *rivals)]
    return Claim(
        "32-layer FCN on CIFAR-10: AGD trains, Adam and SGD at their defaults fail",
        "AGD trains, both rivals fail",
        f"train accuracy: AGD {words[0]}, Adam {words[1]}, SGD {words[2]} (without momentum {words[3]})",
        verdict(least >= MARGIN, small=moving(agd, what="train_accuracy")),
        budget(agd.config()),
    )


def _residual(runs: Runs) -> Claim:
    agd = runs["showcase/resnet18-agd"]
    tuned = {title: best(runs, f"showcase/resnet18-{title.lower()}") for title in ("Adam", "SGD")}
    pairs = {title: pair for title, pair in tuned.items() if pair}
    words = [f"{title} {point(pair[1])} at {pair[0]:g}" for title, pair in pairs.items()]
    gap = max(final(pair[1], "test_accuracy") for pair in pairs.values()) - final(agd, "test_accuracy")
    return Claim(
        "ResNet-18: AGD is comparable to the best of the grid",
        "91.2% (Adam 92.9%)",
        f"test accuracy: {', '.join([f'AGD {point(agd)}', *words])}",
        verdict(gap <= 0.03, gap <= 0.06, small=moving(agd)),
        budget(agd.config()) + tuning(runs, "showcase/resnet18-adam"),
    )


def _large(runs: Runs) -> Claim:
    agd, sgd = runs["showcase/resnet50-agd"], runs["showcase/resnet50-sgd-0.1"]
    stand_in = agd.config().data != "imagenet"
    return Claim(
        "ResNet-50 on ImageNet: top-1 test accuracy after 350 epochs",
        "65.5%",
        f"AGD {point(agd)}, SGD 0.1 {point(sgd)}" + (", on a stand-in" if stand_in else ""),
        verdict(not stand_in and abs(final(agd, "test_accuracy") - 0.655) < 0.02, small=stand_in or moving(agd)),
        budget(agd.config()),
    )


def second_row(runs: Runs) -> list[Comparison]:
    """StochasticAGD on the three networks.

    >>> second_row({})
    []
    """
    found = []
    for net, title, what, rivals in (
        ("fcn32", "(a) 32-layer FCN", "train_accuracy", ("adam", "sgd", "sgd-plain")),
        ("fcn32", "(a) 32-layer FCN", "test_accuracy", ("adam", "sgd", "sgd-plain")),
        ("resnet18", "(b) ResNet-18", "test_accuracy", ("adam", "sgd")),
        ("resnet50", "(c) ResNet-50", "test_accuracy", ("sgd",)),
    ):
        prefix = f"showcase/{net}"
        if f"{prefix}-{OURS}" in runs:
            agd, ours = runs[f"{prefix}-agd"], runs[f"{prefix}-{OURS}"]
            found.append(compare(title, what, agd, ours, tuned(runs, prefix, rivals)))
    return found


def _said(runs: Runs, net: str, ours: str) -> str:
    run = runs.get(f"showcase/{net}-{ours}")
    return wrapped(budget(run.config())) if run else ""
