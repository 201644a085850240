"""Every example runs as it stands, with the real packages, and learns."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from patience import finish

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9]*.py"))
PROCESSES = ("ddp", "fsdp2")  # these are started by torchrun


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_learns(path, tmp_path):
    framework = path.stem.partition("_")[2]
    if framework in ("lightning", "transformers", "accelerate", "skorch"):
        pytest.importorskip(framework)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if framework in PROCESSES else []
    command = [sys.executable, *launch, str(path)]
    example = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    shown, errors = finish(example)
    assert example.returncode == 0, errors
    accuracies = [float(percent) for percent in re.findall(r"test accuracy (\d+\.\d)%", shown)]
    # chance is 10%; the last digits of a row of consecutive numbers are harder than those that come with scikit-learn
    assert accuracies[-1] > (60 if framework == "transformers" else 85), shown


def test_the_examples_are_numbered_without_gaps():
    assert [int(path.name[:2]) for path in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
