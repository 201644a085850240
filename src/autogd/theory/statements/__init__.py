"""Every statement of the paper as a function of a seed: its left side, its right side, and what was drawn.

A statement holds on a draw where left ≤ right; an equality is stated as |left − right| ≤ rounding. Those known to be
false are here too, marked `holds=False`: a check that could not see them fail would be worth little.
"""

from autogd.theory.statements.expansion import EXPANSION
from autogd.theory.statements.network import NETWORK
from autogd.theory.statements.rates import RATES
from autogd.theory.statements.recovered import RECOVERED
from autogd.theory.statements.statement import Sides, Statement

__all__ = ["STATEMENTS", "Sides", "Statement"]

STATEMENTS: list[Statement] = [*EXPANSION, *RECOVERED, *NETWORK, *RATES]
"""All of them, in the paper's order."""
