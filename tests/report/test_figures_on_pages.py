"""The figures of the pages: legends outside of the axes, and every picture is on a page."""

import re
from pathlib import Path

import pytest

from autogd.experiments.scale import Cost, Load
from autogd.experiments.speed.growth import Point
from autogd.report import command_figures, scale
from autogd.report.reproduction.curves import below, dress, empty

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
