"""The workstation scale: its plan, its costs, and resuming after a stop."""

import json
import os
import signal
from dataclasses import replace

import pytest

from autogd.baselines import PAPER_GRID
from autogd.cli import reproduce
from autogd.cli.main import main
from autogd.experiments import against_rivals, sweeps
from autogd.experiments.catalogue import EXPERIMENTS, Experiment, carry_out
from autogd.experiments.cost import cost, effort, left, spent
from autogd.experiments.packed import pack, unpack
from autogd.experiments.trials import lowest_objective, published, settled, short_then_tuned
from autogd.report.reproduction.reading import best, over_grid, tuning
from autogd.training import Config, Run, Stopped, Watch

TRIALS = {name: config for each in EXPERIMENTS.values() for name, config in each.trials("workstation").items()}
SMALL = published(data="digits", depth=2, width=8, epochs=2, limit=256)
SHORT = short_then_tuned("net/small", SMALL, {"sgd": (1e-3, 1e-2)}, short=1)
FIRST_ROW = [name for name in SHORT if not name.endswith("stochastic")]


def ended(folder, name, **summary):
    run = Run.create(SHORT.get(name, SMALL), folder / name)
    run.write_summary({"status": "finished", **summary})
    return run


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("showcase/fcn32-agd", {"depth": 32, "width": 256, "epochs": 40}),
        ("showcase/fcn32-adam-0.001", {"depth": 32, "width": 256, "epochs": 40}),
        ("showcase/resnet18-agd", {"model": "resnet18", "width": 16, "epochs": 20}),
        ("showcase/resnet18-sgd-0.1", {"model": "resnet18", "width": 16, "epochs": 6}),
        ("showcase/resnet18-sgd-tuned", {"model": "resnet18", "width": 16, "epochs": 20, "lr": None}),
        ("architectures/fcn16-agd", {"depth": 16, "width": 512, "epochs": 100}),
        ("architectures/vgg16-agd", {"model": "vgg16", "width": 16, "epochs": 20}),
        ("versus-tuned/fcn8-adam-1e-05", {"depth": 8, "width": 256, "epochs": 100}),
        ("width-depth/depth8-width512", {"depth": 8, "width": 512, "epochs": 40}),
        ("batch-size/batch4096", {"depth": 4, "batch_size": 4096, "epochs": 20}),
    ],
)
def test_the_plan_sees_all_images_augmented(name, plan):
    config = TRIALS[name].as_dict()
    assert {key: config[key] for key in plan} == plan
    assert config["data"] == "cifar10"
    assert config["limit"] is None
    assert config["augment"]


def test_grids_are_as_planned():
    rates = {
        net: {name: sorted(c.lr for c in trials.values() if c.optimiser == name and c.lr) for name in ("adam", "sgd")}
        for net, trials in (
            ("fcn8", against_rivals.versus_tuned("workstation")),
            ("resnet18", against_rivals.residual("workstation")),
        )
    }
    assert rates["fcn8"] == {"adam": [*PAPER_GRID], "sgd": [*PAPER_GRID]}
    assert rates["resnet18"] == {"adam": [1e-4, 1e-3, 1e-2], "sgd": [1e-3, 1e-2, 1e-1]}
    sizes = {(c.depth, c.width) for c in sweeps.grid("workstation").values()}
    square = {(d, w) for d in (2, 4, 8, 16, 32) for w in (64, 128, 256, 512)}
    assert sizes == square - {(16, 512), (32, 512)}


def test_the_whole_set_is_half_a_day_of_two_cores(tmp_path):
    hours = {name: effort(name, each.trials("workstation"), tmp_path).planned for name, each in EXPERIMENTS.items()}
    assert sum(hours.values()) == pytest.approx(cost(TRIALS.values()).core_hours)  # shared runs count once
    assert 16 < sum(hours.values()) < 24


def test_workstation_lies_between_laptop_and_paper():
    hours = [
        cost(c for each in EXPERIMENTS.values() for c in each.trials(scale).values()).core_hours
        for scale in ("smoke", "laptop", "workstation", "paper")
    ]
    assert hours == sorted(hours)


def test_the_long_run_takes_the_rate_that_the_short_ones_chose(tmp_path):
    for rate, objective in ((1e-3, 0.5), (1e-2, 0.4)):
        ended(tmp_path, f"net/small-sgd-{rate:g}", objective=objective, test_accuracy=1 - objective / rate)
    name = "net/small-sgd-tuned"
    assert settled(name, SHORT[name], SHORT, tmp_path) == replace(SHORT[name], lr=1e-2)


def test_the_long_run_waits_for_the_short_ones(tmp_path):
    ended(tmp_path, "net/small-sgd-0.001", objective=0.5)
    with pytest.raises(ValueError, match=r"sgd-tuned: its rate is the best of .*; first train net/small-sgd-0.01"):
        settled("net/small-sgd-tuned", SHORT["net/small-sgd-tuned"], SHORT, tmp_path)


