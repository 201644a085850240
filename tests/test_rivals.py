"""The rivals: each package is built, learns and is named where it is missing; the script of LightBench's problems."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from autogd import baselines, rivals
from autogd.experiments.quality.grid import UNTUNED
from patience import run_child

EVERY = sorted(rivals.PACKAGES)
INSTALLED_AS = {
    "dog": "dog-optimizer",
    "prodigyplus": "prodigy-plus-schedule-free",
    "pytorch_optimizer": "pytorch-opti",
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))


def losses(name, model, steps=60, lr=None):
    """The training loss at every step, on a batch that can be memorised."""
    images, targets = torch.randn(16, 1, 4, 4), torch.randn(16, 2)
    optimiser = baselines.build(name, model, lr)

    def closure():
        model.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(images), targets)
        loss.backward()
        return loss

    return [float(optimiser.step(closure).detach()) for _ in range(steps)], optimiser


def test_every_rival_with_a_package_is_a_baseline_and_runs_untuned():
    assert set(EVERY) == set(UNTUNED) <= set(baselines.OPTIMISERS)


@pytest.mark.parametrize("name", EVERY)
def test_a_rival_at_its_defaults_lowers_a_loss(name):
    pytest.importorskip(rivals.PACKAGES[name])
    # their first steps are tiny
    slow = name in ("dog", "prodigy-plus", "schedulefree-radam")
    values, _ = losses(name, network(), steps=300 if slow else 60)
    assert values[-1] < 0.98 * values[0]


@pytest.mark.parametrize("name", EVERY)
def test_a_missing_package_is_named_with_the_extra(name, monkeypatch):
    module = rivals.PACKAGES[name]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf"{INSTALLED_AS.get(module, module)}.*autogd\[bench\]"):
        baselines.build(name, nn.Linear(1, 1))


@pytest.mark.parametrize("name", EVERY)
def test_a_learning_rate_reaches_the_package(name):
    pytest.importorskip(rivals.PACKAGES[name])
    assert all(group["lr"] == 0.5 for group in baselines.build(name, nn.Linear(3, 2), 0.5).param_groups)


@pytest.mark.parametrize("name", [name for name in EVERY if baselines.entry(name).averages])
def test_what_is_evaluated_differs_from_what_is_trained_and_comes_back(name):
    pytest.importorskip(rivals.PACKAGES[name])
    model = network()
    _, optimiser = losses(name, model, steps=10)
    trained = [parameter.detach().clone() for parameter in model.parameters()]
    with baselines.averaged(optimiser):
        inside = [parameter.detach().clone() for parameter in model.parameters()]
    assert not all(map(torch.equal, trained, inside))
    for parameter, before in zip(model.parameters(), trained, strict=True):
        torch.testing.assert_close(parameter.detach(), before)


@pytest.mark.parametrize("name", ["prodigy-plus", "soap", "psgd"])
def test_a_state_loads_in_the_precision_it_was_saved_in(name):
    pytest.importorskip(rivals.PACKAGES[name])
    torch.manual_seed(1)
    model, other = network(), network()
    _, optimiser = losses(name, model, steps=5)
    loaded = baselines.build(name, other)
    loaded.load_state_dict(optimiser.state_dict())
    other.load_state_dict(model.state_dict())
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert dtypes(optimiser.state[one]) == dtypes(loaded.state[two])


def dtypes(tree):
    if isinstance(tree, dict):
        return {key: dtypes(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [dtypes(value) for value in tree]
    return tree.dtype if isinstance(tree, torch.Tensor) else tree


def test_prodigy_plus_prints_nothing(capsys):
    pytest.importorskip("prodigyplus")
    losses("prodigy-plus", network(), steps=2)
    assert capsys.readouterr().out == ""


def test_heavyball_compiles_nothing(monkeypatch):
    pytest.importorskip("heavyball")

    def refuse(*_, **__):
        raise AssertionError("compiled")

    monkeypatch.setattr(torch, "compile", refuse)
    for name in ("soap", "psgd"):
        losses(name, network(), steps=2)


def test_psgd_goes_on_where_its_first_gradient_vanishes():
    pytest.importorskip("heavyball")
    weight = nn.Parameter(torch.ones(3, 3))
    model = nn.Module()
    model.register_parameter("weight", weight)
    optimiser = baselines.build("psgd", model)
    factors = iter([0.0, 0.0, 1.0])  # the first is asked for twice

    def closure():
        weight.grad = None
        loss = next(factors) * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    assert torch.equal(weight, torch.ones(3, 3))
    optimiser.step(closure)
    assert weight.sum() < 9


def test_scion_orthogonalises_in_float32_on_the_cpu():
    scion = pytest.importorskip("pytorch_optimizer.optimizer.scion")
    before = scion.zero_power_via_newton_schulz_5
    model = nn.Linear(6, 4, bias=False)
    weight = model.weight.detach().clone()
    optimiser = baselines.build("scion", model)
    target = torch.randn(4, 6)

    def closure():
        model.zero_grad()
        loss = (model.weight * target).sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    step = (weight - model.weight.detach()) / 1e-3 / (4 / 6) ** 0.5
    expected = before(target, 5, dtype=torch.float32)
    torch.testing.assert_close(step, expected, atol=1e-3, rtol=1e-3)
    assert (step - before(target, 5).float()).abs().max() > 1e-3
    assert scion.zero_power_via_newton_schulz_5 is before


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
