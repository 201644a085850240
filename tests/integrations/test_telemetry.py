"""Steps are written down every so often, with the numbers that the step had, and not looked at otherwise."""

import json

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD
from autogd.integrations.telemetry import JSONL, TensorBoard


class Watched(AGD):
    """Counts how often somebody looks."""

    looks = 0

    @property
    def last_step(self):
        self.looks += 1
        return super().last_step


def train(hook, optimiser=Watched, steps=7):
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    optimiser = optimiser(model)
    optimiser.register_step_post_hook(hook)
    rates = []
    for _ in range(steps):
        optimiser.zero_grad()
        model(torch.randn(8, 3)).square().mean().backward()
        optimiser.step()
        rates.append(optimiser.learning_rate.item())
    return optimiser, rates


def test_lines_have_the_numbers_of_their_steps_and_nothing_else_is_read(tmp_path):
    optimiser, rates = train(JSONL(tmp_path / "steps.jsonl", every=3))
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 4, 7]
    assert [line["learning_rate"] for line in lines] == [rates[0], rates[3], rates[6]]
    assert optimiser.looks == 3
    assert lines[0]["dual_norms"].keys() == lines[0]["update_sizes"].keys() == {"0.weight", "2.weight"}
    # G is the mean of the layers' dual norms, and L = 2
    assert lines[-1]["gradient_summary"] == pytest.approx(sum(lines[-1]["dual_norms"].values()) / 2)
    assert sum(lines[-1]["update_sizes"].values()) == pytest.approx(rates[-1])


def test_a_run_that_goes_on_appends_and_counts_on(tmp_path):
    train(JSONL(tmp_path / "steps.jsonl", every=3), steps=4)
    train(JSONL(tmp_path / "steps.jsonl", every=3, start=4), steps=4)
    steps = [json.loads(line)["step"] for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert steps == [1, 4, 7]


def test_what_is_not_finite_is_null(tmp_path):
    hook = JSONL(tmp_path / "steps.jsonl", every=1)
    optimiser, _ = train(hook, steps=1)
    optimiser.gradient_summary = torch.tensor(torch.inf)
    hook(optimiser)
    assert json.loads((tmp_path / "steps.jsonl").read_text().splitlines()[-1])["gradient_summary"] is None


def test_the_stochastic_rule_is_told_of_too(tmp_path):
    _, rates = train(JSONL(tmp_path / "steps.jsonl", every=5), StochasticAGD)
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [line["learning_rate"] for line in lines] == [rates[0], rates[5]]


def test_tensorboard_shows_them(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    _, rates = train(TensorBoard(tmp_path, every=2))
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    shown = {event.step: event.value for event in events.Scalars("learning_rate")}
    assert shown == pytest.approx({1: rates[0], 3: rates[2], 5: rates[4], 7: rates[6]})
    assert {"gradient_summary", "dual_norms/0.weight", "update_sizes/2.weight"} <= set(events.Tags()["scalars"])


def test_no_pace_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="every: 0 steps"):
        JSONL(tmp_path / "steps.jsonl", every=0)
