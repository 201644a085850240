"""Telemetry is written every n steps, with the numbers of the step, and other steps are not read."""

import json
import sys
import warnings

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD
from autogd.integrations.telemetry import JSONL, MLflow, TensorBoard, WandB


class Watched(AGD):
    """Counts the reads."""

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
    with pytest.raises(ValueError, match="every: expected at least 1"):
        JSONL(tmp_path / "steps.jsonl", every=0)


def test_weights_and_biases_gets_the_numbers_over_the_optimisers_own_steps(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs Weights & Biases: pip install 'autogd[tracking]'")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=str(tmp_path), project="test") as run:
        logged = []
        monkeypatch.setattr(run, "log", lambda numbers, log=run.log: (logged.append(numbers), log(numbers))[1])
        run.log({"mine": 1})  # a user's own metrics keep their own steps
        _, rates = train(WandB(every=3))
    assert [point["autogd/step"] for point in logged[1:]] == [1, 4, 7]
    assert [point["autogd/learning_rate"] for point in logged[1:]] == [rates[0], rates[3], rates[6]]
    assert logged[1]["autogd/update_sizes/0.weight"] > 0
    with pytest.raises(ValueError, match="call wandb"):
        WandB()


def test_mlflow_gets_the_numbers_of_each_step(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install 'autogd[tracking]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own
        mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
        with mlflow.start_run() as run:
            _, rates = train(MLflow(every=3))
        client = mlflow.MlflowClient()
        history = client.get_metric_history(run.info.run_id, "learning_rate")
        assert [point.step for point in history] == [1, 4, 7]
        assert [point.value for point in history] == [rates[0], rates[3], rates[6]]
        assert client.get_metric_history(run.info.run_id, "update_sizes/0.weight")
        with pytest.raises(ValueError, match="call mlflow"):
            MLflow()


def test_without_the_packages_the_error_names_the_extra(monkeypatch):
    for module, hook in (("wandb", WandB), ("mlflow", MLflow)):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=r"autogd\[tracking\]"):
            hook()
