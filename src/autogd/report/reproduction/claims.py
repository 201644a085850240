"""Claims: what the paper says, what our records say, and the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Claim", "Verdict", "markdown", "verdict"]

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
    """The verdict on a claim: reproduced, in part or not; `small` if more epochs would still move the numbers.

    >>> verdict(False, small=True)
    'not at this budget'
    """
    if full:
        return "reproduced"
    if part:
        return "in part"
    return "not at this budget" if small else "not"


def markdown(claims: Sequence[Claim], command: str, effort: str = "", after: str = "") -> str:
    """The claims of one experiment as a table, then `after`, the command that prints them, and the effort.

    >>> print(markdown([Claim("it trains", "yes", "90%", "reproduced", "5 epochs")], "autogd reproduce showcase"))
    | claim | the paper | ours | verdict | budget |
    | --- | --- | --- | --- | --- |
    | it trains | yes | 90% | *reproduced* | 5 epochs |
    <BLANKLINE>
    Printed by `autogd reproduce showcase`.
    """
    rows = [f"| {c.statement} | {c.paper} | {c.ours} | *{c.verdict}* | {c.budget} |" for c in claims]
    head = ["| claim | the paper | ours | verdict | budget |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows, *(["", after] if after else []), "", f"Printed by `{command}`{effort}."])
