"""The pages have what the code and the committed records say, and their figures stand as they should."""

import json
import re
import runpy
from pathlib import Path

import pytest

from autogd.experiments.quality.records import COMMITTED
from autogd.experiments.scale import Cost, Load
from autogd.experiments.speed.growth import Point
from autogd.report import command_figures, scale
from autogd.report.markdown import filled
from autogd.report.reproduction.curves import below, dress, empty
from autogd.report.scale import markdown

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "pages.py"))
QUALITY_PAGE = SCRIPT["QUALITY"].read_text()


def test_the_quality_page_is_what_the_script_writes():
    assert filled(QUALITY_PAGE, SCRIPT["quality_parts"]()) == QUALITY_PAGE, "run: python benchmarks/pages.py"


def test_every_workload_is_on_the_page():
    for name, workload in SCRIPT["WORKLOADS"].items():
        assert (
            f"| `{name}` | {workload.content} | {workload.data} | {workload.batch} | {workload.steps} |" in QUALITY_PAGE
        )


def test_a_quality_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(AssertionError, match="there is no place for table"):
        filled(QUALITY_PAGE.replace("<!-- table -->", ""), SCRIPT["quality_parts"]())


def test_the_figure_is_there_when_there_are_records_and_small():
    if COMMITTED.exists():
        assert "(images/quality.png)" in QUALITY_PAGE
        assert 5_000 < (SCRIPT["IMAGES"] / "quality.png").stat().st_size < 300_000
    else:
        assert "No records yet." in QUALITY_PAGE


TRUST_PAGE = SCRIPT["TRUST"].read_text()


def test_the_trust_page_is_what_the_script_writes():
    assert filled(TRUST_PAGE, SCRIPT["trust_parts"]()) == TRUST_PAGE, "run: python benchmarks/pages.py"


def test_a_page_that_differs_from_the_records_in_one_digit_is_noticed():
    table = TRUST_PAGE.partition("<!-- table -->")[2].partition("<!-- end of table -->")[0]
    digit = next(letter for letter in table if letter.isdigit())
    wrong = TRUST_PAGE.replace(table, table.replace(digit, str((int(digit) + 1) % 10), 1))
    assert filled(wrong, SCRIPT["trust_parts"]()) == TRUST_PAGE != wrong


def test_every_cell_is_on_the_page():
    for name, cell in SCRIPT["CELLS"].items():
        assert f"| `{name}` | {cell.family} | {cell.content} | {cell.steps:,} |" in TRUST_PAGE


def test_every_family_is_explained():
    for family in {cell.family for cell in SCRIPT["CELLS"].values()}:
        assert f"| `{family}` |" in TRUST_PAGE


def test_a_trust_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(AssertionError, match="there is no place for table"):
        filled(TRUST_PAGE.replace("<!-- table -->", ""), SCRIPT["trust_parts"]())


def test_adams_mean_on_the_page_is_that_of_the_lines_in_the_file():
    """Computed from the file itself, without the summary."""
    lines = [json.loads(line) for line in (ROOT / "records" / "trust.jsonl").read_text().splitlines()]
    losses = {}
    for line in lines:
        if (line["cell"], line["optimiser"]) == ("fitted-32", "adam"):
            losses.setdefault(line["lr"], []).append(line["loss"])
    means = {lr: sum(values) / 5 for lr, values in losses.items() if len(values) == 5}
    best = min(means, key=means.get)
    row = next(line for line in TRUST_PAGE.splitlines() if line.startswith("| fitted-32 |"))
    assert len(means) == 3
    assert f"| {means[best]:.3f} ± " in row
    assert f"({best:g})" in row


SCALE_PAGE = (ROOT / "docs" / "scale.md").read_text()


def test_the_tables_are_those_of_the_model():
    parts = {"gpt2-small": markdown(SCRIPT["planned"]("gpt2-small", 4, 8))}
    assert filled(SCALE_PAGE, parts) == SCALE_PAGE, "run: python benchmarks/pages.py"
    for line in markdown(SCRIPT["planned"]("llama-3-8b", 8, 64)).splitlines():  # more ranks take long
        assert line in SCALE_PAGE, "run: python benchmarks/pages.py"


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


DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved, after their layout."""
    from matplotlib.figure import Figure

    found = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: found.append(figure))
    return found


def draw_demo(folder):
    names = ("StochasticAGD", "AGD", "Adam", "SGD")
    record = {"epoch": 1, "train_accuracy": 0.5, "test_accuracy": 0.5, "learning_rate": 0.1}
    command_figures.draw_demo([{**record, "optimiser": name} for name in names], "a title", folder / "demo.png")


def draw_scale(_):
    scale.draw_scale([Cost(name, "fsdp", n, (Load(0, 1, 1, 1, 1, 1),)) for n in (1, 2) for name in "abc"])


def draw_growth(_):
    points = [
        Point(along, name, 100, 1, 1e-3, 400) for along in ("weights", "tensors") for name in ("agd", "adam-fused")
    ]
    command_figures.draw_growth(points)


@pytest.mark.parametrize("draw", [draw_demo, draw_scale, draw_growth])
def test_the_legend_stands_outside_of_every_panel(draw, drawn, tmp_path):
    draw(tmp_path)
    (figure,) = drawn
    figure.canvas.draw()
    assert all(axes.get_legend() is None for axes in figure.axes)
    (legend,) = figure.legends
    assert not any(legend.get_window_extent().overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_the_legend_of_a_panel_stands_below_it():
    figure = empty(4, 3, "", "")
    axes = figure.subplots()
    below(axes, axes.plot([1, 2]), ["a line"])
    figure.canvas.draw()
    assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0


def test_a_number_in_a_title_stays_beside_its_word():
    axes = empty(4, 3, "", "").subplots()
    dress(axes, "of its 50,000 samples; batch 128", wrap=28)
    assert axes.get_title() == "of its 50,000 samples;\nbatch\u00a0128"


def test_every_picture_of_the_docs_is_on_a_page():
    text = "".join(path.read_text() for path in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"])
    shown = {Path(name).name for name in re.findall(r"\(([^)\s]+\.png)\)", text)}
    assert {path.name for path in DOCS.rglob("*.png") if "_build" not in path.parts} == shown
