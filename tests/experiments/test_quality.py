"""Training quality: races, their records, and what they sum up to; on made-up data."""

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
from autogd.experiments.quality.summary import OPTIMISERS, compare, share_to_reach, standings, tally
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


def outcome(optimiser, losses, lr=None, schedule="constant", seed=0, seconds=10.0, accuracy=0.5, workload="gpt"):
    cell = Cell(workload, optimiser, lr, schedule, seed)
    return Outcome(cell, 100, losses, [accuracy] * len(losses), losses, [0.1] * len(losses), seconds)


def grid(optimiser, last, schedule="constant"):
    """One run per learning rate, with one seed."""
    return [outcome(optimiser, [9.0, 8.0, 7.0, loss], lr, schedule) for lr, loss in last.items()]


CONSTANT = {1e-4: 5.0, 1e-3: 2.5, 1e-2: 2.2, 1e-1: 3.0, 1.0: math.inf}
COSINE = {1e-4: 5.5, 1e-3: 2.0, 1e-2: 2.1, 1e-1: 3.0, 1.0: math.inf}
# the winner, 1e-3 with cosine, ends at 2, 3 and 4: a mean of 3 and a standard deviation of 1
OTHERS = [outcome("adam", [9.0, 8.0, 7.0, 2.0 + seed], 1e-3, "cosine", seed) for seed in (1, 2)]
ADAM = [*grid("adam", CONSTANT), *grid("adam", COSINE, "cosine"), *OTHERS]


def standing(runs, optimiser, **settings):
    return next(each for each in standings(runs, **settings) if each.optimiser == optimiser)


def test_the_winner_of_the_grid_is_judged_with_all_its_seeds():
    adam = standing(ADAM, "adam")
    assert (adam.lr, adam.schedule, adam.rates, adam.at_edge) == (1e-3, "cosine", 5, False)
    assert (adam.seeds, adam.loss, adam.spread, adam.accuracy) == (3, 3.0, 1.0, 0.5)
    assert (adam.ratio, adam.steps_share, adam.time_share, adam.verdict) == (1.0, 1.0, 1.0, None)
    assert adam.settled


def test_a_winner_at_an_edge_and_an_unfinished_grid_are_told():
    rising = standing(grid("adam", {1e-3: 3.0, 1e-2: 2.0}), "adam")
    assert rising.at_edge
    assert rising.rates == 0  # nothing was tried with cosine
    assert (rising.seeds, rising.spread, rising.settled) == (1, None, False)
    # the best of each schedule is within, but only four rates were tried
    few = {lr: CONSTANT[lr] for lr in (1e-4, 1e-3, 1e-2, 1e-1)}
    narrow = standing([*grid("adam", few), *grid("adam", few, "cosine"), *OTHERS], "adam")
    assert (narrow.at_edge, narrow.rates, narrow.settled) == (False, 4, False)


def test_ours_is_compared_with_tuned_adam_in_loss_steps_and_time():
    # adam's last mean loss is 3; the mean of these curves is 6, 4, 2, 1: halfway between the second and third points
    curves = ([7.0, 4.0, 2.0, 1.0], [5.0, 4.0, 2.0, 1.0], [6.0, 4.0, 2.0, 1.0])
    runs = [outcome("agd-stochastic", curve, seed=seed, seconds=20.0) for seed, curve in enumerate(curves)]
    ours = standing([*ADAM, *runs], "agd-stochastic")
    assert ours.lr is None
    assert ours.ratio == pytest.approx(1 / 3)
    assert ours.steps_share == pytest.approx(2.5 / 4)
    assert ours.time_share == pytest.approx(2 * 2.5 / 4)  # its steps cost twice Adam's
    assert ours.verdict == "below"


def test_a_loss_that_adam_reaches_and_another_does_not():
    dog = standing([*ADAM, outcome("dog", [9.0, 5.0, 4.5, 4.2])], "dog")
    assert (dog.steps_share, dog.time_share, dog.verdict, dog.seeds) == (None, None, "above", 1)


@pytest.mark.parametrize(
    ("loss", "verdict"), [(1.9, "below"), (2.1, "within spread"), (4.0, "within spread"), (4.1, "above")]
)
def test_the_verdict_takes_the_larger_spread(loss, verdict):
    runs = [outcome("dog", [9.0, 8.0, 7.0, loss], seed=seed) for seed in range(3)]  # no spread; adam has 1 around 3
    assert standing([*ADAM, *runs], "dog").verdict == verdict


def test_a_lost_seed_is_counted_and_never_a_win():
    runs = [outcome("dog", [2.0, 1.0, 0.5, last], seed=seed) for seed, last in enumerate((0.4, 0.4, math.inf))]
    dog = standing([*ADAM, *runs], "dog")
    assert (dog.lost, dog.seeds, dog.loss, dog.spread, dog.verdict) == (1, 3, math.inf, None, "above")


def test_a_long_workload_stands_beside_adamw_and_has_cosine_alone():
    last = {("adamw", 1e-3): 2.2, ("adamw", 3e-3): 2.0, ("adamw", 1e-2): 2.4, ("muon", 3e-2): 1.8, ("muon", 1e-2): 1.0}
    runs = [outcome(name, [4.0, 3.0, loss], lr, "cosine", workload="char-gpt") for (name, lr), loss in last.items()]
    adamw, muon = standings([*runs, outcome("dog", [4.0, 3.5, 3.0], workload="char-gpt")])[:2]
    assert (adamw.optimiser, adamw.lr, adamw.rates, adamw.at_edge, adamw.ratio) == ("adamw", 3e-3, 3, False, 1.0)
    assert (muon.optimiser, muon.lr, muon.at_edge, muon.ratio, muon.verdict) == ("muon", 1e-2, True, 0.5, "below")
    assert muon.steps_share == pytest.approx(2.5 / 3)


def test_without_adam_there_is_nothing_to_compare_with():
    dog = standing([outcome("dog", [2.0, 1.0])], "dog")
    assert (dog.ratio, dog.steps_share, dog.verdict) == (None, None, None)


@pytest.mark.parametrize(
    ("curve", "target", "share"),
    [
        ([4.0, 3.0, 2.0, 1.0], 1.0, 1.0),
        ([4.0, 3.0, 2.0, 1.0], 3.5, 1.5 / 4),
        ([4.0, 3.0, 2.0, 1.0], 5.0, 1 / 4),  # before the first point: an upper bound
        ([4.0, 1.0, 3.0, 3.0], 2.5, 1.5 / 4),  # the first time counts
        ([math.inf, 1.0], 2.0, 1.0),
        ([4.0, math.inf], 2.0, None),
        ([4.0, 3.0], 2.0, None),
    ],
)
def test_steps_to_a_loss_are_read_off_the_curve(curve, target, share):
    assert share_to_reach(curve, target) == (None if share is None else pytest.approx(share))


def test_wins_are_counted_against_every_rival():
    dog = [outcome("dog", [9.0, 8.0, 7.0, 3.5], seed=seed) for seed in range(3)]
    ours = [outcome("agd-stochastic", [9.0, 8.0, 7.0, 1.0], seed=seed) for seed in range(3)]
    counts = {each.rival: (each.below, each.within, each.above) for each in tally(standings([*ADAM, *dog, *ours]))}
    assert counts == {"adam": (1, 0, 0), "dog": (1, 0, 0)}
    adam, also = (standing([*ADAM, *dog], name) for name in ("adam", "dog"))
    assert compare(adam, also) == compare(also, adam) == "within spread"
