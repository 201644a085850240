"""Write the parts of docs/trust.md that come from the code and from the committed records.

Run: python benchmarks/trust_page.py
"""

from pathlib import Path

from autogd.experiments.trust.cells import CELLS
from autogd.experiments.trust.records import COMMITTED, Records
from autogd.experiments.trust.summary import standings
from autogd.report.front_page import verdicts
from autogd.report.markdown import filled
from autogd.report.trust import cells, markdown

PAGE = Path(__file__).parents[1] / "docs" / "trust.md"


def parts():
    found = standings(Records(COMMITTED).every(), list(CELLS.values()))
    return {"verdicts": verdicts([], found), "table": markdown(found), "cells": cells()}


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), parts(), PAGE))
