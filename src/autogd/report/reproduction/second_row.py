"""The second row of each figure as a table: StochasticAGD beside AGD and the best rival."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autogd.report.reproduction.reading import LEVEL, Runs, best, final, percent
from autogd.training import Run

__all__ = ["OURS", "Beside", "beside", "table", "tuned"]

OURS = "agd-stochastic"
_RIVALS = {"adam": "Adam", "sgd": "SGD", "sgd-plain": "SGD without momentum", "sgd-mup-plain": "SGD + muP"}


@dataclass(frozen=True)
class Beside:
    """One quantity of AGD, of the best rival and of StochasticAGD, and which is better."""

    quantity: str
    agd: str
    rival: str
    ours: str
    verdict: str


def beside(title: str, what: str, agd: Run, ours: Run, rivals: Mapping[str, Run] | None = None) -> Beside:
    """Compare the final values of two runs and of the best rival, if there are rivals.

    >>> from pathlib import Path
    >>> beside("FCN", "test_accuracy", Run(Path("nowhere")), Run(Path("nowhere"))).verdict
    'diverged'
    """
    sign = -1 if "objective" in what else 1
    ends = {name: final(run, what) for name, run in (rivals or {}).items()}
    top = max((name for name in ends if not math.isnan(ends[name])), key=lambda name: sign * ends[name], default=None)
    mine, others = final(ours, what), {"AGD": final(agd, what), **({top: ends[top]} if top else {})}
    words = {name: _word(sign * (mine - value)) for name, value in others.items()}
    same = len(set(words.values())) == 1 and len(words) == 2
    said = f"{words['AGD']} both" if same else ", ".join(f"{word} {name}" for name, word in words.items())
    show = percent if sign > 0 else _three
    return Beside(
        f"{title}: {what.replace('_', ' ')}",
        show(others["AGD"]),
        f"{show(ends[top])} ({top})" if top else "–",
        show(mine),
        "diverged" if math.isnan(mine) else said,
    )


def tuned(runs: Runs, prefix: str, names: Sequence[str]) -> dict[str, Run]:
    """Every rival at its best rate, by name.

    >>> tuned({}, "showcase/resnet18", ["adam"])
    {}
    """
    pairs = {name: best(runs, f"{prefix}-{name}") for name in names}
    return {f"{_RIVALS[name]} {pair[0]:g}": pair[1] for name, pair in pairs.items() if pair}


def table(rows: Sequence[Beside]) -> str:
    """The rows as Markdown.

    >>> print(table([Beside("FCN: test accuracy", "33.5%", "30.3% (Adam 0.0001)", "40.1%", "ahead of both")]))
    | the second row | AGD | the best rival | StochasticAGD (ours) | ours is |
    | --- | --- | --- | --- | --- |
    | FCN: test accuracy | 33.5% | 30.3% (Adam 0.0001) | 40.1% | *ahead of both* |
    """
    lines = [f"| {r.quantity} | {r.agd} | {r.rival} | {r.ours} | *{r.verdict}* |" for r in rows]
    head = ["| the second row | AGD | the best rival | StochasticAGD (ours) | ours is |"]
    return "\n".join([*head, "| --- | --- | --- | --- | --- |", *lines])


def _word(lead: float) -> str:
    if math.isnan(lead) or lead > LEVEL:  # a diverged run is behind
        return "ahead of"
    return "behind" if lead < -LEVEL else "level with"


def _three(objective: float) -> str:
    return "diverged" if math.isnan(objective) else f"{objective:.3f}"
