"""Every example runs unchanged, with the real packages, and learns; notebooks run, and were stored by such a run."""

import json
import os
import re
import runpy
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from training.forking import launch

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9]*.py"))
PROCESSES = ("ddp", "fsdp2")


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
    (status, shown), (other, said) = launch(2, path, folder=folder)
    assert (status, other) == (0, 0), shown + said
    return shown


def test_the_examples_are_numbered_without_gaps():
    assert [int(path.name[:2]) for path in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))


NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def unseen():
    """Draw figures and discard them; restore settings and threads."""
    matplotlib = pytest.importorskip("matplotlib", reason="the notebooks draw: pip install 'autogd[cli]'")
    from matplotlib import pyplot

    backend, threads = matplotlib.get_backend(), torch.get_num_threads()
    pyplot.switch_backend("agg")
    with matplotlib.rc_context():
        yield
        pyplot.close("all")
    pyplot.switch_backend(backend)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_the_cells_of_a_notebook_run(path, tmp_path, monkeypatch, unseen):
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "__main__"}
    for cell in code_cells(path):
        exec(compile("".join(cell["source"]), str(path), "exec"), scope)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_as_it_ran_from_top_to_bottom(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"display_data", "stream"}  # no error, no stray value
    assert all(output.get("name") != "stderr" for output in outputs)
    assert sum("image/png" in output.get("data", ()) for output in outputs) >= 4
    assert path.stat().st_size < 300_000
