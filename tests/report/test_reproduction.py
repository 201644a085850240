"""Reproduction: verdicts and figures follow from the records, and different budgets are told."""

import json
from dataclasses import replace

import pytest

from autogd.experiments import against_rivals as plans
from autogd.experiments import sweeps as grids
from autogd.report.reproduction import architectures, glance, showcase, width_depth
from autogd.report.reproduction.curves import empty
from autogd.report.reproduction.phases import memorised
from autogd.report.reproduction.reading import LEVEL, moving
from autogd.report.reproduction.verdicts import compare, second_row_table
from autogd.training import Run


@pytest.fixture
def course_of(tmp_path):
    """A run that ended with these numbers, epoch by epoch."""

    def record(name, *rows, status="finished"):
        folder = tmp_path / name
        folder.mkdir()
        lines = [json.dumps({"epoch": i + 1, **row}) for i, row in enumerate(rows)]
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "summary.json").write_text(json.dumps({"status": status}))
        return Run(folder)

    return record


@pytest.mark.parametrize(
    ("agd", "adam", "ours", "verdict"),
    [
        (0.30, 0.40, 0.50, "ahead of both"),
        (0.30, 0.50, 0.40, "ahead of AGD, behind Adam 0.001"),
        (0.50, 0.40, 0.30, "behind both"),
        (0.40, 0.20, 0.40 + LEVEL / 2, "level with AGD, ahead of Adam 0.001"),
    ],
)
def test_more_accuracy_is_ahead(course_of, agd, adam, ours, verdict):
    runs = [course_of(name, {"test_accuracy": end}) for name, end in (("a", agd), ("b", ours), ("c", adam))]
    assert compare("net", "test_accuracy", *runs[:2], {"Adam 0.001": runs[2]}).verdict == verdict


def test_a_lower_objective_is_ahead_and_the_best_rival_is_the_lowest(course_of):
    agd, ours, adam, sgd = (
        course_of(name, {"objective": end}) for name, end in (("a", 0.8), ("b", 0.6), ("c", 0.7), ("d", 0.5))
    )
    row = compare("net", "objective", agd, ours, {"Adam 0.001": adam, "SGD 0.1": sgd})
    assert row.verdict == "ahead of AGD, behind SGD 0.1"
    assert second_row_table([row]).endswith(
        "| net: objective | 0.800 | 0.500 (SGD 0.1) | 0.600 | *ahead of AGD, behind SGD 0.1* |"
    )


def test_what_diverged_says_so_and_is_behind(course_of):
    good = course_of("good", {"objective": 0.8})
    bad = course_of("bad", {"objective": 0.1}, status="diverged")
    assert compare("net", "objective", good, bad).verdict == "diverged"
    assert compare("net", "objective", bad, good).verdict == "ahead of AGD"


def test_who_knows_the_samples_sooner_is_ahead(course_of):
    def course(name, *accuracies):
        return course_of(name, *({"train_accuracy": a, "learning_rate_mean": 0.1} for a in accuracies))

    late, soon, never = course("late", 0.5, 0.9, 0.995), course("soon", 0.5, 0.995), course("never", 0.5, 0.6)
    assert memorised(late, soon).verdict == "ahead of AGD"
    assert memorised(soon, never).verdict == "behind AGD"
    assert memorised(late, soon).ours.startswith("in epoch 2 of 2; η 0.100 in epoch 1")


def recorded(folder, name, config, objective, accuracy):
    run = Run.create(config, folder / name)
    row = {"objective": objective, "train_accuracy": accuracy, "test_accuracy": accuracy}
    row |= {f"learning_rate_{what}": 0.1 for what in ("min", "mean", "max")}
    run.append({"epoch": 1, "step": 1, **row})
    run.write_summary({"status": "finished", **row})
    return run


@pytest.fixture
def residual(tmp_path):
    """ResNet-18 at a workstation's scale: Adam best at 0.001, SGD at 0.1, and both long runs."""
    ends = {"adam-0.001": (0.4, 0.6), "sgd-0.1": (0.3, 0.7), "adam-tuned": (0.2, 0.8), "sgd-tuned": (0.1, 0.9)}
    found = {}
    for name, config in plans.residual("workstation").items():
        end = name.removeprefix("showcase/resnet18-")
        if end.endswith("tuned"):
            config = replace(config, lr={"adam-tuned": 1e-3, "sgd-tuned": 0.1}[end])
        found[name] = recorded(tmp_path, name, config, *ends.get(end, (0.9, 0.3)))
    return found


