import json
import signal
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from autogd import baselines, rivals
from autogd.training import Run, Stopped, Watch, train
from patience import run_child


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
