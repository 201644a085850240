"""A user's own network and data on the command line: the same records, checkpoints, report and comparison."""

import json
import sys

import pytest
import torch

from autogd.cli.main import main
from autogd.training import Run

OWN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

def samples(count, seed):
    inputs = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).long() + (inputs[:, 2] > 1).long()

def load():
    return samples(256, 0), samples(64, 1)

def datasets():
    return tuple(TensorDataset(*each) for each in load())

def loaders():
    return tuple(DataLoader(each, batch_size=7, shuffle=True) for each in datasets())

def make():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

def wide():
    return nn.Linear(6, 5)

def tokens():
    codes = torch.arange(64).view(16, 4) % 8
    return (codes, codes), (codes, codes)

def reader():
    return nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 8))

def regression():
    inputs, labels = samples(64, 0)
    return (inputs, labels.float()), (inputs, labels.float())

def line():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))

def gaps():
    (inputs, labels), test = regression()
    return (inputs, labels / labels), test

def holes():
    (inputs, labels), test = load()
    inputs[3, 4] = float("nan")
    return (inputs, labels), test

def pixels():
    images = torch.randn(64, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return ((images, (images[:, 0] > 0).long()),) * 2

def painter():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))

def uneven():
    inputs, labels = samples(64, 0)
    return (inputs, labels[:-1]), (inputs, labels)

def few():
    return nn.Linear(6, 2)

def named():
    return {"logits": 1}

class Loud(nn.Module):
    def forward(self, x):
        return {"logits": x}
"""
SHORT = ["--epochs", "3", "--batch-size", "32", "--json"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ownmod.py").write_text(OWN)
    yield
    sys.modules.pop("ownmod", None)


@pytest.mark.parametrize("loader", ["load", "datasets", "loaders"])
def test_pairs_data_sets_and_loaders_give_the_same_run(loader, capsys):
    for i, name in enumerate(("load", loader)):
        assert main(["train", *SHORT, "--model", "ownmod:make", "--data", f"ownmod:{name}", "--out", f"run{i}"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["test_accuracy"] > 0.8
    assert first["objective"] == second["objective"]


def test_an_own_run_resumes_longer_compares_and_reports(tmp_path, capsys):
    words = ["--model", "ownmod.py:make", "--data", "./ownmod.py:load"]
    assert main(["train", *SHORT, *words]) == 0
    folder = json.loads(capsys.readouterr().out)["run"]
    assert folder.startswith("runs/ownmod-load-ownmod-make-agd-stochastic-")
    assert main(["train", "--resume", folder, "--epochs", "5", "--json"]) == 0
    assert len(Run(tmp_path / folder).metrics()) == 5
    compare = ["compare", *SHORT, *words, "--optimisers", "agd-stochastic", "adam=0.01", "--seeds", "2"]
    capsys.readouterr()
    assert main(compare) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["runs"] for row in rows] == [2, 2]
    assert main(["report", "runs"]) == 0
    assert (tmp_path / "report.html").read_text().count("ownmod") > 3


def test_tokens_and_more_outputs_than_classes_are_fine():
    words = ["--model", "ownmod:reader", "--data", "ownmod:tokens", "--batch-size", "8", "--epochs", "2", "--json"]
    assert main(["train", *words]) == 0
    assert main(["train", *SHORT, "--model", "ownmod:wide", "--data", "ownmod:load", "--loss", "square"]) == 0


def test_labels_that_are_floats_are_a_regression(tmp_path, capsys):
    words = ["--data", "ownmod:regression", "--epochs", "30", "--batch-size", "32"]
    assert main(["train", *words, "--model", "ownmod:line", "--out", "run"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("test objective 0.0")
    assert "%" not in printed.err
    last = Run(tmp_path / "run").metrics()[-1]
    assert last["test_accuracy"] is None
    assert last["test_objective"] < 0.05  # half of the square: guessing the mean leaves 0.16
    assert main(["train", "--resume", "run", "--epochs", "31", "--json"]) == 0
    capsys.readouterr()
    few = ["--data", "ownmod:regression", "--model", "fcn", "--depth", "2", "--epochs", "2", "--seeds", "1"]
    assert main(["compare", *few, "--optimisers", "agd-stochastic", "adam"]) == 0
    table = capsys.readouterr().out
    assert "accuracy" not in table
    assert "test objective" in table
    assert main(["report", "runs", "run"]) == 0
    assert main(["train", *words, "--model", "ownmod:line", "--loss", "cross-entropy"]) == 1
    assert "cross-entropy needs integer labels" in capsys.readouterr().err


def test_classes_may_be_in_the_second_dimension_as_in_torchs_losses(capsys):
    words = ["--model", "ownmod:painter", "--data", "ownmod:pixels", "--batch-size", "16", "--json"]
    assert main(["train", *words, "--epochs", "20"]) == 0
    assert json.loads(capsys.readouterr().out)["test_accuracy"] > 0.9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["ownmod:make", "ownmod:regression"],
            "the labels of ownmod:regression are floats, a regression of shape (2,)",
        ),
        (["ownmod:line", "ownmod:gaps"], "train: labels are nan or infinite; mend or drop these samples"),
        (["ownmod:make", "ownmod:holes"], "train: 1 of 256 samples have inputs that are nan or infinite, the first is"),
        (["ownmod:make", "ownmod:uneven"], "expected a label for every sample"),
        (["ownmod:few", "ownmod:load"], "expected (2, 3), a number for each of the 3 classes"),
        (["ownmod:Loud", "ownmod:load"], "must return one tensor of floats, found a dict"),
        (["ownmod:named", "ownmod:load"], "expected a torch.nn.Module, found a dict"),
        (["ownmod:make", "ownmod:make"], "expected (train, test)"),
        (["ownmod:reader", "ownmod:load"], "ownmod:reader does not take samples of ownmod:load"),
    ],
    ids=" ".join,
)
def test_what_does_not_fit_is_told_before_a_folder_is_left(words, message, capsys, tmp_path):
    model, data = words
    assert main(["train", *SHORT, "--model", model, "--data", data, "--out", "run"]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_own_weights_stay_as_the_factory_left_them_unless_asked():
    from autogd.training import Config
    from autogd.training.setup import Setup

    kept = Setup.build(Config(model="ownmod:make", data="ownmod:load", batch_size=32))
    moved = Setup.build(Config(model="ownmod:make", data="ownmod:load", batch_size=32, start="dimensional"))
    assert float(torch.linalg.matrix_norm(kept.model[0].weight.detach(), 2)) < 1.5
    assert float(torch.linalg.matrix_norm(moved.model[0].weight.detach(), 2)) == pytest.approx(
        (16 / 6) ** 0.5, rel=1e-4
    )
