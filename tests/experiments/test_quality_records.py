"""The benchmark of training quality: grids widen, recorded runs are not repeated, and two small races run."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from autogd.experiments.quality import records as recorder
from autogd.experiments.quality.grid import SEEDS, TUNED, UNTUNED, rate, search, trial
from autogd.experiments.quality.race import POINTS, Cell, Outcome, race
from autogd.experiments.quality.records import COMMITTED, Recorder, Records
from autogd.experiments.quality.sources import SOURCES
from autogd.experiments.quality.summary import OPTIMISERS
from autogd.experiments.quality.workloads import WORKLOADS
from autogd.rivals import PACKAGES


def made(cell, loss, steps=60):
    return Outcome(cell, steps, [loss], [math.nan], [loss], [0.1], 1.0)


def valley(best):
    """A run whose loss is lowest at one learning rate."""
    return lambda cell: made(cell, abs(math.log10(cell.lr) - math.log10(best)))


@pytest.mark.parametrize("best", [1e-4, 1e-3, 1.0])
@pytest.mark.parametrize("optimiser", TUNED)
def test_a_search_ends_with_its_best_between_two_that_are_worse(optimiser, best):
    outcomes = list(search("gpt", optimiser, "cosine", valley(best)))
    rates = sorted(outcome.cell.lr for outcome in outcomes)
    assert len(rates) == len(set(rates)) >= 5
    assert rates[0] < best < rates[-1]
    assert best in rates
    assert {outcome.cell.seed for outcome in outcomes} == {SEEDS[0]}
    # half decades, with none left out
    assert rates == [rate(k) for k in range(round(2 * math.log10(rates[0])), round(2 * math.log10(rates[-1])) + 1)]


def test_a_search_that_only_ever_improves_ends_somewhere():
    outcomes = list(search("gpt", "adam", "constant", lambda cell: made(cell, -cell.lr)))
    assert 5 < len(outcomes) < 20


def test_a_trial_is_two_grids_and_three_seeds_of_the_winner():
    cells = [outcome.cell for outcome in trial("gpt", "sgd", valley(1e-2))]
    assert {cell.schedule for cell in cells} == {"constant", "cosine"}
    assert [(cell.lr, cell.seed) for cell in cells[-3:]] == [(1e-2, 0), (1e-2, 1), (1e-2, 2)]
    alone = [outcome.cell for outcome in trial("gpt", "dog", lambda cell: made(cell, 1.0))]
    assert alone == [Cell("gpt", "dog", seed=seed) for seed in SEEDS]


def test_an_outcome_survives_the_file(tmp_path):
    cell = Cell("gpt", "adam", 0.00316, "cosine", 2)
    lost = Outcome(cell, 3000, [1.5, math.inf], [0.25, math.nan], [1.25, math.inf], [0.00316, math.nan], 12.34)
    Records(tmp_path).add(lost)
    read = Records(tmp_path).find(cell)
    assert repr(read) == repr(lost)  # nan is not equal to itself


def test_what_is_recorded_is_not_run_again(tmp_path, monkeypatch):
    raced = []
    monkeypatch.setattr(recorder, "race", lambda cell, *_: raced.append(cell) or valley(1e-3)(cell))
    run = Recorder(Records(tmp_path))
    first = [outcome.cell for outcome in trial("diabetes", "adam", run)]
    assert raced == list(dict.fromkeys(first))  # the winner's first seed was run by the grid
    # after a stop one record is missing, and only that is run
    path = tmp_path / "diabetes.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    last = raced[-1]
    raced.clear()
    list(trial("diabetes", "adam", Recorder(Records(tmp_path))))
    assert raced == [last]


def test_a_record_of_another_budget_is_run_again(tmp_path, monkeypatch):
    cell = Cell("diabetes", "dog")
    Records(tmp_path).add(made(cell, 9.0, steps=59))
    monkeypatch.setattr(recorder, "race", lambda cell, *_: made(cell, 1.0))
    assert Recorder(Records(tmp_path))(cell).loss == [1.0]
    assert len((tmp_path / "diabetes.jsonl").read_text().splitlines()) == 1


def test_a_folder_over_another_wins_and_leaves_the_other_alone(tmp_path):
    one, two = Cell("gpt", "dog"), Cell("gpt", "prodigy")
    below = Records(tmp_path / "below")
    for cell in (one, two):
        below.add(made(cell, 1.0))
    before = (tmp_path / "below" / "gpt.jsonl").read_text()
    over = Records(tmp_path / "over", below=below)
    over.add(made(one, 2.0))
    assert {outcome.cell: outcome.loss for outcome in over.of("gpt")} == {one: [2.0], two: [1.0]}
    assert over.find(one).loss == [2.0]
    assert (tmp_path / "below" / "gpt.jsonl").read_text() == before
    assert [outcome.cell for outcome in Records(tmp_path / "over").of("gpt")] == [one]


@pytest.mark.parametrize("optimiser", ["adam", "agd", "agd-stochastic"])
@pytest.mark.parametrize("workload", ["diabetes", "fcn-32"])
def test_a_short_race_lowers_the_loss_and_repeats_to_the_bit(workload, optimiser, monkeypatch):
    monkeypatch.setitem(WORKLOADS, workload, replace(WORKLOADS[workload], steps=20))
    cell = Cell(workload, optimiser, lr=1e-3 if optimiser == "adam" else None)
    outcome = race(cell)
    assert len(outcome.loss) == len(outcome.rate) == POINTS
    assert outcome.loss[-1] < outcome.loss[0]
    assert math.isnan(outcome.accuracy[-1]) == (workload == "diabetes")
    assert race(cell).loss == outcome.loss
    assert race(replace(cell, seed=1)).loss != outcome.loss


@pytest.mark.parametrize("optimiser", UNTUNED)
def test_the_untuned_rivals_race_at_their_defaults(optimiser, monkeypatch):
    pytest.importorskip(PACKAGES[optimiser])
    monkeypatch.setitem(WORKLOADS, "diabetes", replace(WORKLOADS["diabetes"], steps=20))
    assert all(map(math.isfinite, race(Cell("diabetes", optimiser)).loss))


def test_a_rate_that_is_far_too_high_is_a_lost_run_not_an_error():
    outcome = race(Cell("diabetes", "sgd", lr=1e6))
    assert outcome.loss[-1] == math.inf
    assert len(outcome.loss) == POINTS


def test_every_workload_names_data_that_can_be_read():
    assert len(WORKLOADS) >= 10
    for workload in WORKLOADS.values():
        assert workload.data in SOURCES
        assert workload.before is None or workload.before in SOURCES
        assert workload.steps % POINTS == 0


def test_the_committed_records_are_of_the_workloads_as_they_are():
    assert Path(__file__).parents[2] / "records" / "quality.jsonl" == COMMITTED
    assert {json.loads(line)["workload"] for line in COMMITTED.read_text().splitlines()} == set(WORKLOADS)
    for name, workload in WORKLOADS.items():
        for outcome in Records(COMMITTED).of(name):
            cell = outcome.cell
            assert cell.workload == name
            assert cell.optimiser in OPTIMISERS
            assert outcome.steps == workload.steps
            assert len(outcome.loss) == POINTS


def test_several_commands_can_add_to_one_file(tmp_path):
    file = tmp_path / "all.jsonl"
    cells = [Cell("gpt", "dog", seed=seed) for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda cell: Records(file).add(made(cell, 1.0)), cells))
    assert {outcome.cell for outcome in Records(file).of("gpt")} == set(cells)
