"""Every example runs unchanged, with the real packages, and learns."""

import json
import os
import re
import runpy
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

import autogd
from patience import run_child

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9]*.py"))
PROCESSES = ("ddp", "fsdp2")
FORKING = Path(__file__).with_name("training") / "forking.py"
SOURCE = Path(autogd.__file__).parents[1]


@pytest.fixture
def _alone(monkeypatch, tmp_path):
    """An example's folders, environment and settings end with it."""
    monkeypatch.chdir(tmp_path)
    with patch.dict(os.environ):
        yield
    if "accelerate" in sys.modules:
        sys.modules["accelerate"].state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.usefixtures("_alone")
@pytest.mark.filterwarnings("default", "ignore:.*LeafSpec")  # other packages' own
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_learns(path, tmp_path, monkeypatch, capsys):
    framework = path.stem.partition("_")[2]
    if framework in ("lightning", "transformers", "accelerate", "skorch"):
        pytest.importorskip(framework)
    if framework in PROCESSES:
        shown = output_of(path, tmp_path)
    else:
        monkeypatch.syspath_prepend(path.parent)
        runpy.run_path(str(path), run_name="__main__")
        shown = capsys.readouterr().out
    accuracies = [float(percent) for percent in re.findall(r"test accuracy (\d+\.\d)%", shown)]
    # chance is 10%; the last digits are harder than the others
    assert accuracies[-1] > (60 if framework == "transformers" else 85), shown


def output_of(path, folder):
    """What the first of two processes prints; they are placed as torchrun places them."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path.parent), str(SOURCE)])}
    done = run_child([sys.executable, FORKING, 2, path], cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    (status, shown), (other, said) = json.loads(done.stdout)
    assert (status, other) == (0, 0), shown + said
    return shown


def test_the_examples_are_numbered_without_gaps():
    assert [int(path.name[:2]) for path in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
