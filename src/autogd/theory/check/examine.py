"""Every statement of the paper, tested on many random draws.

A statement is a function of a seed: its left side, its right side, and what was drawn. It holds on a draw if
left ≤ right; an equality is stated as |left − right| ≤ rounding. Statements known to be false are included, marked
`holds=False`: the check must see them fail.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from autogd.theory.check.expansion import EXPANSION, RECOVERED
from autogd.theory.check.network import NETWORK
from autogd.theory.check.rates import RATES
from autogd.theory.check.statement import Sides, Statement

__all__ = ["STATEMENTS", "Row", "check", "examine"]

STATEMENTS: list[Statement] = [*EXPANSION, *RECOVERED, *NETWORK, *RATES]
"""All of them, in the paper's order."""


@dataclass(frozen=True)
class Row:
    """One statement, its worst draw, and the verdict.

    Args:
        statement: its name.
        claim: in short.
        draws: their number.
        left: the left side on the worst draw.
        right: the right side there.
        slack: right − left there; negative if it fails.
        broken: number of draws on which it failed.
        expected: whether it should hold.
        worst: the worst draw, as text.
        counterexample: the first draw on which it failed, as text; None if there is none.
    """

    statement: str
    claim: str
    draws: int
    left: float
    right: float
    slack: float
    broken: int
    expected: bool
    worst: str
    counterexample: str | None

    @property
    def holds(self) -> bool:
        """Whether it held on every draw."""
        return self.broken == 0

    @property
    def as_expected(self) -> bool:
        """Whether the result is the expected one."""
        return self.holds == self.expected

    def as_dict(self) -> dict[str, Any]:
        """All fields and properties, for JSON."""
        return asdict(self) | {"holds": self.holds, "as_expected": self.as_expected}


def examine(statement: Statement, draws: int, seed: int = 0) -> Row:
    """Test one statement on `draws` seeds, starting at `seed` (on fewer, for claims about whole runs).

    >>> from autogd.theory.check.statement import Sides
    >>> row = examine(Statement("Small", "seed ≤ 2", lambda seed: Sides(seed, 2, f"seed {seed}")), draws=4)
    >>> row.broken, row.worst, row.slack, row.counterexample
    (1, 'seed 3', -1, 'seed 3: 3 > 2')
    """
    count = max(2, round(draws * statement.share))
    seen: list[Sides] = [statement.observe(seed + i) for i in range(count)]
    # not "left > right": a side that is nan must fail too
    broken = [sides for sides in seen if not sides.left <= sides.right]
    worst = min(seen, key=lambda sides: sides.right - sides.left)
    return Row(
        statement=statement.name,
        claim=statement.claim,
        draws=count,
        left=worst.left,
        right=worst.right,
        slack=worst.right - worst.left,
        broken=len(broken),
        expected=statement.holds,
        worst=worst.drawn,
        counterexample=_told(broken[0]) if broken else None,
    )


def check(
    draws: int = 100,
    seed: int = 0,
    statements: Iterable[Statement] = STATEMENTS,
    report: Callable[[Row], object] | None = None,
) -> list[Row]:
    """Test all statements, one row each of the table that `autogd check` prints; calls `report` after every row.

    >>> rows = check(draws=2, statements=STATEMENTS[:2])
    >>> [row.holds for row in rows]
    [True, True]
    """
    rows = []
    for statement in statements:
        rows.append(examine(statement, draws, seed))
        if report is not None:
            report(rows[-1])
    return rows


def _told(sides: Sides) -> str:
    return f"{sides.drawn}: {sides.left:.4g} > {sides.right:.4g}"
