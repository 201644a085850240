"""Every statement of the paper, tested on random draws; `autogd check` prints the table."""

from autogd.theory.check.examine import STATEMENTS, Row, check, examine
from autogd.theory.check.statement import Sides, Statement

__all__ = ["STATEMENTS", "Row", "Sides", "Statement", "check", "examine"]
