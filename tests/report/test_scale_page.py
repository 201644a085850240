"""The page of costs is what the model says, and what was counted on real ranks agrees with it."""

import runpy
from pathlib import Path

from autogd.report.markdown import filled
from autogd.report.scale import markdown

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "pages.py"))
PAGE = (ROOT / "docs" / "scale.md").read_text()


def test_the_tables_are_those_of_the_model():
    parts = {"gpt2-small": markdown(SCRIPT["planned"]("gpt2-small", 4, 8))}
    assert filled(PAGE, parts) == PAGE, "run: python benchmarks/pages.py"
    for line in markdown(SCRIPT["planned"]("llama-3-8b", 8, 64)).splitlines():  # more ranks take long
        assert line in PAGE, "run: python benchmarks/pages.py"


def test_what_was_counted_at_gpt2s_shapes_is_what_the_model_says():
    rows = SCRIPT["counted"]()
    assert [(row["ranks"], row["rank"]) for row in rows] == [(n, rank) for n in (1, 2, 4) for rank in range(n)]
    whole = rows[0]["flops"]
    for row in rows:
        load = SCRIPT["planned"]("gpt2-small", row["ranks"])[0].loads[row["rank"]]
        assert abs(row["flops"] / load.flops - 1) < 0.02
        assert row["flops"] <= 1.25 / row["ranks"] * whole
        for quantity in ("sent", "received"):
            assert abs(row[quantity] - getattr(load, quantity)) <= 0.02 * getattr(load, quantity)
