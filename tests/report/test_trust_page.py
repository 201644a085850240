"""The page about trust has what the code and the committed records say."""

import json
import runpy
from pathlib import Path

import pytest

from autogd.report.markdown import filled

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "pages.py"))
PAGE = SCRIPT["TRUST"].read_text()


def test_the_page_is_what_the_script_writes():
    assert filled(PAGE, SCRIPT["trust_parts"]()) == PAGE, "run: python benchmarks/pages.py"


def test_a_page_that_differs_from_the_records_in_one_digit_is_noticed():
    table = PAGE.partition("<!-- table -->")[2].partition("<!-- end of table -->")[0]
    digit = next(letter for letter in table if letter.isdigit())
    wrong = PAGE.replace(table, table.replace(digit, str((int(digit) + 1) % 10), 1))
    assert filled(wrong, SCRIPT["trust_parts"]()) == PAGE != wrong


def test_every_cell_is_on_the_page():
    for name, cell in SCRIPT["CELLS"].items():
        assert f"| `{name}` | {cell.family} | {cell.content} | {cell.steps:,} |" in PAGE


def test_every_family_is_explained():
    for family in {cell.family for cell in SCRIPT["CELLS"].values()}:
        assert f"| `{family}` |" in PAGE


def test_a_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(AssertionError, match="there is no place for table"):
        filled(PAGE.replace("<!-- table -->", ""), SCRIPT["trust_parts"]())


def test_adams_mean_on_the_page_is_that_of_the_lines_in_the_file():
    """Computed from the file itself, without the summary."""
    lines = [json.loads(line) for line in (ROOT / "records" / "trust.jsonl").read_text().splitlines()]
    losses = {}
    for line in lines:
        if (line["cell"], line["optimiser"]) == ("fitted-32", "adam"):
            losses.setdefault(line["lr"], []).append(line["loss"])
    means = {lr: sum(values) / 5 for lr, values in losses.items() if len(values) == 5}
    best = min(means, key=means.get)
    row = next(line for line in PAGE.splitlines() if line.startswith("| fitted-32 |"))
    assert len(means) == 3
    assert f"| {means[best]:.3f} ± " in row
    assert f"({best:g})" in row
