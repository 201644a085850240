"""The LightBench script: what it records, what it skips, and where it continues."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from patience import run_child

PATH = Path(__file__).parents[1] / "benchmarks" / "lightbench_suite.py"


@pytest.fixture
def suite(monkeypatch):
    spec = importlib.util.spec_from_file_location("lightbench_suite", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lightbench_suite", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tried(suite, monkeypatch):
    """Problems are not run: those with "easy" in their name fail, and each takes 20 seconds."""
    names = []

    def bounded(problem, options):
        names.append(problem)
        solved = "easy" not in problem
        return suite.Result(options.optimiser, problem, solved, 1, 0.5, 20.0, "solved" if solved else "time")

    monkeypatch.setattr(suite, "bounded", bounded)
    monkeypatch.setattr(suite, "import_module", lambda name: None)
    return names


CHOSEN = {"a": ["a-trivial", "a-easy", "a-medium"], "b": ["b-trivial"]}


def test_a_failure_ends_its_family_and_what_is_recorded_is_not_run_again(suite, tried, tmp_path):
    options = suite.Options(out=tmp_path / "records" / "out.jsonl")
    suite.run(options, CHOSEN)
    assert tried == ["a-trivial", "a-easy", "b-trivial"]
    lines = [json.loads(line) for line in options.out.read_text().splitlines()]
    assert {line["problem"]: line["solved"] for line in lines} == {
        "a-trivial": True, "a-easy": False, "a-medium": False, "b-trivial": True,
    }  # fmt: skip
    suite.run(options, CHOSEN)
    assert len(tried) == 3


def test_a_run_ends_with_its_time_and_the_next_goes_on(suite, tried, tmp_path):
    options = suite.Options(out=tmp_path / "out.jsonl", limit=20.0, total=40.0)
    suite.run(options, CHOSEN)
    assert tried == ["a-trivial", "a-easy"]
    suite.run(options, CHOSEN)
    assert tried == ["a-trivial", "a-easy", "b-trivial"]


def test_another_optimiser_has_records_of_its_own(suite, tried, tmp_path):
    for optimiser in ("adam", "agd-stochastic"):
        suite.run(suite.Options(out=tmp_path / "out.jsonl", optimiser=optimiser), {"b": ["b-trivial"]})
    assert tried == ["b-trivial", "b-trivial"]


def test_cuda_by_name_is_the_cpu(suite):
    with suite.on_the_cpu():
        assert torch.randn((2, 2), device="cuda").device.type == "cpu"
        assert torch.nn.Linear(1, 1).cuda().weight.cuda().device.type == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises((AssertionError, RuntimeError)):
            torch.randn((2, 2), device="cuda")


@pytest.mark.slow
def test_problems_run_and_stand_beside_the_published_table(tmp_path):
    pytest.importorskip("lightbench")
    pytest.importorskip("typer")

    def said(*more):  # in a separate process: the package changes torch's settings
        command = [sys.executable, str(PATH), "--optimiser", "adam", "--out", str(tmp_path / "out.jsonl"), *more]
        done = run_child(command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "beale-trivial: time, " in said("--problems", "beale", "--limit", "0.1")
    report = said("--report")
    assert "136 problems, 1 recorded" in report
    assert "adam, one attempt: 0" in report
    assert "AdamW, published, many attempts: 1" in report
