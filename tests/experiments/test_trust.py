"""The benchmark of trust: cells disturb what they name, runs repeat, records resume, and means are compared."""

import json
import math

import pytest
import torch
from torch import nn

from autogd.experiments.trust import runs as attempting
from autogd.experiments.trust.cell import Cell, Outcome, Run, Setting, started
from autogd.experiments.trust.cells import CELLS, FAMILIES
from autogd.experiments.trust.other_losses import Ring
from autogd.experiments.trust.records import Records
from autogd.experiments.trust.runs import OPTIMISERS, RATES, SEEDS, attempt, runs
from autogd.experiments.trust.summary import count, side, standings, verdict
from autogd.experiments.trust.supervised import SOURCES, Supervised, at_first, spikes


def made(cell, optimiser, loss, lr=None, seed=0, logit=None):
    return Outcome(Run(cell, optimiser, lr, seed), CELLS[cell].steps, loss, logit, 1.0)


def table(*outcomes):
    return {outcome.run: outcome for outcome in outcomes}


TINY = Supervised("tumours", lambda: nn.Linear(30, 2), batch=8, steps=20)


@pytest.mark.parametrize("optimiser", ["agd-stochastic", "adam"])
def test_a_tiny_cell_trains_and_repeats_to_the_bit(optimiser, monkeypatch):
    cell = Cell("tiny", "small-batches", "", 20, TINY)
    monkeypatch.setitem(attempting.CELLS, "tiny", cell)
    lr = 0.01 if optimiser == "adam" else None
    first, again, other = (attempt(Run("tiny", optimiser, lr, seed)) for seed in (0, 0, 1))
    assert first.loss < math.log(2)
    assert (first.loss, first.logit) == (again.loss, again.logit)
    assert first.loss != other.loss
    assert first.steps == 20
    assert first.logit > 0


def test_a_run_that_is_not_finite_is_lost(monkeypatch):
    lost = Supervised("tumours", TINY.model, 8, 20, disturbance=at_first(loss=math.inf))
    monkeypatch.setitem(attempting.CELLS, "tiny", Cell("tiny", "spikes", "", 20, lost))
    for optimiser in ("agd-stochastic", "adam"):
        assert attempt(Run("tiny", optimiser)).loss == math.inf


def test_inputs_and_losses_are_multiplied_only_where_they_should_be():
    assert [at_first(inputs=100.0)(step) for step in (0, 1, 150)] == [(100.0, 1.0), (1.0, 1.0), (1.0, 1.0)]
    regular = [spikes(1e3, every=50)(step)[1] for step in range(300)]
    assert [step + 1 for step, factor in enumerate(regular) if factor == 1e3] == [50, 100, 150, 200, 250, 300]
    assert sum(spikes(1e6, at=150)(step)[1] for step in range(300)) == 1e6 + 299


def test_a_disturbed_start_differs_from_its_twin_in_the_disturbance_alone():
    for cell in CELLS.values():
        if cell.twin:
            one, other = cell.train, CELLS[cell.twin].train
            shared = ("data", "model", "batch", "steps", "start", "then", "averaged")
            assert all(getattr(one, name) == getattr(other, name) for name in shared)
            assert (one.size != other.size) != (one.disturbance is not other.disturbance)


def test_weights_start_where_the_cell_says():
    def drawn(optimiser, *more):
        return started(lambda: nn.Linear(6, 6), Setting(optimiser), "here", *more).weight

    assert torch.equal(drawn("adam"), drawn("adam", "torch"))
    assert torch.equal(drawn("agd-stochastic"), drawn("adam", "dimensional"))
    assert torch.equal(drawn("agd-stochastic", "torch"), drawn("adam"))
    torch.testing.assert_close(drawn("adam", "torch", 10.0), 10 * drawn("adam"))


def test_small_batches_see_the_same_number_of_samples():
    for network in ("gru", "mlp", "cnn", "tumours"):
        assert len({batch * CELLS[f"{network}-{batch}"].steps for batch in (1, 2, 4, 8, 16)}) == 1


def test_half_of_the_labels_are_random_and_the_test_is_clean():
    clean, noisy = SOURCES["digits"](None), SOURCES["digits, half of the labels random"](None)
    every = torch.arange(clean.samples)
    kept = (clean.batch(every)[1] == noisy.batch(every)[1]).float().mean()
    assert 0.5 < kept < 0.6  # a tenth of the random labels are right by chance
    assert torch.equal(clean.held_out[1], noisy.held_out[1])


def test_after_the_change_no_label_is_what_it_was():
    clean, moved = SOURCES["digits"](None), SOURCES["digits, every label moved by one"](None)
    every = torch.arange(clean.samples)
    assert not (clean.batch(every)[1] == moved.batch(every)[1]).any()
    assert not (clean.held_out[1] == moved.held_out[1]).any()
    assert len(SOURCES["tumours"](None).held_out[1]) == 569 - 455


def test_a_loss_below_its_floor_counts_as_the_floor():
    assert Ring(steps=1, floor=9.0)(Setting("adam", 1e-3)).loss == 9.0


