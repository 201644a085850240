"""Every statement of the paper as a function of a seed: its left side, its right side, and what was drawn.

A statement holds on a draw if left ≤ right; an equality is stated as |left − right| ≤ rounding. Statements known to be
false are included, marked `holds=False`: the check must see them fail.
"""

from autogd.theory.check.expansion import EXPANSION
from autogd.theory.check.network import NETWORK
from autogd.theory.check.rates import RATES
from autogd.theory.check.recovered import RECOVERED
from autogd.theory.check.statement import Sides, Statement

__all__ = ["STATEMENTS", "Sides", "Statement"]

STATEMENTS: list[Statement] = [*EXPANSION, *RECOVERED, *NETWORK, *RATES]
"""All of them, in the paper's order."""