def test_a_grid_of_few_epochs_is_labelled_and_its_long_run_is_a_star(residual):
    axes = empty(2, 2, "", "").subplots()
    showcase.grid_panel(axes, residual, "showcase/resnet18", ("adam",))
    assert "Adam; rates chosen after 6 epochs" in axes.get_legend_handles_labels()[1]
    stars = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "*"]
    assert stars == [[[1e-3, 80.0]]] * 2


def test_the_residual_network_is_judged_by_the_long_runs(residual, tmp_path):
    others = {**plans.deep("workstation"), **plans.large("workstation")}
    runs = {**residual, **{name: recorded(tmp_path, name, config, 1.0, 0.1) for name, config in others.items()}}
    _, claim, stand_in = showcase.claims(runs)
    assert claim.ours == "test accuracy: AGD 30.0%, Adam 80.0% at 0.001, SGD 90.0% at 0.1"
    assert claim.budget.endswith("; rates chosen after 6 epochs")
    assert "on a stand-in" in stand_in.ours


@pytest.mark.parametrize(
    ("accuracies", "more"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5], True),
        ([0.1, 0.4, 0.5, 0.5, 0.505], False),
        ([0.5] * 8 + [0.52] * 2, True),  # the last fifth
        ([0.5], False),
    ],
)
def test_more_epochs_would_move_what_the_last_fifth_of_them_moved(accuracies, more, tmp_path):
    run = Run.create(plans.residual("smoke")["showcase/resnet18-agd"], tmp_path / "run")
    for epoch, accuracy in enumerate(accuracies, start=1):
        run.append({"epoch": epoch, "test_accuracy": accuracy})
    assert moving(run) == more


def test_a_claim_is_shown_at_the_last_scale_at_which_it_has_ended(tmp_path):
    folders = {scale: tmp_path / scale for scale in ("laptop", "workstation")}
    for scale, folder in folders.items():
        plan = {**plans.deep(scale), **plans.residual(scale)}
        for name, config in plan.items():
            if not (scale == "workstation" and name.endswith("resnet18-sgd-0.1")):  # one has not ended
                recorded(folder, name, replace(config, lr=config.lr or 0.1), 0.5, 0.5)
    _, table = glance(folders)
    scales = {line.split(" | ")[0]: line.split(" | ")[5] for line in table.splitlines() if "accuracy |" in line}
    assert scales == {"| 32-layer FCN: train accuracy": "workstation", "| ResNet-18: test accuracy": "laptop"}


def test_stand_ins_say_so_and_the_others_do_not(tmp_path):
    from autogd.experiments.against_rivals import architectures as trials

    plan = {name: replace(c, lr=1e-3) if name.endswith("tuned") else c for name, c in trials("workstation").items()}
    runs = {name: recorded(tmp_path, name, config, 0.5, 0.5) for name, config in plan.items()}
    claims = architectures.claims(runs)
    assert ["stand-in" in claim.ours for claim in claims] == [False, False, True, True]


def test_the_widest_network_had_more_epochs_and_is_not_in_the_order_by_width(tmp_path):
    plan = {**grids.grid("workstation"), **grids.phases("workstation")}
    name = "width-depth/depth4-width"
    plan[f"{name}2048"] = replace(plan[f"{name}512"], width=2048, epochs=80)
    # wider is better, except for the widest, whose objective must not count
    runs = {
        name: recorded(tmp_path, name, config, 9.0 if config.width == 2048 else 1 / config.width, config.width / 1e4)
        for name, config in plan.items()
    }
    best, _, wider, *_ = width_depth.claims(runs)
    assert best.ours == "20.5% (depth 4, width 2048)"
    assert best.budget.endswith("; depth 4, width 2048: 80 epochs")
    assert wider.ours == "13 of 13 doublings of the width lower it"
    assert wider.verdict == "reproduced"