def test_the_runs_are_five_seeds_of_ours_and_fifteen_of_adam():
    every = list(runs(CELLS, ["agd-stochastic", "adam"]))
    assert len(every) == len(set(every)) == 20 * len(CELLS)
    assert {run.lr for run in every if run.optimiser == "adam"} == set(RATES)
    assert {run.lr for run in runs(["gan"], OPTIMISERS) if run.optimiser != "adam"} == {None}


def test_every_cell_has_its_name_and_a_twin_that_is_there():
    assert all(cell.name == name for name, cell in CELLS.items())
    assert not set(CELLS) & set(FAMILIES) - {"gan", "spikes", "label-noise"}  # names that stand for the same cells
    assert all(CELLS[cell.twin].twin is None for cell in CELLS.values() if cell.twin)


def test_the_best_rate_is_that_of_the_lowest_mean_over_the_seeds():
    adam = [
        made("gan", "adam", loss, 1e-3, seed) for seed, loss in enumerate((0.1, 0.9))
    ]  # best single run, worse mean
    adam += [made("gan", "adam", loss, 3e-3, seed) for seed, loss in enumerate((0.3, 0.5))]
    adam += [made("gan", "adam", 0.2, 3e-4)]  # one seed only
    found = side(adam)
    assert (found.lr, found.loss, found.seeds) == (3e-3, pytest.approx(0.4), 2)
    assert found.spread == pytest.approx(math.sqrt(0.02))


def test_a_failed_seed_loses_the_cell_and_a_failed_rate_is_not_the_best():
    adam = [made("gan", "adam", math.inf, 3e-3), made("gan", "adam", 2.0, 1e-3)]
    ours = [made("gan", "agd-stochastic", loss, seed=seed) for seed, loss in enumerate((0.1, math.inf))]
    (row,) = standings(table(*adam, *ours), [CELLS["gan"]])
    assert (row.adam.lr, row.ours.failed, row.verdict, row.ratio) == (1e-3, 1, "lost", math.inf)


@pytest.mark.parametrize(
    ("ours", "adam", "word"),
    [(1.25, 1.0, "lost"), (1.15, 1.0, "even"), (0.9, 1.0, "even"), (0.8, 1.0, "won"), (3.0, math.inf, "won")],
)
def test_verdicts(ours, adam, word):
    assert verdict(ours, adam) == word


def test_a_disturbed_start_is_compared_with_its_own_twin():
    outcomes = [made("own", "agd-stochastic", 0.2), made("own-loss-10", "agd-stochastic", 0.3)]
    outcomes += [made("own", "adam", 0.4, 1e-3), made("own-loss-10", "adam", 0.4, 3e-3)]
    twin, disturbed = standings(table(*outcomes), [CELLS["own"], CELLS["own-loss-10"]])
    assert (twin.recovery, twin.adam_recovery) == (None, None)
    assert (disturbed.recovery, disturbed.adam_recovery) == (pytest.approx(1.5), 1.0)
    assert [(each.family, each.won, each.even, each.lost) for each in count([twin, disturbed])] == [
        ("bad-starts", 2, 0, 0),
        ("all", 2, 0, 0),
    ]


def test_a_later_line_counts_and_a_changed_budget_or_a_vanished_cell_does_not(tmp_path):
    records = Records(tmp_path)
    for loss in (0.5, math.inf):
        records.add(made("gan", "adam", loss, 1e-3))
    records.add(Outcome(Run("bandit", "adam", 1e-3), 7, 0.1, None, 1.0))
    records.add(Outcome(Run("chess", "adam", 1e-3), 7, 0.1, None, 1.0))
    assert [(run.cell, outcome.loss) for run, outcome in records.every().items()] == [("gan", math.inf)]


def test_what_is_set_aside_stays_so_until_it_is_run_again(tmp_path):
    below = Records(tmp_path / "below")
    for seed in SEEDS:
        below.add(made("gan", "agd-stochastic", 1.0, seed=seed))
        below.add(made("gan", "adam", 1.0, 1e-3, seed))
    before = below.path.read_text()
    over = Records(tmp_path / "over", below)
    over.set_aside(["gan"], ["agd-stochastic"], [0, 1])
    over.add(made("gan", "agd-stochastic", 2.0, seed=1))
    for _ in range(2):  # as written, and tidied
        found = over.every()
        ours = {run.seed: outcome.loss for run, outcome in found.items() if run.optimiser == "agd-stochastic"}
        assert ours == {1: 2.0, 2: 1.0, 3: 1.0, 4: 1.0}
        assert sum(run.optimiser == "adam" for run in found) == 5
        over.tidy()
    assert below.path.read_text() == before


def test_a_tidy_file_has_a_line_a_run_in_the_order_of_the_cells(tmp_path):
    records = Records(tmp_path)
    for seed, cell in ((1, "gan"), (0, "gan"), (0, "mlp-1"), (1, "gan")):
        records.add(made(cell, "agd-stochastic", 0.123456789, seed=seed))
    records.set_aside(["gan"], ["agd-stochastic"], [0])
    records.tidy()
    lines = [json.loads(line) for line in records.path.read_text().splitlines()]
    assert [(line["cell"], line["seed"], line["loss"]) for line in lines] == [
        ("mlp-1", 0, 0.12346),
        ("gan", 1, 0.12346),
    ]
