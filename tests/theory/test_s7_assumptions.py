"""The assumptions along a real run: full-batch AGD on handwritten digits, from a start at Prescription 1."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from autogd import AGD, initialise_
from autogd.losses import one_hot, square_loss
from autogd.theory.check.draws import fully_connected
from autogd.theory.s6_convergence import critical_point_rate
from autogd.theory.s7_assumptions import follow, measure_run, stable_rank

STEPS = 600


def problem(samples=64):
    digits = load_digits()
    x = torch.tensor(digits.data[:samples], dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True) * math.sqrt(x.shape[1])
    y = one_hot(torch.tensor(digits.target[:samples]), 10).double()
    return initialise_(fully_connected([64, 32, 32, 32, 32, 10]), torch.Generator().manual_seed(0)), x, y


@pytest.fixture(scope="module")
def run():
    return measure_run(problem()[0], square_loss, *problem()[1:], steps=STEPS)


def test_agd_descends_wherever_the_assumptions_hold_to_their_margin(run):
    sound = [record for record in run if record.assumption_1 and record.within_penalty]
    assert len(sound) > 150
    assert all(record.change < 0 for record in sound)
    # the first 150 steps are an unbroken descent
    assert sound[:150] == run[:150]


def test_descent_is_at_least_what_is_promised_less_what_assumption_1_costs(run):
    for record in run:
        if record.within_penalty:
            assert record.change <= -record.margin + record.model_term + 1e-12


def test_least_summary_stays_below_the_corrected_rate_and_that_of_its_own_start(run):
    least = math.inf
    for record in run:
        least = min(least, record.gradient_summary**2)
        assert least <= critical_point_rate(record.step)
        assert least <= critical_point_rate(record.step, start=run[0].objective)


def test_the_run_shows_where_the_assumptions_stop_holding(run):
    """The weights outgrow Prescription 1, the loss term its bound, and only later does a step ascend."""
    outside = next(record.step for record in run if not record.within_penalty)
    ascent = next((record.step for record in run if record.change > 0), math.inf)
    assert 150 < outside < 250 < ascent
    assert max(run[outside - 1].drift.values()) > 1.3
    assert all(record.assumption_1 for record in run)
    # Assumption 2 does not hold, at the start or later: stable ranks reach several
    assert max(run[0].stable_rank.values()) > 1.2
    assert max(max(record.stable_rank.values()) for record in run) > 3


def test_norms_never_drift_further_than_weyl_allows(run):
    for record in run:
        assert all(abs(drift - 1) <= record.weyl * (1 + 1e-9) for drift in record.drift.values())
    assert all(b.weyl > a.weyl for a, b in pairwise(run))


def test_alpha_is_never_above_one(run):
    assert all(0 <= record.alpha <= 1 + 1e-9 for record in run)


def test_each_record_tells_the_whole_change(run):
    for record in run:
        total = -record.learning_rate * record.gradient_summary + record.model_term + record.loss_term
        assert record.change == pytest.approx(total, abs=1e-12)


def test_records_are_plain_data(run):
    back = json.loads(json.dumps([record.as_dict() for record in run[:2]]))
    assert back[0]["step"] == 1
    assert set(back[0]["stable_rank"]) == {f"{2 * k}.weight" for k in range(5)}
    assert back[1]["orthogonality"] == pytest.approx(run[1].model_term / run[1].loss_term)


def test_measuring_does_not_change_the_training():
    model, x, y = problem(16)
    plain, _, _ = problem(16)
    measure_run(model, square_loss, x, y, steps=5)
    optimiser = AGD(plain)
    for _ in range(5):
        optimiser.zero_grad()
        square_loss(plain(x), y).backward()
        optimiser.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def test_ranks_and_drift_are_those_of_the_singular_values():
    model, x, y = problem(16)
    square_loss(model(x), y).backward()
    gradients = {name: p.grad.numpy().copy() for name, p in model.named_parameters()}
    record = next(follow(model, square_loss, x, y, AGD(model), 1))
    for name, parameter in model.named_parameters():
        s = np.linalg.svd(gradients[name], compute_uv=False)
        assert record.stable_rank[name] == pytest.approx((s**2).sum() / s[0] ** 2)
        w = np.linalg.svd(parameter.detach().numpy(), compute_uv=False)
        assert record.drift[name] == pytest.approx(w[0] / math.sqrt(parameter.shape[0] / parameter.shape[1]))
    assert stable_rank(torch.zeros(3, 3)) == 1


def test_with_one_sample_assumption_2_is_exact_and_agd_descends_at_the_rate():
    model, x, y = problem(1)
    records = measure_run(model, square_loss, x, y, steps=100)
    assert all(max(record.stable_rank.values()) < 1 + 1e-9 for record in records)
    held = [record for record in records if record.assumption_1 and record.within_penalty]
    assert len(held) > 50
    assert all(record.change < 0 for record in held)
    assert min(record.gradient_summary for record in records) ** 2 <= critical_point_rate(100)


def test_every_thins_the_records():
    model, x, y = problem(16)
    records = measure_run(model, square_loss, x, y, steps=7, every=3)
    assert [record.step for record in records] == [1, 4, 7]
