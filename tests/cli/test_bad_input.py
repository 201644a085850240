"""Bad input on the command line: one clear line, an exit status, and no file is lost."""

import json
import signal
import sys

import pytest
import torch

from autogd.cli.main import main
from autogd.training import Run, find_runs, loop

SMALL = ["--depth", "2", "--width", "8", "--epochs", "1"]

OWN = """
import torch
from torch import nn

instance = nn.Linear(4, 2)

def fine():
    return nn.Linear(4, 2)

def frozen():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).requires_grad_(False)

def refuses():
    raise RuntimeError("no such weights")

def doubts():
    raise ValueError("bad width")

def narrow():
    return fine(), nn.CrossEntropyLoss(), (torch.randn(8, 3), torch.zeros(8).long())

def leaves():
    raise SystemExit(0)

def unfounded():
    assert False

def words():
    return "train", "test"

def unwidened():
    return fine(), nn.CrossEntropyLoss(), (torch.randn(8, 4), torch.zeros(8).long()), 2

def flat():
    return *unwidened()[:3], lambda k: k

def emptied():
    return fine(), nn.CrossEntropyLoss(), (torch.randn(0, 4), torch.zeros(0).long())

def mislabelled():
    return fine(), nn.CrossEntropyLoss(), (torch.randn(8, 4), torch.zeros(7).long())

class Nothing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1)) / 0

class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1)) @ torch.ones(3, 3)
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("mymod", None)


@pytest.fixture
def mymod(tmp_path):
    (tmp_path / "mymod.py").write_text(OWN)


def refused(words, capsys):
    """The line that a command ends with."""
    assert main(words) == 1
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--device", "cuda"], "device: 'cuda' cannot be used here"),
        (["train", "--device", "gpu"], "device: 'gpu' cannot be used here"),
        (
            ["train", "--data", "text", "--data-dir", "text.txt", "--model", "fcn"],
            "fcn takes images, and text is tokens",
        ),
        (["train", "--model", "gpt"], "gpt takes text, and digits has images"),
        (["train", "--device", "meta"], "device: 'meta' cannot be used here (its tensors have no values)"),
        (["train", "--width", "1000000000000"], "not enough memory"),
        (["train", "--checkpoint-seconds", "-1"], "checkpoint_seconds: expected 0 or more, found -1.0"),
        (["train", "--model", "mymod:frozen"], "every parameter of mymod:frozen is frozen; leave requires_grad=True"),
        (["train", "--epochs", "0"], "epochs: expected at least 1"),
        (["train", "--lr", "0.1"], "lr: agd-stochastic has no learning rate to set"),
        (["compare", "--optimisers"], "--optimisers: name at least one"),
        (["compare", "--seeds", "0"], "--seeds: expected at least 1"),
        (["compare", "--optimisers", "adam", "agd=0.1"], "lr: agd has no learning rate to set"),
        (["sweep", "--grid"], "--grid: name at least one"),
        (["sweep", "--seeds", "-1"], "--seeds: expected at least 1"),
        (["demo", "--out", "x.xyz"], "--out: x.xyz: a name ending in .png"),
        (["demo", "--out", "nowhere/x.png"], "the folder nowhere does not exist"),
        (["bench", "step", "--rounds", "0"], "--rounds: expected at least 1"),
        (["bench", "step", "--optimisers"], "name at least one of each"),
        (["bench", "scale", "--ranks", "8", "0"], "--ranks: expected numbers from 1 to 16,384, found 0"),
        (["bench", "scale", "--ranks", "100000000"], "--ranks: expected numbers from 1 to 16,384, found 100,000,000"),
        (["bench", "scale", "--ranks", "12", "--mesh", "hsdp"], "ranks: 12 cannot be copies over 8 ranks each"),
        (["bench", "scale", "--mesh", "ring"], "mesh: 'ring' is not known; use 'fsdp', 'hsdp' or 'ddp'"),
        (["bench", "scale", "--shapes", "none"], "--shapes: 'none' is not known; choose from gpt2-small"),
        (["bench", "zoo", "--steps", "0"], "--steps: expected at least 1"),
        (["bench", "quality", "--report", "--figure", "x.xyz"], "--figure: x.xyz: a name ending in .png"),
        (["report", "runs", "--out", "page.pdf"], "--out: page.pdf: a name ending in .html"),
        (["explain", "mymod:missing"], "mymod has no 'missing'; it has"),
        (["explain", "nowhere.py:make"], "there is no file nowhere.py"),
        (
            ["explain", "mymod:refuses"],
            "RuntimeError: no such weights (in mymod.py, line 14, in refuses: raise",
        ),
        (["explain", "mymod:doubts"], "ValueError: bad width (in mymod.py, line 17, in doubts"),
        (["doctor", "mymod:fine"], "expected (model, loss_fn, batch)"),
        (["train", "--model", "mymod:Broken"], "in mymod.py, line 57, in forward: return self.layer"),
        (["train", "--model", "mymod:fine"], "mymod:fine does not take samples of digits, of shape (1, 8, 8)"),
        (["train", "--model", "mymod:fine", "--width", "3"], "--width: only autogd's own networks take this"),
        (["train", "--data", "mymod:fine"], "mymod:fine: expected (train, test)"),
        (["train", "--model", "mymod:Nothing"], "gives nan or infinity for finite samples: the model"),
        (["train", "--out", "mymod.py"], "--out: mymod.py is a file; name a folder"),
        (["train", "--out", "mymod.py/run"], "mymod.py is a file; name a folder"),
        (["train", "--out", ""], "--out: the name is empty; name a folder"),
        (["train", "--model", ""], "model: the name is empty"),
        (["train", "--optimiser", "adam", "--lr", "inf"], "lr: expected a finite number above zero, found inf"),
        (["train", "--threads", "100000000"], "found 100000000"),  # OpenMP would end the process without a word
        (["train", "--model", "mymod:leaves"], "SystemExit: 0 (in mymod.py, line 23, in leaves"),
        (["train", "--model", "mymod:unfounded"], "AssertionError (in mymod.py, line 26, in unfounded"),
        (["train", "--data", "mymod:words"], "a sample must be a pair (input, label), found a str"),
        (["compare", "--optimisers", "adam="], "--optimisers: adam=: expected NAME or NAME=RATE"),
        (["compare", "--out", "mymod.py"], "--out: mymod.py is a file; name a folder"),
        (["sweep", "--grid", "0.1", "inf"], "lr: expected a finite number above zero, found inf"),
        (["sweep", "--out", ""], "--out: the name is empty; name a folder"),
        (["explain", "torch:relu"], "torch:relu: it cannot be called without arguments"),
        (["doctor", "mymod:unwidened"], "the fourth value must be widen(k), which returns a Module; found a int"),
        (["doctor", "mymod:flat"], "the fourth value must be widen(k), which returns a Module; widen(1) returns a int"),
        (["reproduce", "showcase", "--out", "mymod.py"], "--out: mymod.py is a file; name a folder"),
        (["reproduce", "showcase", "--records", "mymod.py", "--out", "rep"], "--records: mymod.py is a file"),
        (["bench", "step", "--threads", "100000000"], "found 100000000"),
        (["bench", "quality", "--report", "--out", "nowhere"], "--out: nowhere: no records are there"),
        (["bench", "quality", "--report", "--seeds", "7"], "--seeds: a report has the seeds that are recorded"),
        (["bench", "quality", "--fresh", "--out", "mymod.py/x.jsonl"], "--out: mymod.py is a file; name a folder"),
        (["bench", "trust", "--report", "--out", "nowhere"], "--out: nowhere: no records are there"),
        (["bench", "trust", "--report", "--seeds", "7"], "--seeds: a report has the seeds that are recorded"),
        (["bench", "trust", "--fresh", "--out", "mymod.py"], "--out: mymod.py is a file; name a folder"),
        (["bench", "scale", "--ranks"], "ranks: expected one number or more"),
        (["bench", "scale", "--ranks", "8", "--figure", "nowhere/x.png"], "the folder nowhere does not exist"),
        (["bench", "scale", "--ranks", "8", "--figure", "x.txt"], "--figure: x.txt: a name ending in .png"),
        (["doctor", "mymod:narrow"], "mymod:narrow: the model does not take the batch: RuntimeError: mat1 and mat2"),
        (["doctor", "mymod:mislabelled"], "the loss does not take the model's output and the targets"),
        (["reproduce", "showcase", "--only", "nothing*", "--out", "rep"], "--only: nothing* matches no run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_bad_word_is_one_line_and_leaves_nothing_behind(words, message, capsys, mymod, tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be " * 100)
    before = sorted(tmp_path.rglob("*"))
    assert message in refused(words, capsys)
    left = [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts]
    assert [path for path in left if path not in before and path.name != "runs"] == []


def test_the_doctor_says_that_a_batch_is_empty(mymod, capsys):
    assert main(["doctor", "mymod:emptied"]) == 1
    assert "nothing to train on: the batch has a tensor without values" in capsys.readouterr().out


def test_a_run_of_one_epoch_at_one_rate_draws_its_figure_without_a_warning(tmp_path, capsys):
    # the mean of a constant rate may differ from it in the last digit; warnings are errors here
    words = ["--optimisers", "adam=0.1", "--seeds", "3", "--out", "one"]
    assert main(["compare", *SMALL, *words]) == 0
    captured = capsys.readouterr()
    assert "Warning" not in captured.err
    assert "1 epoch \n" in captured.out or "1 epoch\n" in captured.out or " 1 epoch " in captured.out


def test_an_instance_and_a_file_can_be_explained(mymod, capsys, tmp_path, monkeypatch):
    assert main(["explain", "mymod:instance"]) == 0
    assert "1 of 2×4" in capsys.readouterr().out
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    for place in ("../mymod.py:fine", str(tmp_path / "mymod.py:instance")):
        assert main(["explain", place, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["rows"]) == 2


def test_a_syntax_error_is_told_with_its_line(tmp_path, capsys):
    (tmp_path / "torn.py").write_text("def make(:\n")
    assert "torn.py, line 1: def make(:" in refused(["explain", "torn.py:make"], capsys)


def test_a_module_that_the_users_module_lacks_is_told_with_the_line_that_asks_for_it(tmp_path, capsys):
    (tmp_path / "needy.py").write_text("import no_such_thing\n")
    said = refused(["explain", "needy:make"], capsys)
    assert "No module named 'no_such_thing' (in needy.py, line 1" in said


def test_an_empty_comparison_overwrites_nothing(tmp_path, capsys):
    command = ["compare", *SMALL, "--optimisers", "agd", "--seeds", "1", "--out", "both"]
    assert main([*command, "--json"]) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "both").rglob("*") if path.is_file()}
    capsys.readouterr()
    for words in (["--seeds", "0"], ["--optimisers"]):
        refused([*command, *words], capsys)
    assert {path: path.read_bytes() for path in (tmp_path / "both").rglob("*") if path.is_file()} == before


def test_a_missing_package_is_told_before_anything_is_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "prodigyopt", None)
    monkeypatch.setitem(sys.modules, "dog", None)
    said = refused(["compare", *SMALL, "--optimisers", "agd", "prodigy", "--out", "both"], capsys)
    assert "prodigy needs prodigyopt, which is not installed: pip install 'autogd[bench]'" in said
    assert not (tmp_path / "both").exists()
    assert "dog needs dog-optimizer" in refused(["bench", "step", "--optimisers", "dog", "--rounds", "1"], capsys)
    assert "dog needs dog-optimizer" in refused(["bench", "quality", "--optimisers", "dog", "--fresh"], capsys)
    monkeypatch.setitem(sys.modules, "peft", None)
    assert "the zoo needs peft" in refused(["bench", "zoo"], capsys)


@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_ctrl_c_in_a_study_saves_and_ends_with_130(command, tmp_path, monkeypatch, capsys):
    take_step, steps = loop.take_step, iter(range(100))

    def pressed(*arguments):
        take_step(*arguments)
        if next(steps) == 50:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop, "take_step", pressed)
    assert main([command, "--epochs", "500", "--depth", "2", "--width", "8", "--out", "all"]) == 130
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    assert f"autogd {command}: stopped, and saved in all; repeat the command to continue" in errors
    assert len(list(steps)) == 100 - 51
    (run,) = find_runs(tmp_path / "all")  # later runs have no folder yet
    assert list(run.checkpoints.glob("step-*"))


def test_a_finished_run_is_trained_longer_as_if_it_had_never_ended(tmp_path, capsys):
    from safetensors.torch import load_file

    for name, epochs in (("short", "2"), ("long", "4")):
        assert main(["train", "--depth", "2", "--width", "8", "--epochs", epochs, "--out", name, "--json"]) == 0
    assert main(["train", "--resume", "short", "--epochs", "4", "--json"]) == 0
    capsys.readouterr()
    short, long = (load_file(tmp_path / name / "weights.safetensors") for name in ("short", "long"))
    assert all(torch.equal(short[name], long[name]) for name in long)
    assert [line["epoch"] for line in Run(tmp_path / "short").metrics()] == [1, 2, 3, 4]
    assert Run(tmp_path / "short").summary()["epochs"] == 4
    assert "has 4 epochs already; choose a larger number" in refused(
        ["train", "--resume", "short", "--epochs", "3"], capsys
    )
    words = ["--optimiser", "adam", "--schedule", "cosine", "--out", "cosine", "--json"]
    assert main(["train", *SMALL, *words]) == 0
    capsys.readouterr()
    assert "the schedule of cosine ends at epoch 1" in refused(["train", "--resume", "cosine", "--epochs", "3"], capsys)


def test_as_many_checkpoints_are_kept_as_asked_for(tmp_path, capsys):
    words = ["--depth", "2", "--width", "8", "--epochs", "5", "--checkpoints", "4", "--out", "run", "--json"]
    assert main(["train", *words]) == 0
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 4


def test_an_error_of_our_own_keeps_its_traceback(monkeypatch, capsys):
    from autogd.cli import model

    monkeypatch.setattr(model, "explain", {}.__getitem__)
    with pytest.raises(KeyError):
        main(["explain", "torch.nn:Identity"])
    assert "an error of autogd itself, please report it" in capsys.readouterr().err
