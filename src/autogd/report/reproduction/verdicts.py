"""Verdicts: on the claims of the paper, and on StochasticAGD compared with AGD and the best rival."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from autogd.report.reproduction.reading import LEVEL, Runs, best, final, percent
from autogd.training import Run

__all__ = ["OURS", "Claim", "Comparison", "Verdict", "claims_table", "compare", "second_row_table", "tuned", "verdict"]

Verdict = Literal["reproduced", "in part", "not at this budget", "not"]


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, our result, and the verdict."""

    statement: str
    paper: str
    ours: str
    verdict: Verdict
    budget: str


def verdict(full: bool, part: bool = False, small: bool = True) -> Verdict:
    """The verdict on a claim; `small` if more epochs would still change the numbers.

    >>> verdict(False, small=True)
    'not at this budget'
    """
    if full:
        return "reproduced"
    if part:
        return "in part"
    return "not at this budget" if small else "not"


def claims_table(claims: Sequence[Claim], command: str, effort: str = "", after: str = "") -> str:
    """The claims of one experiment as a table, then `after`, the command that prints them, and the effort.

    >>> print(claims_table([Claim("it trains", "yes", "90%", "reproduced", "5 epochs")], "autogd reproduce showcase"))
    | claim | the paper | ours | verdict | budget |
    | --- | --- | --- | --- | --- |
    | it trains | yes | 90% | *reproduced* | 5 epochs |
    <BLANKLINE>
    Printed by `autogd reproduce showcase`.
    """
    rows = [f"| {c.statement} | {c.paper} | {c.ours} | *{c.verdict}* | {c.budget} |" for c in claims]
    head = ["| claim | the paper | ours | verdict | budget |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows, *(["", after] if after else []), "", f"Printed by `{command}`{effort}."])


OURS = "agd-stochastic"
_RIVALS = {"adam": "Adam", "sgd": "SGD", "sgd-plain": "SGD without momentum", "sgd-mup-plain": "SGD + muP"}


@dataclass(frozen=True)
class Comparison:
    """One quantity of AGD, of the best rival and of StochasticAGD, and how StochasticAGD compares."""

    quantity: str
    agd: str
    rival: str
    ours: str
    verdict: str


def compare(title: str, what: str, agd: Run, ours: Run, rivals: Mapping[str, Run] | None = None) -> Comparison:
    """Compare the final value of StochasticAGD with AGD's, and with the best rival's if there are rivals.

    >>> from pathlib import Path
    >>> compare("FCN", "test_accuracy", Run(Path("nowhere")), Run(Path("nowhere"))).verdict
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
    return Comparison(
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


def second_row_table(rows: Sequence[Comparison]) -> str:
    """The rows as Markdown.

    >>> row = Comparison("FCN: test accuracy", "33.5%", "30.3% (Adam 0.0001)", "40.1%", "ahead of both")
    >>> print(second_row_table([row]))
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
