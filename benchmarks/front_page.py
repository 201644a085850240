"""Write the parts of README.md, docs/when_not.md and docs/glossary.md that come from code and records, and the figure.

Run: python benchmarks/front_page.py
"""

import json
from pathlib import Path

from autogd.cli.help import markdown as glossary
from autogd.experiments.quality.records import Records as Quality
from autogd.experiments.quality.summary import standings as quality_standings
from autogd.experiments.quality.workloads import WORKLOADS
from autogd.experiments.speed.step_cost import Share
from autogd.experiments.trust.cells import CELLS
from autogd.experiments.trust.records import COMMITTED
from autogd.experiments.trust.records import Records as Trust
from autogd.experiments.trust.summary import standings as trust_standings
from autogd.report.front_page import costs, draw_versus, not_below, not_won, verdicts
from autogd.report.markdown import filled

ROOT = Path(__file__).parents[1]
README, WHEN_NOT, GLOSSARY = ROOT / "README.md", ROOT / "docs" / "when_not.md", ROOT / "docs" / "glossary.md"
SHARES = ROOT / "records" / "step-share.json"
FIGURE = ROOT / "docs" / "images" / "versus_tuned.png"


def quality():
    return [each for name in WORKLOADS for each in quality_standings(Quality().of(name))]


def trust():
    return trust_standings(Trust(COMMITTED).every(), list(CELLS.values()))


def shares():
    """What `autogd bench step --share --threads 1 --rounds 5 --json` printed, in turns in one process."""
    return [Share(**row) for row in json.loads(SHARES.read_text())]


def readme():
    return {"verdicts": verdicts(quality(), trust()), "costs": costs(shares())}


def when_not():
    return {"workloads": not_below(quality()), "cells": not_won(trust())}


if __name__ == "__main__":
    README.write_text(filled(README.read_text(), readme(), README))
    WHEN_NOT.write_text(filled(WHEN_NOT.read_text(), when_not(), WHEN_NOT))
    GLOSSARY.write_text(glossary())
    FIGURE.write_bytes(draw_versus(quality()))
