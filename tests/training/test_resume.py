"""What is saved comes back as it was, and a run that is resumed is the run that was not interrupted."""

import json
import resource
import signal
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from autogd import baselines, rivals
from autogd.training import Run, Stopped, Watch, checkpoint, train
from patience import run_child


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


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.arange(10)[2:8:2],
        torch.randn(3).expand(2, 3),
        torch.tensor(1.5, dtype=torch.float64),
        torch.empty(0, 3),
        torch.tensor([True, False]),
        torch.randn(5).bfloat16(),
        torch.randn(5).to(torch.float8_e4m3fn),
        torch.randn(3, dtype=torch.complex64),
    ],
    ids=range(10),
)
def test_tensors_of_any_layout_and_type_come_back_as_they_were(tensor, tmp_path):
    path = checkpoint.save(tmp_path, 1, *stepped(), {"tensor": tensor, "other": torch.ones(3)})
    found = checkpoint.load(path, *stepped())["tensor"]
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert found.contiguous().flatten().view(torch.uint8).equal(tensor.contiguous().flatten().view(torch.uint8))


def test_the_tools_of_torch_read_it_too(tmp_path):
    model, optimiser = stepped()
    path = checkpoint.save(tmp_path, 1, model, optimiser, {})
    found = {"model/weight": torch.zeros(4, 4)}
    with pytest.warns(UserWarning, match="torch.distributed is disabled"):
        torch.distributed.checkpoint.load(found, checkpoint_id=path)
    assert torch.equal(found["model/weight"], model.weight)


def test_the_two_newest_checkpoints_are_kept_and_a_draft_is_never_taken_for_one(tmp_path):
    model, optimiser = stepped()
    for step in (8, 9, 10, 1_000_000_000):
        checkpoint.save(tmp_path, step, model, optimiser, {})
    (tmp_path / "draft-000000003").mkdir()
    (tmp_path / "step-of-mine").mkdir()
    assert checkpoint.latest(tmp_path) == tmp_path / "step-1000000000"
    assert sorted(path.name for path in tmp_path.glob("step-[0-9]*")) == ["step-000000010", "step-1000000000"]


def test_a_full_disk_is_an_error_that_keeps_the_last_good_checkpoint(tmp_path):
    model, optimiser = stepped(64)
    good = checkpoint.save(tmp_path, 1, model, optimiser, {"epoch": 1})
    weights = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.zero_()
    # a limit on file sizes imitates a full disk: writing fails in the middle of a file
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


def test_a_checkpoint_of_another_network_is_refused_and_no_weight_is_changed(tmp_path):
    path = checkpoint.save(tmp_path, 1, *stepped(4), {})
    model, optimiser = stepped(5)
    before = model.weight.detach().clone()
    with pytest.raises(
        ValueError, match=r"does not fit this run \(bias: it has torch.float32 of size \[4\], the network"
    ):
        checkpoint.load(path, model, optimiser)
    assert torch.equal(model.weight, before)
    with pytest.raises(ValueError, match=r"bias: it has torch.float32 of size \[4\], the network torch.float64"):
        checkpoint.load(path, nn.Linear(4, 4).double(), optimiser)
    with pytest.raises(ValueError, match=r"0\.bias: it has nothing, the network torch.float32"):
        checkpoint.load(path, nn.Sequential(nn.Linear(4, 4)), optimiser)


def test_the_state_of_another_optimiser_is_refused(tmp_path):
    path = checkpoint.save(tmp_path, 1, *stepped(4), {})
    model = nn.Linear(4, 4)
    optimiser = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}])
    with pytest.raises(ValueError, match=r"does not fit this run .*parameter group"):
        checkpoint.load(path, model, optimiser)


def test_two_tensors_whose_keys_are_the_same_as_text_are_refused_when_they_are_saved(tmp_path):
    with pytest.raises(ValueError, match="rest/7: two tensors have this name"):
        checkpoint.save(tmp_path, 1, *stepped(), {7: torch.ones(1), "7": torch.zeros(1)})


def test_the_exported_weights_are_those_of_the_last_checkpoint(small, trained):
    run = trained(small())
    exported = load_file(run.path / "weights.safetensors")
    setup_config = run.config()
    from autogd.training.setup import Setup

    setup = Setup.build(setup_config)
    checkpoint.load(checkpoint.latest(run.checkpoints), setup.model, setup.optimiser)
    with setup.optimiser.averaged():  # the exported weights are the ones to ship
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


def same_weights(one, other):
    a, b = load_file(one.path / "weights.safetensors"), load_file(other.path / "weights.safetensors")
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def without_clock(run):
    timed = ("seconds", "samples_per_second", "peak_memory_bytes")
    return [{k: v for k, v in line.items() if k not in timed} for line in run.metrics()]


@pytest.mark.parametrize("name", baselines.OPTIMISERS)
def test_every_optimiser_resumes_bit_exactly_in_the_middle_of_an_epoch(name, small, trained):
    if name in rivals.PACKAGES:
        pytest.importorskip(rivals.PACKAGES[name])
    schedule = "cosine" if baselines.entry(name).rated else "constant"
    config = small(optimiser=name, schedule=schedule)
    whole, broken = trained(config), trained(config, crash_at=(3, 7, 9))
    assert same_weights(whole, broken)
    assert without_clock(whole) == without_clock(broken)


def test_runs_of_different_seeds_differ(small, trained):
    assert not same_weights(trained(small()), trained(small(seed=1)))


def test_batch_norm_statistics_and_accumulated_steps_resume_bit_exactly(small, trained):
    config = small(model="resnet18", depth=None, width=4, epochs=1, batch_size=480, accumulate=2, optimiser="adam")
    assert same_weights(trained(config), trained(config, crash_at=(2,)))


def test_a_line_torn_by_a_kill_is_taken_off_and_written_again(small, trained, tmp_path):
    whole = trained(small())
    run = Run.create(small(), tmp_path / "torn")

    class Tear(Watch):
        def epoch(self, record):
            if record["epoch"] == 2:
                with open(run.path / "metrics.jsonl", "ab") as file:
                    file.write(b'{"epoch": 3, "obj')
                raise InterruptedError

    with pytest.raises(InterruptedError):
        train(run, [Tear()])
    assert [line["epoch"] for line in run.metrics()] == [1, 2]
    train(run)
    assert without_clock(run) == without_clock(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_saves_and_says_how_to_resume(number, small, trained, tmp_path):
    run = Run.create(small(checkpoint_seconds=1e9), tmp_path / "stopped")

    class Interrupt(Watch):
        def step(self, step):
            if step == 6:
                signal.raise_signal(number)

    with pytest.raises(Stopped, match=f"batch 2 of epoch 2 .* --resume {run.path}") as stopped:
        train(run, [Interrupt()])
    assert stopped.value.signal_number == number
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-000000004", "step-000000006"]
    train(run)
    assert same_weights(run, trained(small()))


@pytest.mark.slow
def test_killed_at_twenty_random_moments_the_weights_are_those_of_the_uninterrupted_run(tmp_path):
    done = run_child([sys.executable, "-W", "error", Path(__file__).with_name("killing.py"), tmp_path])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == 20
    assert report["steps_seen_at_resume"] == sorted(report["steps_seen_at_resume"])
    assert len(set(report["steps_seen_at_resume"])) > 5, "the kills did not fall in the middle of the run"
    assert same_weights(Run(tmp_path / "whole"), Run(tmp_path / "killed"))
    assert without_clock(Run(tmp_path / "whole")) == without_clock(Run(tmp_path / "killed"))
