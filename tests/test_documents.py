"""README and documents: blocks run, links lead somewhere, pages show what commands print; what a release publishes."""

import re
import runpy
import tomllib
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import autogd
from autogd import AGD, StochasticAGD
from autogd.cli.bench import MEASUREMENTS
from autogd.cli.main import COMMANDS, main
from autogd.experiments.zoo import ZOO
from autogd.report.markdown import filled
from autogd.training import Run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
DOCUMENTS = sorted([*PAGES, *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "howto").glob("*.md")])


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", [p for p in DOCUMENTS if blocks(p.read_text())], ids=lambda path: path.name)
def test_the_python_blocks_of_a_document_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text()):
        exec(compile(block, str(path), "exec"), scope)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_project_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
    missing = [t for t in targets if "://" not in t and not t.startswith("mailto:") and not (path.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_of_the_project_that_a_document_names_exist(path):
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`(?:python )?([\w./-]+/[\w.-]+\.(?:py|md|yml|yaml|jsonl))", prose)
    places = (ROOT, ROOT / "src" / "autogd", path.parent)
    own = [name for name in named if not name.startswith(("path/to/", "runs/"))]
    assert [name for name in own if not any((place / name).exists() for place in places)] == []


SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "pages.py"))
README = (ROOT / "README.md").read_text()
START, TRAINING = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("start", "training"))
POINTS = 0.015  # tolerance: accuracies on 360 images may differ between processors


@pytest.mark.parametrize("name", ["README", "WHEN_NOT"])
def test_verdicts_and_tables_are_those_of_the_records(name):
    page, parts = SCRIPT[name], SCRIPT[{"README": "readme", "WHEN_NOT": "when_not"}[name]]()
    assert filled(page.read_text(), parts) == page.read_text(), "run: python benchmarks/pages.py"


def test_the_commands_that_readme_names_print_its_verdicts(capsys):
    assert main(["bench", "quality", "--report"]) == main(["bench", "trust", "--report"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    said = re.findall(r"^- Against (.+?) at .* on (\d+) of \d+ .* on (\d+), .* on (\d+)\.$", README, re.MULTILINE)
    assert len(said) == 5
    for rival, *counts in said:
        name = {"schedule-free AdamW": "schedulefree-adamw"}.get(rival, rival.lower())
        below, within, above = counts
        assert f"against {name}: below on {below}, within spread on {within}, above on {above}" in printed
    assert f", all: {re.search(r'won [0-9]+, even [0-9]+, lost [0-9]+', README)[0]}" in printed
    starts, ours, adam = re.search(r"Of (\d+) disturbed starts, (\d+) end .* \(Adam: (\d+)\)", README).groups()
    assert f"of the undisturbed: {ours} of {starts} (Adam: {adam} of {starts})" in printed


def test_a_digit_that_differs_from_the_records_is_noticed():
    line = next(line for line in README.splitlines() if line.startswith("- Against Adam"))
    wrong = README.replace(line, re.sub(r"\d+", "99", line, count=1))
    assert filled(wrong, SCRIPT["readme"]()) != wrong


def test_the_glossary_page_is_what_the_command_prints(capsys):
    from autogd.cli.help import WORDS, markdown

    assert (ROOT / "docs" / "glossary.md").read_text() == markdown(), "run: python benchmarks/pages.py"
    assert len(WORDS) == 10
    assert main(["glossary"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{word}\n" in f"\n{printed}" for word in WORDS)
    assert max(map(len, printed.splitlines())) <= 80


def test_start_prints_the_table_and_the_accuracy_that_it_shows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "__main__"}
    for block in blocks(START):
        exec(compile(block, "start.md", "exec"), scope)
    printed = capsys.readouterr().out
    (table,) = re.findall(r"^```text\n(.*?)^```", START, re.MULTILINE | re.DOTALL)
    assert table in printed
    said, found = (float(re.search(r"test accuracy (\d+\.\d)%", text)[1]) / 100 for text in (START, printed))
    assert found == pytest.approx(said, abs=POINTS)


def test_the_first_run_prints_what_the_page_shows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train"]) == 0
    captured = capsys.readouterr()
    said, found = (float(re.search(r"^test accuracy (\d+\.\d+)%", text, re.MULTILINE)[1]) / 100
                   for text in (TRAINING, captured.out))  # fmt: skip
    assert found == pytest.approx(said, abs=POINTS)
    # of the first epoch: the last one's is near zero, where processors that round otherwise part by a factor of three
    said, found = (float(re.search(r"^epoch +1  objective (\S+)", text, re.MULTILINE)[1])
                   for text in (TRAINING, captured.err))  # fmt: skip
    assert found == pytest.approx(said, rel=0.03)
    assert "the run is in runs/digits-fcn-agd-stochastic-" in captured.out
    assert [line[:9] for line in captured.err.splitlines() if line.startswith("epoch")][::19] == [
        "epoch   1",
        "epoch  20",
    ]
    (folder,) = (tmp_path / "runs").iterdir()
    summary = Run(folder).summary()
    assert summary["test_accuracy"] > 0.95
    # seconds of work on any machine: 20 epochs of 11 batches, on a network of a few hundred thousand weights
    assert summary["steps"] == 220
    assert summary["parameters"] < 500_000
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")


STATES = {
    "`StochasticAGD(model)`": StochasticAGD,
    "`AGD(model, averaging=True)`": partial(AGD, averaging=True),
    "`AGD(model)`": AGD,
    "Adam": lambda model: torch.optim.Adam(model.parameters()),
}


@pytest.mark.parametrize("name", STATES)
def test_the_state_of_each_optimiser_is_as_large_as_the_table_says(name):
    row = next(line for line in README.splitlines() if line.startswith(f"| {name} |"))
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    optimiser = STATES[name](model)
    for _ in range(3):
        model(torch.randn(8, 256)).square().mean().backward()
        optimiser.step()
    tensors = [each for state in optimiser.state.values() for each in state.values() if isinstance(each, torch.Tensor)]
    held = sum(each.numel() * each.element_size() for each in tensors)
    said = re.search(r"(\d) bytes per weight", row.split("|")[3])
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert held / weights == pytest.approx(float(said[1]) if said else 0.0, abs=0.1)


def test_the_table_of_commands_names_every_command_and_no_other():
    named = {word for words in re.findall(r"^\| (`autogd .*?) \|", README, re.MULTILINE)
             for word in re.findall(r"`autogd (\w+)", words)}  # fmt: skip
    assert named == set(COMMANDS)
    measurements = set(re.findall(r"^\| `autogd bench (\w+)", README, re.MULTILINE))
    assert measurements == {each.__name__.lower() for each in MEASUREMENTS}


