"""The committed results: every number of the page is in the records, and the figures are theirs."""

import shutil
import time
from pathlib import Path

import pytest

from autogd.cli.main import main
from autogd.experiments.catalogue import EXPERIMENTS
from autogd.training import Run

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results" / "laptop"
PAGE = (DOCS / "results.md").read_text()


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory):
    """The committed records, drawn and judged anew, with training forbidden; and the seconds of a core that it took."""
    folder = tmp_path_factory.mktemp("results") / "laptop"
    shutil.copytree(RESULTS, folder, ignore=shutil.ignore_patterns("*.png", "*.txt"))
    started = time.process_time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autogd.training.study.train", lambda *_: pytest.fail("it trained"))
        assert main(["reproduce", "all", "--scale", "laptop", "--out", str(folder), "--json"]) == 0
    return folder, time.process_time() - started


@pytest.mark.slow
def test_redrawing_takes_under_half_a_minute_of_a_core(redrawn):
    folder, seconds = redrawn
    assert seconds < 30
    assert {path.name for path in folder.glob("*.png")} == {path.name for path in RESULTS.glob("*.png")}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_page_has_the_claims_that_the_records_give_and_the_command_that_prints_them(redrawn, name):
    printed = (redrawn[0] / f"{name}.txt").read_text()
    assert f"Printed by `autogd reproduce {name} --scale laptop`" in printed
    assert printed == (RESULTS / f"{name}.txt").read_text()
    assert printed.strip() in PAGE


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
