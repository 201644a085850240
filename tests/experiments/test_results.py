"""The committed results: every number of the page is in the records, and the figures are theirs."""

import json
import re
import runpy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from autogd.cli.main import main
from autogd.experiments.catalogue import EXPERIMENTS
from autogd.experiments.packed import RECORDS, unpack
from autogd.report.markdown import filled
from autogd.report.reproduction import Shown, show
from autogd.training import Run

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "pages.py"))
PAGE = SCRIPT["RESULTS"].read_text()
DRAWN = [name for name in EXPERIMENTS if name != "theories-table"]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The committed records, one folder per run."""
    folder = tmp_path_factory.mktemp("results") / "laptop"
    unpack(RECORDS / "laptop", folder)
    return folder


@pytest.fixture(scope="module")
def _drawn_once():
    """The command and the script of the page draw an experiment at a scale together, from the same records."""
    kept: dict[tuple[str, str], Shown] = {}

    def once(name, scale, folder):
        if (name, scale) not in kept:
            kept[name, scale] = show(name, scale, folder)
        return kept[name, scale]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autogd.cli.reproduce.show", once)
        patch.setitem(SCRIPT["results"].__globals__, "show", once)
        yield


@pytest.fixture(scope="module")
def redrawn(unpacked, _drawn_once):
    """The committed records, drawn and judged again, with training forbidden; and what the command printed."""
    printed = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr("autogd.training.study.train", lambda *_: pytest.fail("it trained"))
        assert main(["reproduce", "all", "--scale", "laptop", "--out", str(unpacked), "--json"]) == 0
    return unpacked, json.loads(printed.getvalue())


@pytest.mark.slow
def test_redrawing_trains_nothing_and_draws_every_figure(redrawn):
    folder, told = redrawn
    assert {path.stem for path in folder.glob("*.png")} == {"overview", *DRAWN}
    assert list(told["experiments"]) == list(EXPERIMENTS)
    assert all(each["claims"] for each in told["experiments"].values())
    assert [name for name, each in told["experiments"].items() if not each["second_row"]] == ["theories-table"]


@pytest.mark.slow
@pytest.mark.usefixtures("_drawn_once")
def test_the_page_has_what_the_records_give_and_the_commands_that_print_it():
    figures, parts = SCRIPT["results"]()
    assert set(figures) == {"overview", *DRAWN}
    assert set(parts) == {"overview", "costs", "workstation", *EXPERIMENTS}
    for name in EXPERIMENTS:
        assert re.search(rf"Printed by `autogd reproduce {name} --scale (laptop|workstation)`", parts[name])
    assert filled(PAGE, parts, "docs/results.md") == PAGE, "run: python benchmarks/pages.py"


@pytest.mark.slow
def test_the_command_prints_what_the_page_has_of_its_scale(redrawn):
    for path in redrawn[0].glob("*.txt"):
        if f"Printed by `autogd reproduce {path.stem} --scale laptop`" in PAGE:
            assert path.read_text() in PAGE


@pytest.mark.parametrize("name", ["overview", *DRAWN])
def test_the_page_shows_every_figure_and_none_is_large(name):
    assert f"(results/{name}.png)" in PAGE
    assert 5_000 < (SCRIPT["FIGURES"] / f"{name}.png").stat().st_size < 200_000


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_records_are_of_the_configurations_that_the_code_gives(unpacked, name):
    for trial, config in EXPERIMENTS[name].trials("laptop").items():
        assert Run(unpacked / trial).config().difference(config) == []


def test_records_are_one_small_file_a_figure():
    files = list((RECORDS / "laptop").iterdir())
    assert {path.name for path in files} == {f"{name}.jsonl" for name in DRAWN}
    assert sum(path.stat().st_size for path in files) < 1_000_000
    for path in files:
        assert all(json.loads(line)["trial"].startswith(f"{path.stem}/") for line in path.read_text().splitlines())


def test_the_headline_agd_is_twenty_points_above_its_rivals_at_their_defaults(unpacked):
    agd, *rivals = (
        Run(unpacked / f"showcase/fcn32-{name}").summary()["train_accuracy"]
        for name in ("agd", "adam-0.001", "sgd-0.1", "sgd-plain-0.1")
    )
    assert agd - max(rivals) >= 0.20
