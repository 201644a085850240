"""The page about training quality has what the code and the committed records say."""

import runpy
from pathlib import Path

import pytest

from autogd.experiments.quality.records import COMMITTED
from autogd.report.markdown import filled

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "pages.py"))
PAGE = SCRIPT["QUALITY"].read_text()


def test_the_page_is_what_the_script_writes():
    assert filled(PAGE, SCRIPT["quality_parts"]()) == PAGE, "run: python benchmarks/pages.py"


def test_every_workload_is_on_the_page():
    for name, workload in SCRIPT["WORKLOADS"].items():
        assert f"| `{name}` | {workload.content} | {workload.data} | {workload.batch} | {workload.steps} |" in PAGE


def test_a_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(AssertionError, match="there is no place for table"):
        filled(PAGE.replace("<!-- table -->", ""), SCRIPT["quality_parts"]())


def test_the_figure_is_there_when_there_are_records_and_small():
    if COMMITTED.exists():
        assert "(images/quality.png)" in PAGE
        assert 5_000 < (SCRIPT["IMAGES"] / "quality.png").stat().st_size < 300_000
    else:
        assert "No records yet." in PAGE
