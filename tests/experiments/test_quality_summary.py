"""The summary of the benchmark of training quality, on hand-made records with known answers."""

import math

import pytest

from autogd.experiments.quality.race import Cell, Outcome
from autogd.experiments.quality.summary import compare, share_to_reach, standings, tally


def outcome(optimiser, losses, lr=None, schedule="constant", seed=0, seconds=10.0, accuracy=0.5, workload="gpt"):
    cell = Cell(workload, optimiser, lr, schedule, seed)
    return Outcome(cell, 100, losses, [accuracy] * len(losses), losses, [0.1] * len(losses), seconds)


def grid(optimiser, last, schedule="constant"):
    """One run per learning rate, with one seed."""
    return [outcome(optimiser, [9.0, 8.0, 7.0, loss], lr, schedule) for lr, loss in last.items()]


CONSTANT = {1e-4: 5.0, 1e-3: 2.5, 1e-2: 2.2, 1e-1: 3.0, 1.0: math.inf}
COSINE = {1e-4: 5.5, 1e-3: 2.0, 1e-2: 2.1, 1e-1: 3.0, 1.0: math.inf}
# the winner, 1e-3 with cosine, ends at 2, 3 and 4: a mean of 3 and a standard deviation of 1
SEEDS = [outcome("adam", [9.0, 8.0, 7.0, 2.0 + seed], 1e-3, "cosine", seed) for seed in (1, 2)]
ADAM = [*grid("adam", CONSTANT), *grid("adam", COSINE, "cosine"), *SEEDS]


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
    narrow = standing([*grid("adam", few), *grid("adam", few, "cosine"), *SEEDS], "adam")
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
