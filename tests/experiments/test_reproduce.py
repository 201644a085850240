"""The paper's experiments: each builds, runs at the smallest scale, and is drawn again without training."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from autogd import data, models
from autogd.cli import reproduce
from autogd.cli.main import main
from autogd.data import Task, TensorSplit
from autogd.experiments import cost, sweeps
from autogd.experiments.catalogue import EXPERIMENTS
from autogd.experiments.trials import SCALES, published
from autogd.report.reproduction import show
from autogd.report.reproduction.tables import THEORIES
from autogd.training import Config, Run, Stopped
from autogd.training.setup import Setup

ROOT = Path(__file__).parents[2]
# the second row has less than the first here
CUT = {
    "laptop": {"width-depth/phases": {"epochs": 30}},
    "workstation": {
        "width-depth/phases": {"width": 256, "epochs": 30},
        "showcase/fcn32": {"epochs": 10},
        "architectures/fcn16": {"epochs": 5},
        "versus-tuned/fcn8": {"epochs": 30},
        **{f"batch-size/batch{size}": {"epochs": 20} for size in (128, 1024, 4096)},
    },
}
PAPER = {name: trial for each in EXPERIMENTS.values() for name, trial in each.trials("paper").items()}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """All experiments at the smallest scale, once for this file."""
    folder = tmp_path_factory.mktemp("smoke")
    assert main(["reproduce", "all", "--scale", "smoke", "--out", str(folder), "--json"]) == 0
    return folder


@pytest.mark.slow
def test_all_at_the_smallest_scale_ends_with_every_table_and_figure(smoke):
    assert {path.stem for path in smoke.glob("*.txt")} == {"overview", *EXPERIMENTS}
    assert {path.stem for path in smoke.glob("*.png")} == {"overview", *EXPERIMENTS} - {"theories-table"}


def test_the_smallest_scale_is_work_for_minutes_on_one_core():
    # counted, not timed: 5 ms a step and 10 Gflop/s make less than two
    found = cost.cost([config for each in EXPERIMENTS.values() for config in each.trials("smoke").values()])
    assert found.steps < 2_000
    assert found.operations < 1e12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["batch-size", "width-depth"])
def test_drawing_again_trains_nothing_and_gives_the_same(smoke, name, monkeypatch):
    path = smoke / f"{name}.png"
    figure = path.read_bytes()
    path.unlink()
    monkeypatch.setattr("autogd.training.study.train", lambda *_: pytest.fail("it trained"))
    assert main(["reproduce", name, "--out", str(smoke), "--json"]) == 0
    assert path.read_bytes() == figure


@pytest.mark.slow
def test_records_stay_and_weights_and_checkpoints_go(smoke):
    kinds = {path.name for path in smoke.rglob("*") if path.is_file() and path.parent != smoke}
    assert kinds == {"config.json", "cost.json", "metrics.jsonl", "summary.json", "steps.json"}
    assert not list(smoke.rglob("checkpoints"))


@pytest.mark.slow
def test_where_the_data_are_is_not_recorded(smoke):
    configs = [Run(path.parent).config() for path in smoke.rglob("config.json")]
    assert all(config.data_dir is None and config.device == "auto" for config in configs)


@pytest.mark.slow
def test_every_step_of_the_first_epoch_is_recorded(smoke):
    run = Run(smoke / "batch-size/batch32")
    steps, first = run.steps(), run.metrics()[0]
    assert len(steps["objective"]) == first["step"] == 1437 // 32
    assert sum(steps["objective"]) / len(steps["objective"]) == pytest.approx(first["objective"], rel=1e-4)
    assert max(steps["learning_rate"]) == pytest.approx(first["learning_rate_max"], rel=1e-4)


def test_what_is_not_recorded_is_not_drawn(tmp_path):
    with pytest.raises(ValueError, match=r"batch-size/batch32.*not recorded yet"):
        show("batch-size", "smoke", tmp_path)


def test_stopping_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise Stopped("stopped", 2)

    monkeypatch.setattr("autogd.training.study.train", stop)
    assert main(["reproduce", "batch-size", "--out", str(tmp_path), "--json"]) == 130
    assert "repeat the command to continue" in capsys.readouterr().err


def test_an_unknown_experiment_is_named(capsys):
    assert main(["reproduce", "figure-9"]) == 1
    assert "figure-9: there is no such experiment; choose all or one of showcase" in capsys.readouterr().err


def test_the_list_says_what_each_costs(capsys):
    assert main(["reproduce", "--list", "--scale", "paper", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(EXPERIMENTS)
    assert rows["showcase"]["gpu_hours"] > rows["batch-size"]["gpu_hours"] > 0
    assert main(["reproduce", "--list"]) == 0
    assert "versus-tuned" in capsys.readouterr().out


def test_the_full_scale_tells_its_gpu_hours_before_it_starts(tmp_path, monkeypatch, capsys):
    def begin(*_):
        raise Stopped("stopped", 2)

    monkeypatch.setattr(reproduce, "_train", begin)
    assert main(["reproduce", "width-depth", "--scale", "paper", "--out", str(tmp_path)]) == 130
    assert re.search(r"62 runs: .* GPU-hours", capsys.readouterr().err.replace("\n", " "))


def test_resnet_50_is_counted_as_in_the_literature():
    # 4.1e9 multiply-adds for 224 pixels: two operations each, three passes to train and one to test
    found = cost.cost([published(data="imagenet", model="resnet50", epochs=1, batch_size=1024)])
    assert found.operations == pytest.approx(2 * 4.1e9 * (3 * 1_281_167 + 50_000), rel=0.05)


def test_polar_factors_are_counted_for_the_rule_that_takes_them():
    # four steps of three products: 2 n³ each for the square matrix, 2, 6 and 6 n³ for the one three times as wide
    wide = published(depth=3, width=1024, epochs=1, limit=128)
    plain, ours = (cost.cost([replace(wide, optimiser=name)]) for name in ("agd", "agd-stochastic"))
    assert ours.steps == plain.steps == 1
    assert 4 * 2 * 2 * 1024**3 < ours.operations - plain.operations < (3 + 7) * 4 * 2 * 1024**3 * 1.01


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_run_has_the_settings_of_the_published_curves(name, scale):
    for trial, config in EXPERIMENTS[name].trials(scale).items():
        assert config == config.resolved(), trial
        assert config.loss == ("cross-entropy" if "resnet50" in trial else "mse")
        assert config.augment != ("phases" in trial and config.data != "digits")
        assert config.start is None
        assert config.data_dir is None
        assert "batch" in trial or config.batch_size == (1024 if config.data == "imagenet" else 128)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "theories-table"])
def test_the_second_row_has_the_tasks_of_the_first(name, scale):
    trials = EXPERIMENTS[name].trials(scale)
    mine = {trial: config for trial, config in trials.items() if config.optimiser == "agd-stochastic"}
    assert mine
    if scale != "workstation":  # there only a part is run
        assert len(mine) == sum(config.optimiser == "agd" for config in trials.values())
    for trial, config in mine.items():
        stem = trial.removesuffix("-agd-stochastic")
        agd = trials.get(f"{stem}-agd") or trials[stem]
        small = CUT.get(scale, {}).get(stem, {})
        assert config == replace(agd, optimiser="agd-stochastic", **small)


def test_the_settings_of_the_theory_are_others():
    output, labels = torch.randn(4, 10), torch.arange(4)
    tasks = [Setup.build(config) for config in (Config(depth=2, width=8), published(data="digits", depth=2, width=8))]
    theory, curves = (task.loss(output, labels) for task in tasks)
    assert curves == 2 * theory


@pytest.mark.parametrize("key", sorted({(c.data, c.model, c.depth, c.width) for c in PAPER.values()}, key=str))
def test_every_network_of_the_full_scale_builds_and_has_gradients_on_meta(key):
    name, model, depth, width = key
    shape, classes, _, _ = cost.SETS[name]
    with torch.device("meta"):
        network = models.build(model, shape, classes, depth=depth, width=width)
        network(torch.zeros(2, *shape)).square().mean().backward()
    assert all(p.grad.shape == p.shape for p in network.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(
    "trial",
    [
        "showcase/fcn32-agd",
        "showcase/fcn32-agd-stochastic",
        "showcase/fcn32-adam-0.001",
        "showcase/resnet18-sgd-0.01",
        "showcase/resnet50-agd",
        "showcase/resnet18-agd-stochastic",
        "architectures/vgg16-agd",
        "versus-tuned/fcn8-sgd-plain-0.1",
        "width-depth/depth4-width512",
        "batch-size/batch4096",
    ],
)
def test_the_full_scale_takes_steps_on_a_few_samples(trial, monkeypatch):
    config = PAPER[trial]
    shape, classes, _, _ = cost.SETS[config.data]

    def few(*_, **__):
        torch.manual_seed(0)
        split = TensorSplit(torch.randn(4, *shape), torch.arange(4))
        return Task(config.data, split, split, classes, shape)

    monkeypatch.setattr(data, "load", few)
    setup = Setup.build(config)
    assert setup.batch_size == 4  # all samples

    def closure():
        setup.model.zero_grad()
        loss = setup.loss(setup.output(inputs), labels)
        loss.backward()
        return loss

    (inputs, labels), before = setup.train_batch(torch.arange(4), 0)[0], next(setup.model.parameters()).detach().clone()
    for _ in range(2):
        assert torch.isfinite(setup.optimiser.step(closure))
    assert not torch.equal(next(setup.model.parameters()), before)


def test_the_laptop_leaves_out_the_corner_that_is_deep_and_wide():
    sizes = {(c.depth, c.width) for c in sweeps.grid("laptop").values()}
    assert (8, 512) in sizes
    assert (16, 512) not in sizes
    assert (32, 256) in sizes


@pytest.mark.parametrize("theory", THEORIES, ids=lambda theory: theory.name)
def test_every_tick_leads_to_code_or_a_test(theory):
    assert theory.loss or theory.network
    assert theory.places
    assert all((ROOT / place).is_file() for place in theory.places)
    assert any(place.startswith("tests/") for place in theory.places)
