"""`autogd bench trust`: the report from records, and what it runs and does not run."""

import json
import math

import pytest

from autogd.cli import bench_trust
from autogd.cli.main import main
from autogd.experiments.trust.cell import Outcome, Run
from autogd.experiments.trust.cells import CELLS
from autogd.experiments.trust.records import Records


def fake(run):
    """Adam is best at 1e-3, where it ends at 1.02; ours ends at 1.52; a seed adds a little."""
    base = 1.5 if run.lr is None else 1 + abs(math.log10(run.lr) + 3)
    return Outcome(run, CELLS[run.cell].steps, base + 0.01 * run.seed, 12.0 + run.seed, 2.0)


@pytest.fixture
def attempted(monkeypatch):
    done = []
    monkeypatch.setattr(bench_trust, "attempt", lambda run, *_: done.append(run) or fake(run))
    return done


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to run in, with only the records that the test makes."""
    monkeypatch.setattr(bench_trust, "COMMITTED", tmp_path / "records")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_runs_what_is_missing_and_prints_the_table(folder, attempted, capsys):
    assert main(["bench", "trust", "--cells", "fitted-8"]) == 0
    out = capsys.readouterr().out
    assert "1.520 ± 0.016" in out
    assert "1.020 ± 0.016 (0.001)" in out
    assert "1.49" in out
    assert "16 (Adam 16)" in out
    assert "agd-stochastic, all: won 0, even 0, lost 1" in out
    assert len(attempted) == len(set(attempted)) == 20
    attempted.clear()
    assert main(["bench", "trust", "--cells", "fitted-8"]) == 0
    assert attempted == []


def test_fresh_runs_what_is_named_again_and_leaves_the_rest(folder, attempted, capsys):
    published = Records(folder / "records")
    for seed in range(5):
        published.add(Outcome(Run("gan", "agd-stochastic", None, seed), 600, 9.0, None, 1.0))
        published.add(Outcome(Run("gan", "adam", 1e-3, seed), 600, 1.0, None, 1.0))
    before = published.path.read_text()
    words = ["bench", "trust", "--cells", "gan", "--optimisers", "agd-stochastic", "--json"]
    assert main(words) == 0
    assert attempted == []
    assert json.loads(capsys.readouterr().out)["standings"][0]["ours"]["loss"] == 9.0
    assert main([*words, "--fresh", "--seeds", "0", "3"]) == 0
    assert attempted == [Run("gan", "agd-stochastic", None, seed) for seed in (0, 3)]
    (row,) = json.loads(capsys.readouterr().out)["standings"]
    assert row["ours"]["loss"] == pytest.approx((1.5 + 1.53) / 2)  # only the seeds that were named
    assert (row["adam"]["loss"], row["verdict"]) == (1.0, "lost")
    assert published.path.read_text() == before
    assert main([*words, "--seeds", "1", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["standings"][0]["ours"]["loss"] == 9.0
    assert main([*words, "--fresh", "--out", "records"]) == 0  # the published ones themselves
    assert json.loads(capsys.readouterr().out)["standings"][0]["ours"]["loss"] == pytest.approx(1.52)
    assert len(published.path.read_text().splitlines()) == 10


def test_the_report_trains_nothing(folder, attempted, capsys):
    for seed in range(2):
        Records(folder / "here").add(fake(Run("own", "agd-stochastic", None, seed)))
        Records(folder / "here").add(fake(Run("own", "adam", 1e-3, seed)))
        Records(folder / "here").add(fake(Run("own-loss-10", "agd-stochastic", None, seed)))
    assert main(["bench", "trust", "--report", "--out", "here", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| own | agd-stochastic | 1.505 ± 0.007 (2 seeds) | 1.005 ± 0.007 (2 seeds) (0.001) |")
    assert lines[3] == "| own-loss-10 | agd-stochastic | 1.505 ± 0.007 (2 seeds) | – | – |  | 1.00 (Adam –) |  |"
    assert lines[-1].endswith("within 10% of the undisturbed: 1 of 1 (Adam: 0 of 0)")
    assert attempted == []


def test_a_loss_that_is_not_finite_is_no_number_in_json(folder, capsys):
    Records(folder / "here").add(Outcome(Run("gan", "agd-stochastic"), 600, math.inf, None, 1.0))
    Records(folder / "here").add(fake(Run("gan", "adam", 1e-3)))
    assert main(["bench", "trust", "--report", "--out", "here", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["standings"]
    assert (row["ours"]["loss"], row["ours"]["failed"], row["ratio"], row["verdict"]) == (None, 1, None, "lost")


def test_a_stop_keeps_every_finished_run(folder, monkeypatch, capsys):
    done = []

    def stopped(run, *_):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(run)
        return fake(run)

    monkeypatch.setattr(bench_trust, "attempt", stopped)
    assert main(["bench", "trust", "--cells", "gan"]) == 130
    assert "without --fresh to continue" in " ".join(capsys.readouterr().err.split())
    assert list(Records(folder / "runs" / "trust").every()) == done


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cells", "chess"], "cells: chess: not known; choose from small-batches"),
        (["--optimisers", "adagrad"], "optimisers: adagrad: not known; choose from agd-stochastic"),
        (["--report"], "records/trust.jsonl: there is no record of these. The published records are in the folder"),
    ],
)
def test_errors_name_the_offender_and_the_way_out(folder, capsys, words, message):
    assert main(["bench", "trust", *words]) == 1
    assert message in capsys.readouterr().err


def test_help_has_an_example_and_json(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", "trust", "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "example: autogd bench trust" in out
    assert "--json" in out