def test_the_number_of_architectures_is_that_of_the_zoo():
    assert f"{len(ZOO)} architectures of `transformers`" in README


def test_the_number_of_workloads_and_cells_is_that_of_the_benchmarks():
    assert f"{len(SCRIPT['WORKLOADS'])} workloads, the same number of steps" in README
    assert f"- On {len(SCRIPT['CELLS'])} difficult cells" in README


def test_the_doctor_of_the_start_page_finds_nothing(capsys):
    scope = {"__name__": "__main__"}
    for block in [*blocks(START)[:1], blocks(START)[2].partition("for epoch")[0], *blocks(START)[-1:]]:
        exec(compile(block, "start.md", "exec"), scope)
    assert "nothing to mend" in capsys.readouterr().out


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_entrance_of_the_site_goes_to_the_stable_version_and_lists_all(tmp_path):
    entrance = runpy.run_path(str(ROOT / "docs" / "versions.py"))["entrance"]
    for name in ("1.2.0", "1.10.0", "main"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    page = entrance(tmp_path)
    assert "url=1.10.0/index.html" in page
    assert re.findall(r'href="([^/]*)/', page) == ["1.10.0", "1.2.0", "main"]
    (tmp_path / "stable").mkdir()
    (tmp_path / "stable" / "index.html").touch()
    assert "url=stable/index.html" in entrance(tmp_path)


def test_the_conda_recipe_needs_what_the_package_needs():
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    (torch,) = PROJECT["dependencies"]
    assert torch.replace("torch", "pytorch ") in recipe
    assert f"python {PROJECT['requires-python']}" in recipe
    names = {"matplotlib": "matplotlib-base"}
    for requirement in PROJECT["optional-dependencies"]["cli"]:
        name, bound = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        assert f"- {names.get(name, name)} {bound}" in recipe


def test_the_citation_has_the_version():
    version = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version[1] == autogd.__version__


def test_the_changelog_has_the_version_first():
    first = re.search(r"^## (?!Unreleased)(\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first[1] == autogd.__version__
