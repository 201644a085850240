"""The cost of a step is measured as described, and plain AGD's counted cost is as small as claimed."""

import json

import pytest
import torch
from torch import nn

from autogd import AGD
from autogd.cli.main import main
from autogd.experiments.speed.growth import Point, fit, growth
from autogd.experiments.speed.instruments import peak_bytes, steady_bytes
from autogd.experiments.speed.step_cost import CONTENDERS, NETWORKS, costs, shares, stepping, with_gradients
from autogd.models import ResNet18

CPU = torch.device("cpu")


def test_passes_are_timed_at_the_same_weights_however_far_the_optimisers_step(monkeypatch):
    """The steps of six optimisers on one network made a GPT diverge, and `bench step --share` ended with an error."""
    seen = []

    def network():
        model = nn.Sequential(nn.Linear(3, 2, bias=False))
        model[0].register_forward_hook(lambda layer, *_: seen.append(layer.weight.detach().clone()))
        return model

    monkeypatch.setitem(NETWORKS, "small", (network, lambda count: torch.randn(count, 3), 4))
    list(shares(["small"], ["agd", "adam-fused"], 3, CPU))
    assert len(seen) > 3
    assert all(torch.equal(weight, seen[0]) for weight in seen)


def test_the_peak_is_what_is_held_at_once_not_the_sum():
    def twice() -> None:
        for _ in range(2):
            _ = torch.zeros(10_000) + 1  # two tensors of 40,000 bytes at once

    assert peak_bytes(twice, CPU) == pytest.approx(80_000, abs=100)
    assert peak_bytes(lambda: torch.zeros(10).add_(1), CPU) < 200


def test_steady_memory_counts_adam_s_eight_bytes_and_agd_s_none():
    model = with_gradients(nn.Linear(100, 100, bias=False), CPU)
    adam, agd = torch.optim.Adam(model.parameters()), AGD(model)
    for optimiser in (adam, agd):
        optimiser.step()
    assert steady_bytes(adam.state_dict()) == pytest.approx(8 * 10_000, abs=16)
    assert steady_bytes(agd.state_dict()) == 0


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_step_of_agd_holds_less_than_a_twentieth_of_the_weights(layout):
    model = with_gradients(ResNet18(10).to(memory_format=layout), CPU)
    step = stepping(AGD(model))
    step()
    weights = sum(p.nbytes for p in model.parameters())
    assert peak_bytes(step, CPU) < weights / 20


def test_rows_have_ratios_to_fused_adam_and_to_the_limit():
    rows = {row.optimiser: row for row in costs(["mlp"], ["agd", "sgd-plain"], 1, CPU)}
    assert set(rows) == {"agd", "sgd-plain", "adam-fused"}
    assert rows["adam-fused"].of_adam == 1
    assert rows["agd"].of_adam == pytest.approx(rows["agd"].seconds / rows["adam-fused"].seconds)
    assert rows["agd"].steady == 0
    assert rows["adam-fused"].steady == pytest.approx(8, rel=1e-3)
    assert rows["agd"].of_limit > 0.3


def test_every_rival_of_the_baselines_takes_part():
    from autogd.baselines import OPTIMISERS

    assert set(OPTIMISERS) <= set(CONTENDERS)


def test_a_share_is_the_step_over_forward_and_backward():
    (row,) = shares(["fcn"], ["sgd-fused"], 1, CPU, batch=4)
    assert row.share == pytest.approx(row.step / row.training)
    assert row.batch == 4


def test_growth_has_a_point_for_each_size_and_its_line_is_found():
    points = growth(["agd"], 1, CPU, weights=[10_000, 40_000], tensors=[1, 3])
    assert [p.tensors for p in points] == [16, 16, 1, 3]
    exact = [Point("weights", "agd", n, 1, 1e-3 + 2e-9 * n, 0) for n in (10_000, 1_000_000, 100_000_000)]
    line = fit(exact, "weights", "agd")
    assert line.start == pytest.approx(1e-3)
    assert line.each == pytest.approx(2e-9)


def test_the_command_prints_json_and_draws_growth(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("autogd.cli.bench_cost.TENSORS", (1, 10))
    assert main(["bench", "step", "--sets", "mlp", "--optimisers", "agd", "--rounds", "1", "--json"]) == 0
    assert {row["optimiser"] for row in json.loads(capsys.readouterr().out)} == {"agd", "adam-fused"}
    picture = tmp_path / "growth.png"
    words = ["--growth", "--largest", "10000", "--optimisers", "agd", "--rounds", "1", "--out", str(picture)]
    assert main(["bench", "step", *words]) == 0
    assert "how a step grows" in capsys.readouterr().out
    assert picture.read_bytes()[1:4] == b"PNG"


def test_a_set_that_is_not_there_is_named(capsys):
    assert main(["bench", "step", "--sets", "nonesuch"]) == 1
    assert "sets: 'nonesuch' is not known; choose from mlp" in capsys.readouterr().err
