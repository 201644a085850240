import json
import os
import pickle
import resource
import signal

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from autogd.training import Run, checkpoint, train


def stepped(width=4):
    model = nn.Linear(width, width)
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.ones(1, width)).sum().backward()
    optimiser.step()
    return model, optimiser


def test_every_kind_of_value_comes_back_as_it_was(tmp_path):
    model, optimiser = stepped()
    rest = {"epoch": 3, "rate": 0.1, "tiny": 5e-324, "far": float("inf"), "pair": (1, [None, True, "a"]), 7: "seven"}
    path = checkpoint.save(tmp_path, 1, model, optimiser, {**rest, "rows": torch.arange(3.0)})
    found = checkpoint.load(path, model, optimiser)
    assert torch.equal(found.pop("rows"), torch.arange(3.0))
    assert found == rest


def test_only_the_newest_checkpoint_is_kept_and_a_draft_is_never_taken_for_one(tmp_path):
    model, optimiser = stepped()
    for step in (1, 2):
        checkpoint.save(tmp_path, step, model, optimiser, {})
    (tmp_path / "draft-000000003").mkdir()
    assert checkpoint.latest(tmp_path) == tmp_path / "step-000000002"
    assert not (tmp_path / "step-000000001").exists()


def test_a_full_disk_is_an_error_that_keeps_the_last_good_checkpoint(tmp_path):
    model, optimiser = stepped(64)
    good = checkpoint.save(tmp_path, 1, model, optimiser, {"epoch": 1})
    weights = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.zero_()
    # a limit on the size of files stands in for the disk: writing past it fails in the middle of a file
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(
            OSError, match=r"could not be written \(.*bytes are free there\); the one before it is untouched"
        ):
            checkpoint.save(tmp_path, 2, model, optimiser, {"epoch": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in tmp_path.iterdir()] == [good.name]
    assert checkpoint.load(good, model, optimiser) == {"epoch": 1}
    assert torch.equal(model.weight, weights)


class Malicious:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_an_index_that_asks_for_anything_else_is_refused_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, optimiser = stepped()
    path = checkpoint.save(tmp_path, 1, model, optimiser, {})
    (path / ".metadata").write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(ValueError, match=r"asks for posix\.system, which no index needs"):
        checkpoint.load(path, model, optimiser)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", "state.json"])
def test_a_damaged_checkpoint_is_an_error_that_names_it(name, tmp_path):
    model, optimiser = stepped()
    path = checkpoint.save(tmp_path, 1, model, optimiser, {})
    file = path / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ValueError, match=f"{path}: the checkpoint does not fit this run, or is damaged"):
        checkpoint.load(path, model, optimiser)


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    path = checkpoint.save(tmp_path, 1, *stepped(4), {})
    with pytest.raises(ValueError, match="does not fit this run"):
        checkpoint.load(path, *stepped(5))


def test_the_exported_weights_are_those_of_the_last_checkpoint(small, trained):
    run = trained(small())
    exported = load_file(run.path / "weights.safetensors")
    setup_config = run.config()
    from autogd.training.setup import Setup

    setup = Setup.build(setup_config)
    checkpoint.load(checkpoint.latest(run.checkpoints), setup.model, setup.optimiser)
    with setup.optimiser.averaged():  # what is exported is what is to be shipped
        assert all(torch.equal(exported[name], value) for name, value in setup.model.state_dict().items())


def test_tied_weights_are_exported_once(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    checkpoint.export(tmp_path / "weights.safetensors", model)
    assert list(load_file(tmp_path / "weights.safetensors")) == ["0.weight"]


def test_a_finished_run_does_not_train_again(small, trained):
    run = trained(small())
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    assert train(Run.open(run.path)) == json.loads((run.path / "summary.json").read_text())
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
