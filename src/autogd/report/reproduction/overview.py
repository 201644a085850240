"""All claims at a glance: the paper, our AGD, the best tuned rival and StochasticAGD, in one figure and one table."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autogd.experiments.trials import Scale
from autogd.report.markdown import grid
from autogd.report.reproduction import architectures, batch_size, showcase, versus_tuned, width_depth
from autogd.report.reproduction.curves import COLOURS, dress, empty
from autogd.report.reproduction.reading import Runs, final, percent
from autogd.report.reproduction.verdicts import OURS, Claim, Verdict, tuned
from autogd.training import Run

__all__ = ["HEAD", "Line", "draw", "lines", "table"]

HEAD = ("claim", "the paper", "AGD", "the best rival", "StochasticAGD (ours)", "our scale", "the paper's claim is")


@dataclass(frozen=True)
class Line:
    """One claim in accuracies from 0 to 1; None if there is no such number.

    Args:
        claim: the network and the quantity.
        paper: the paper's result, in words.
        paper_agd: the paper's accuracy of AGD.
        agd: our accuracy of AGD.
        rival: that of the best rival, at the best rate of its grid.
        rival_name: the rival's name and rate.
        ours: that of StochasticAGD.
        verdict: the verdict on the paper's claim.
        scale: the scale of our runs.
    """

    claim: str
    paper: str
    paper_agd: float | None
    agd: float | None
    rival: float | None
    rival_name: str
    ours: float | None
    verdict: Verdict
    scale: str = ""


def lines(runs: Runs, trials: Collection[str], scale: Scale) -> list[Line]:
    """The claims about accuracies whose trials have all ended.

    >>> lines({}, ["showcase/fcn32-agd"], "laptop")
    []
    """
    found = []
    for prefix, line in _LINES.items():
        names = [name for name in trials if name.startswith(prefix)]
        if names and all(name in runs for name in names):
            found.append(replace(line(runs), scale=scale))
    return found


def _network(prefix: str, rivals: Sequence[str], paper_agd: float) -> Callable[[Runs], Line]:
    return lambda runs: _line(runs, prefix, rivals, architectures.claim(runs, prefix), paper_agd)


_LINES: dict[str, Callable[[Runs], Line]] = {
    "showcase/fcn32": lambda runs: _line(
        runs, "showcase/fcn32", ("adam", "sgd", "sgd-plain"), showcase.deep(runs), None, "train_accuracy"
    ),
    **{
        prefix: _network(prefix, ("adam", "sgd") if prefix == "showcase/resnet18" else (rival,), agd / 100)
        for prefix, _, rival, agd, _ in architectures.NETWORKS
    },
    "versus-tuned/": lambda runs: _line(
        runs, versus_tuned.PREFIX, tuple(versus_tuned.RIVALS), versus_tuned.claims(runs)[-1], None
    ),
    "width-depth/": lambda runs: _best_of(
        runs, "width-depth/depth", "the best of all widths and depths", width_depth.claims(runs)[0], 0.637
    ),
    "batch-size/": lambda runs: _best_of(
        runs, "batch-size/batch", "the best of all batch sizes", batch_size.claims(runs)[0], 0.6
    ),
}


def table(found: Sequence[Line]) -> str:
    """The lines as Markdown.

    >>> print(table([Line("ResNet: test accuracy", "91.2%", 0.912, 0.181, 0.372, "SGD 0.1", 0.446, "not", "laptop")]))
    | claim | the paper | AGD | the best rival | StochasticAGD (ours) | our scale | the paper's claim is |
    | --- | --- | --- | --- | --- | --- | --- |
    | ResNet: test accuracy | 91.2% | 18.1% | 37.2% (SGD 0.1) | **44.6%** | laptop | *not* |
    """
    rows = []
    for each in found:
        top = max((value for value in (each.agd, each.rival, each.ours) if value is not None), default=None)
        agd, rival, ours = (_cell(value, top) for value in (each.agd, each.rival, each.ours))
        name = f" ({each.rival_name})" if each.rival is not None else ""
        rows.append((each.claim, each.paper, agd, f"{rival}{name}", ours, each.scale, f"*{each.verdict}*"))
    return "\n".join(grid(HEAD, rows))


def draw(found: Sequence[Line], caption: str = "") -> Any:
    """One row per claim: a marker for each of the paper's AGD, our AGD, the best rival and StochasticAGD."""
    figure = empty(9, 0.48 * len(found) + 1.6, "The paper's claims: accuracy on the same task, by optimiser", caption)
    axes = figure.subplots()
    kinds = (
        ("paper_agd", "AGD in the paper, at the paper's budget", COLOURS["agd"], "|", 160),
        ("agd", "AGD", COLOURS["agd"], "o", 42),
        ("rival", "the best rival, tuned", COLOURS["adam"], "s", 36),
        ("ours", "StochasticAGD (ours)", COLOURS[OURS], "D", 42),
    )
    for name, label, colour, marker, size in kinds:
        points = {-row: 100 * value for row, each in enumerate(found) if (value := getattr(each, name)) is not None}
        axes.scatter([*points.values()], [*points], color=colour, marker=marker, s=size, label=label, zorder=3)
    axes.set_yticks([-row for row in range(len(found))], [f"{each.claim}\nscale {each.scale}" for each in found])
    axes.set_xlim(0, 100)
    axes.set_ylim(-len(found) + 0.5, 0.5)
    dress(axes, "", x="accuracy (%)", y="", legend=False)
    figure.legend(loc="outside lower center", ncols=2, fontsize=7.5, frameon=False)
    return figure


def _line(
    runs: Runs, prefix: str, rivals: Sequence[str], claim: Claim, paper_agd: float | None, what: str = "test_accuracy"
) -> Line:
    ends = {name: value for name, run in tuned(runs, prefix, rivals).items() if (value := _end(run, what)) is not None}
    top = max(ends, key=lambda name: ends[name], default="")
    eight = prefix == versus_tuned.PREFIX
    title = "FCN, 8 layers" if eight else claim.statement.partition(" on ")[0].partition(":")[0]
    agd, ours = (_end(runs.get(f"{prefix}-{name}"), what) for name in ("agd", OURS))
    paper = f"in objective: {claim.paper}" if eight else claim.paper
    return Line(f"{title}: {what.replace('_', ' ')}", paper, paper_agd, agd, ends.get(top), top, ours, claim.verdict)


def _best_of(runs: Runs, prefix: str, title: str, claim: Claim, paper_agd: float) -> Line:
    ends = {name: _end(run, "test_accuracy") for name, run in runs.items() if name.startswith(prefix)}
    agd = max((value for name, value in ends.items() if value and not name.endswith(OURS)), default=None)
    ours = max((value for name, value in ends.items() if value and name.endswith(OURS)), default=None)
    return Line(f"{title}: test accuracy", claim.paper, paper_agd, agd, None, "", ours, claim.verdict)


def _end(run: Run | None, what: str) -> float | None:
    value = math.nan if run is None else final(run, what)
    return None if math.isnan(value) else value


def _cell(value: float | None, top: float | None) -> str:
    if value is None:
        return "–"
    return f"**{percent(value)}**" if value == top else percent(value)
