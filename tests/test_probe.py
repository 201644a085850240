"""`autogd probe`: rates that work, read off a run that leaves the model alone."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from autogd.cli.main import main
from autogd.diagnosis import probe

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("probe_rates", ROOT / "benchmarks" / "probe_rates.py")
probe_rates = importlib.util.module_from_spec(spec)
spec.loader.exec_module(probe_rates)


def small():
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))


def batches(count=20):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        inputs = torch.randn(32, 8, generator=generator)
        yield inputs, inputs[:, :3].argmax(1)


# this one stays within it; docs/probe.md has others, which do not
@pytest.mark.slow
@pytest.mark.parametrize(("name", "seeds"), [("GPT, text", (0,))])
def test_adamw_at_the_exported_rates_is_within_a_tenth_of_the_best_of_the_grid(name, seeds):
    grid = [
        sum(probe_rates.final_loss(name, seed, probe_rates.one_rate(lr)) for seed in seeds) for lr in probe_rates.GRID
    ]
    mine = sum(
        probe_rates.final_loss(name, seed, probe_rates.per_layer(probe_rates.recommended(name, seed))) for seed in seeds
    )
    assert mine < 1.1 * min(grid)


def test_at_the_recommended_rates_another_optimiser_moves_each_tensor_as_far():
    torch.manual_seed(0)
    model = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = probe(model, nn.functional.cross_entropy, batches(), steps=20)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [rate.parameter for rate in found.rates] == [name for name, _ in model.named_parameters()]
    assert all(rate.sgd > 0 and rate.adamw > 0 for rate in found.rates)
    assert [rate.muon is not None for rate in found.rates] == [True, False, False, False, True, False]
    assert found.last_loss < found.first_loss
    assert found.single.keys() == {"sgd", "adamw", "muon"}


def test_the_rates_of_sgd_fall_as_the_loss_is_scaled_up():
    torch.manual_seed(0)
    model = small()
    runs = [
        probe(model, lambda output, y, k=k: k * nn.functional.cross_entropy(output, y), batches(), steps=20)
        for k in (1.0, 8.0)
    ]
    # its updates have the gradient's scale
    assert runs[1].rates[0].sgd < 0.5 * runs[0].rates[0].sgd


def test_the_code_that_is_printed_runs():
    torch.manual_seed(0)
    model = small()
    found = probe(model, nn.functional.cross_entropy, batches(), steps=20)
    for name, kind in (("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW), ("muon", torch.optim.Muon)):
        scope = {"torch": torch, "model": model}
        exec(found.code(name), scope)
        assert isinstance(scope["optimiser"], kind)
        rates = [group["lr"] for group in scope["optimiser"].param_groups]
        assert rates == [group["lr"] for group in found.groups(model, name)]
        trained = [p for o in ("optimiser", "beside") if o in scope for g in scope[o].param_groups for p in g["params"]]
        assert {id(p) for p in trained} == {id(p) for p in model.parameters()}


def test_a_parameter_that_never_moves_gets_the_lowest_rate_and_says_so():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    found = probe(model, nn.functional.cross_entropy, batches(), steps=20)
    dead = next(rate for rate in found.rates if rate.parameter == "0.bias")
    assert not dead.measured
    assert dead.adamw == min(rate.adamw for rate in found.rates)
    assert "never moved" in str(found)


def test_what_cannot_be_probed_is_named():
    with pytest.raises(ValueError, match="batches: a probe needs at least 4, found 2"):
        probe(small(), nn.functional.cross_entropy, batches(2))
    with pytest.raises(ValueError, match="'adam': there is no rate for it; choose from sgd, adamw, muon"):
        probe(small(), nn.functional.cross_entropy, batches(), steps=4).groups(small(), "adam")


def test_the_command_prints_groups_or_json(tmp_path, capsys, monkeypatch):
    (tmp_path / "probed.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
        "def batches():\n    return [(torch.randn(4, 64), torch.randint(10, (4,))) for _ in range(8)]\n"
        "def number():\n    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["probe", "probed:make", "digits", "--steps", "8"]) == 0
    text = capsys.readouterr().out
    assert '{"params": [model.get_parameter("1.weight")], "lr": ' in text
    assert "nothing was tried out" in text
    assert main(["probe", "probed:make", "probed:batches", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["steps"] == 8
    assert [rate["parameter"] for rate in told["rates"]] == ["1.weight", "1.bias"]
    for arguments, message in (
        (["probed:make", "digit"], "'digit': there is no such data set"),
        (["probed:make", "probed:number"], "expected an iterable of batches, found a int"),
        (["probed:make", "digits", "--steps", "0"], "steps: expected at least 1, found 0"),
    ):
        assert main(["probe", *arguments]) == 1
        assert message in capsys.readouterr().err
