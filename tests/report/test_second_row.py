"""StochasticAGD compared with AGD and the rivals: the verdicts follow from the records."""

import json

import pytest

from autogd.report.reproduction.phases import memorised
from autogd.report.reproduction.reading import LEVEL
from autogd.report.reproduction.verdicts import compare, second_row_table
from autogd.training import Run


@pytest.fixture
def recorded(tmp_path):
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
def test_more_accuracy_is_ahead(recorded, agd, adam, ours, verdict):
    runs = [recorded(name, {"test_accuracy": end}) for name, end in (("a", agd), ("b", ours), ("c", adam))]
    assert compare("net", "test_accuracy", *runs[:2], {"Adam 0.001": runs[2]}).verdict == verdict


def test_a_lower_objective_is_ahead_and_the_best_rival_is_the_lowest(recorded):
    agd, ours, adam, sgd = (
        recorded(name, {"objective": end}) for name, end in (("a", 0.8), ("b", 0.6), ("c", 0.7), ("d", 0.5))
    )
    row = compare("net", "objective", agd, ours, {"Adam 0.001": adam, "SGD 0.1": sgd})
    assert row.verdict == "ahead of AGD, behind SGD 0.1"
    assert second_row_table([row]).endswith(
        "| net: objective | 0.800 | 0.500 (SGD 0.1) | 0.600 | *ahead of AGD, behind SGD 0.1* |"
    )


def test_what_diverged_says_so_and_is_behind(recorded):
    good = recorded("good", {"objective": 0.8})
    bad = recorded("bad", {"objective": 0.1}, status="diverged")
    assert compare("net", "objective", good, bad).verdict == "diverged"
    assert compare("net", "objective", bad, good).verdict == "ahead of AGD"


def test_who_knows_the_samples_sooner_is_ahead(recorded):
    def course(name, *accuracies):
        return recorded(name, *({"train_accuracy": a, "learning_rate_mean": 0.1} for a in accuracies))

    late, soon, never = course("late", 0.5, 0.9, 0.995), course("soon", 0.5, 0.995), course("never", 0.5, 0.6)
    assert memorised(late, soon).verdict == "ahead of AGD"
    assert memorised(soon, never).verdict == "behind AGD"
    assert memorised(late, soon).ours.startswith("in epoch 2 of 2; η 0.100 in epoch 1")