def test_a_rate_that_diverged_is_not_chosen(tmp_path):
    good = ended(tmp_path, "good", objective=0.9)
    bad = Run.create(SMALL, tmp_path / "bad")
    bad.write_summary({"status": "diverged", "objective": 0.1})
    assert lowest_objective({0.1: bad, 0.01: good}) == 0.01
    assert lowest_objective({0.1: bad}) is None


def test_short_grid_and_tuned_run_are_trained_and_read(tmp_path):
    runs = {str(run.path.relative_to(tmp_path)): run for run in carry_out(SHORT, tmp_path, only=FIRST_ROW)}
    assert list(runs) == FIRST_ROW
    rate, run = best(runs, "net/small-sgd")
    assert list(over_grid(runs, "net/small-sgd")) == [1e-3, 1e-2]
    assert run is runs["net/small-sgd-tuned"]
    assert rate == run.config().lr == lowest_objective(over_grid(runs, "net/small-sgd"))
    assert run.summary()["epochs"] == 2
    assert tuning(runs, "net/small-sgd") == "; rates chosen after 1 epochs"


def test_a_stopped_run_goes_on_and_its_core_hours_add_up(tmp_path):
    class Stop(Watch):
        def epoch(self, record):
            os.kill(os.getpid(), signal.SIGTERM)

    trial = {"net/agd": SMALL}
    whole = tmp_path / "whole"
    (undisturbed,) = carry_out(trial, whole)
    with pytest.raises(Stopped):
        list(carry_out(trial, tmp_path, lambda _: Stop()))
    part = Run(tmp_path / "net/agd")
    assert part.summary() is None
    assert len(part.metrics()) == 1
    assert left(SMALL, part) == pytest.approx(left(SMALL, Run(tmp_path / "new")) / 2)
    before = spent(part)
    (run,) = carry_out(trial, tmp_path)
    assert run.summary()["objective"] == undisturbed.summary()["objective"]
    assert spent(run)["spent_core_hours"] > before["spent_core_hours"] > 0
    assert spent(run)["planned_core_hours"] == before["planned_core_hours"]


def test_packed_records_are_the_same_again_and_none_twice(tmp_path):
    (run,) = carry_out({"net/agd": replace(SMALL, trace=True)}, tmp_path / "out")
    for _ in range(2):
        pack("net/agd", run, tmp_path / "records")
    assert [path.name for path in (tmp_path / "records").iterdir()] == ["net.jsonl"]
    assert unpack(tmp_path / "records", tmp_path / "again") == ["net/agd"]
    assert unpack(tmp_path / "records", tmp_path / "again") == []
    again = Run(tmp_path / "again/net/agd")
    for read in (Run.config, Run.metrics, Run.summary, Run.steps, spent):
        assert read(again) == read(run)


def test_a_run_that_has_not_ended_is_not_packed(tmp_path):
    pack("net/agd", Run.create(SMALL, tmp_path / "net/agd"), tmp_path / "records")
    assert not (tmp_path / "records").exists()


def test_costs_are_told_before_a_run_and_after_it_and_the_rest_waits(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(EXPERIMENTS, "net", Experiment("a small one", lambda scale: SHORT))
    command = ["reproduce", "net", "--scale", "workstation", "--out", str(tmp_path / "out")]
    assert main([*command, "--only", "*-agd", "--records", str(tmp_path / "records")]) == 0
    told = capsys.readouterr().err
    start, end = told.index("net/small-agd: starts, about"), told.index("net/small-agd: objective")
    assert start < end
    assert "core-hours" in told[end:]
    assert "net: not drawn, 4 of its runs are not recorded yet" in told
    assert "records: no records are here yet, so all runs are trained. The published records are in" in told
    (line,) = (tmp_path / "records/net.jsonl").read_text().splitlines()
    assert json.loads(line)["trial"] == "net/small-agd"
    assert json.loads(line)["cost.json"]["spent_core_hours"] > 0
    monkeypatch.setattr("autogd.training.study.train", lambda *_: pytest.fail("it trained"))
    command[-1] = str(tmp_path / "elsewhere")
    assert main([*command, "--only", "*-agd", "--records", str(tmp_path / "records")]) == 0


def test_the_list_tells_core_hours_planned_and_spent(tmp_path, monkeypatch, capsys):
    trials = {"net/agd": SMALL, "other/agd": Config()}
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {"net": Experiment("a small one", lambda scale: trials)})
    list(carry_out(trials, tmp_path, only=["net/agd"]))
    assert main(["reproduce", "--list", "--out", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["core_hours_planned"] == row["core_hours_planned_of_ended"] == cost([SMALL]).core_hours
    assert row["core_hours_spent"] == spent(Run(tmp_path / "net/agd"))["spent_core_hours"]
