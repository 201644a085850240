"""The notebooks of the site: their cells run, and their outputs were stored by such a run."""

import json
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib", reason="the notebooks draw: pip install 'autogd[cli]'")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def unseen():
    """Draw figures and discard them; restore settings and threads."""
    import torch
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
