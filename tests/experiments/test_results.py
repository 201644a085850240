"""The committed results: every number of the page is in the records, and the figures are theirs."""

from pathlib import Path

import pytest

from autogd.cli.main import main
from autogd.experiments.catalogue import EXPERIMENTS
from autogd.report.reproduction import show
from autogd.report.reproduction.claims import markdown
from autogd.training import Run

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results" / "laptop"
PAGE = (DOCS / "results.md").read_text()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_page_has_the_claims_that_the_records_give_and_the_command_that_prints_them(name):
    shown = show(name, "laptop", RESULTS)
    assert markdown(shown.claims, f"autogd reproduce {name} --scale laptop", shown.effort) in PAGE


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "theories-table"])
def test_the_page_shows_every_figure_and_none_is_large(name):
    assert f"(results/laptop/{name}.png)" in PAGE
    assert 5_000 < (RESULTS / f"{name}.png").stat().st_size < 200_000


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_records_are_of_the_configurations_that_the_code_gives(name):
    for trial, config in EXPERIMENTS[name].trials("laptop").items():
        assert Run(RESULTS / trial).config().difference(config) == []


def test_records_are_small_and_hold_no_weights():
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".json", ".jsonl", ".png", ".txt"}
    assert sum(path.stat().st_size for path in files) < 3_000_000


def test_the_headline_agd_is_twenty_points_above_its_rivals_at_their_defaults():
    agd, *rivals = (
        Run(RESULTS / f"showcase/fcn32-{name}").summary()["train_accuracy"]
        for name in ("agd", "adam-0.001", "sgd-0.1", "sgd-plain-0.1")
    )
    assert agd - max(rivals) >= 0.20


def test_redrawing_the_committed_figures_trains_nothing(tmp_path, monkeypatch):
    import shutil

    shutil.copytree(RESULTS, tmp_path / "laptop")
    monkeypatch.setattr("autogd.training.study.train", lambda *_: pytest.fail("it trained"))
    assert main(["reproduce", "all", "--scale", "laptop", "--out", str(tmp_path / "laptop"), "--json"]) == 0
    for name in EXPERIMENTS:
        assert (tmp_path / "laptop" / f"{name}.txt").read_text() == (RESULTS / f"{name}.txt").read_text()
