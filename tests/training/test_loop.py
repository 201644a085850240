import json
import math

import pytest
import torch
from torch import nn

from autogd import baselines, losses
from autogd.training import Config, Diverged, Run, train
from autogd.training.measure import Ledger, UpdateSize
from autogd.training.objective import objective
from autogd.training.setup import Setup
from autogd.training.step import evaluate, take_step

FIELDS = {
    "epoch", "objective", "train_accuracy", "test_accuracy", "learning_rate_min", "learning_rate_mean",
    "learning_rate_max", "update_size_min", "update_size_mean", "update_size_max", "seconds", "samples_per_second",
    "peak_memory_bytes",
}  # fmt: skip


def first_step(setup, ledger):
    indices = setup.order(1)[0]
    take_step(setup, ledger, setup.train_batch(indices, 0), indices, 1, 0)


def test_batches_made_ready_ahead_are_those_made_in_turn(small):
    setup = Setup.build(small())
    order = setup.order(2)
    ahead = list(setup.batches(order, 2, 1))
    assert len(ahead) == 3
    for i, ((inputs, labels),) in enumerate(ahead, start=1):
        ((wanted, wanted_labels),) = setup.train_batch(order[i], 4 + i)
        assert torch.equal(inputs, wanted)
        assert torch.equal(labels, wanted_labels)


def test_a_run_is_a_folder_with_the_promised_files_and_fields(small, trained):
    run = trained(small())
    names = {path.name for path in run.path.iterdir()}
    assert names == {"config.json", "metrics.jsonl", "summary.json", "weights.safetensors", "checkpoints"}
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert all(set(line) >= FIELDS for line in lines)
    assert Config.from_dict(json.loads((run.path / "config.json").read_text())) == run.config()
    assert run.summary()["test_accuracy"] == lines[-1]["test_accuracy"]


def test_the_recorded_numbers_are_those_of_a_loop_written_by_hand(small):
    config = small(epochs=1)
    setup, twin = Setup.build(config), Setup.build(config)
    ledger = Ledger(setup.steps_per_epoch, setup.place)
    order = setup.order(1)
    expected = {"objective": [], "accuracy": [], "learning_rate": [], "update_size": []}
    for i, indices in enumerate(order):
        take_step(setup, ledger, setup.train_batch(indices, i), indices, 1, i)

        inputs, labels = twin.task.train.batch(indices)
        output = twin.model(twin.task.prepare(inputs))
        loss = losses.square_loss(output, losses.one_hot(labels, 10))
        twin.model.zero_grad()
        loss.backward()
        before = [p.detach().clone() for p in twin.model.parameters()]
        twin.optimiser.step()
        after = twin.model.parameters()
        moves = [float((b - a).detach().norm() / a.norm()) for a, b in zip(before, after, strict=True)]
        expected["objective"].append(float(loss.detach()))
        expected["accuracy"].append(float((output.argmax(1) == labels).float().mean()))
        expected["learning_rate"].append(float(twin.optimiser.learning_rate))
        expected["update_size"].append(sum(moves) / len(moves))
    found = ledger.summary(setup.steps_per_epoch)
    for name, values in expected.items():
        assert found[f"{name}_min"] == pytest.approx(min(values), rel=1e-5)
        assert found[f"{name}_mean"] == pytest.approx(sum(values) / len(values), rel=1e-5)
        assert found[f"{name}_max"] == pytest.approx(max(values), rel=1e-5)


def test_the_test_accuracy_counts_every_sample_once(small):
    setup = Setup.build(small(batch_size=100))
    inputs, labels = setup.task.test.batch(torch.arange(len(setup.task.test)))
    output = setup.model(setup.task.prepare(inputs)).detach()
    found = evaluate(setup)
    assert found["test_accuracy"] == pytest.approx(float((output.argmax(1) == labels).float().mean()))
    assert found["test_objective"] == pytest.approx(float(objective("square", 10)(output, labels)), rel=1e-5)


def test_an_epoch_visits_every_sample_once_and_each_epoch_in_another_order(small):
    setup = Setup.build(small(batch_size=479))  # 3 × 479 = 1437
    first, second = setup.order(1), setup.order(2)
    assert sorted(first.flatten().tolist()) == list(range(1437))
    assert not torch.equal(first, second)
    assert torch.equal(first, Setup.build(small(batch_size=479)).order(1))


def test_accumulated_pieces_give_the_step_of_the_whole_batch(small):
    weights = []
    for pieces in (1, 4):
        setup = Setup.build(small(accumulate=pieces, precision="float64"))
        ledger = Ledger(setup.steps_per_epoch, setup.place)
        for i, indices in enumerate(setup.order(1)):
            take_step(setup, ledger, setup.train_batch(indices, i), indices, 1, i)
        weights.append([p.detach().clone() for p in setup.model.parameters()])
    for one, four in zip(*weights, strict=True):
        # the momentum is in float32, where the last digit may round either way
        torch.testing.assert_close(one, four, rtol=1e-6, atol=1e-9)


def test_agd_starts_at_prescription_1_and_its_rivals_as_torch_draws_them(small):
    @torch.no_grad()
    def largest(**settings):
        return float(torch.linalg.matrix_norm(Setup.build(small(**settings)).model.layers[0].weight, 2))

    target = math.sqrt(8 / 64)
    assert largest() == pytest.approx(target, rel=1e-5)
    assert largest(optimiser="adam") != pytest.approx(target, rel=1e-3)
    assert largest(start="torch") == largest(optimiser="adam")


def test_the_cosine_schedule_runs_from_the_rate_to_nearly_zero(small, trained):
    run = trained(small(optimiser="sgd", lr=0.5, schedule="cosine"))
    lines = run.metrics()
    assert lines[0]["learning_rate_max"] == pytest.approx(0.5)
    assert lines[-1]["learning_rate_min"] == pytest.approx(0.5 * 0.5 * (1 + math.cos(math.pi * 11 / 12)))


def test_a_compiled_network_trains_to_the_same_weights(small, trained, monkeypatch):
    original, calls = torch.compile, []

    def compile_without_a_compiler(model):
        calls.append(model)
        return original(model, backend="eager")

    monkeypatch.setattr(torch, "compile", compile_without_a_compiler)
    plain, compiled = trained(small(epochs=1)), trained(small(epochs=1, compile=True))
    assert len(calls) == 1
    assert plain.metrics()[0]["objective"] == pytest.approx(compiled.metrics()[0]["objective"], rel=1e-6)


def test_bf16_trains_and_keeps_float32_weights(small):
    setup = Setup.build(small(precision="bf16"))
    assert setup.output(setup.train_batch(torch.arange(4), 0)[0][0]).dtype == torch.bfloat16
    ledger = Ledger(setup.steps_per_epoch, setup.place)
    first_step(setup, ledger)
    assert {p.dtype for p in setup.model.parameters()} == {torch.float32}


def test_averaged_weights_get_statistics_of_their_own_and_training_goes_on_where_it_was(small):
    pytest.importorskip("schedulefree")
    setup = Setup.build(small(model="resnet18", depth=None, width=4, batch_size=64, optimiser="schedulefree-adamw"))
    ledger = Ledger(setup.steps_per_epoch, setup.place)
    for i, indices in enumerate(setup.order(1)[:3]):
        take_step(setup, ledger, setup.train_batch(indices, i), indices, 1, i)
    norm = next(m for m in setup.model.modules() if isinstance(m, nn.BatchNorm2d))
    stale = norm.running_mean.clone()
    trained = [p.detach().clone() for p in setup.model.parameters()]
    evaluate(setup)
    assert not torch.equal(norm.running_mean, stale)
    for before, after in zip(trained, setup.model.parameters(), strict=True):
        torch.testing.assert_close(before, after.detach(), rtol=1e-4, atol=1e-6)


def test_a_loss_that_is_not_finite_stops_with_the_step_the_batch_and_the_layer(small, tmp_path):
    run = Run.create(small(optimiser="sgd", lr=1e30, depth=3), tmp_path / "wild")
    with pytest.raises(Diverged, match=r"step \d+ \(epoch 1, batch \d of 4, samples \d+, .*the loss is .*layers\.\d"):
        train(run)
    assert run.summary()["status"] == "diverged"
    with pytest.raises(Diverged, match=r"layers\.\d"):
        train(run)


def test_a_gradient_that_agd_refuses_is_reported_with_its_step(small):
    setup = Setup.build(small())
    setup.model.layers[1].weight.register_hook(lambda grad: grad * math.nan)
    ledger = Ledger(setup.steps_per_epoch, setup.place)
    with pytest.raises(Diverged, match=r"step 1 .*layers\.1\.weight: its gradient is not finite"):
        first_step(setup, ledger)


def test_on_an_accelerator_a_bad_step_is_found_in_the_ledger(small):
    ledger = Ledger(3, Setup.build(small()).place)
    for i, value in enumerate((1.0, math.nan, math.inf)):
        ledger.write(i, "objective", torch.tensor(value))
    assert ledger.first_bad(1) is None
    assert ledger.first_bad(3) == 1


def test_a_layer_at_zero_does_not_make_the_update_size_infinite(small):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    nn.init.zeros_(model[1].weight)
    ruler = UpdateSize(model, Setup.build(small()).place)
    with torch.no_grad():
        model[0].weight.mul_(2)
        model[1].weight.add_(1)
    assert float(ruler.read()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser": "agd", "lr": 0.1}, "lr: agd has no learning rate"),
        ({"optimiser": "agd", "schedule": "cosine"}, "schedule: agd has no learning rate"),
        ({"optimiser": "adamn"}, "optimiser: 'adamn' is not known; choose one of agd, agd-averaged, agd-stochastic"),
        ({"epochs": 0}, "epochs: expected at least 1"),
        ({"batch_size": 10, "accumulate": 4}, "batch_size: 10 does not divide into 4"),
        ({"shard": True, "optimiser": "prodigy"}, "shard: prodigy"),
        ({"device": "abacus"}, "device: 'abacus'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(settings, message, small, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(Run.create(small(**settings), tmp_path / "run"))


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "prodigyopt", None)
    with pytest.raises(ValueError, match=r"prodigyopt.*autogd\[bench\]"):
        baselines.build("prodigy", nn.Linear(1, 1))


def test_mup_gives_each_layer_its_own_rate():
    model = nn.Sequential(nn.Linear(16, 4, bias=False), nn.Linear(4, 2, bias=False))
    optimiser = baselines.build("sgd-mup", model, lr=0.5)
    assert [group["lr"] for group in optimiser.param_groups] == pytest.approx([0.5 * 4 / 16, 0.5 * 2 / 4])
    assert baselines.learning_rate(optimiser) == pytest.approx(0.5)


def test_muon_takes_matrices_and_leaves_the_rest_to_adamw():
    model = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 4), nn.Conv2d(1, 1, 3))
    optimiser = baselines.build("muon", model)
    muon, adamw = optimiser.param_groups
    assert [id(p) for p in muon["params"]] == [id(model[1].weight)]
    assert len(adamw["params"]) == 4


def test_text_is_covered_once_an_epoch(tmp_path):
    (tmp_path / "a.txt").write_text("the quick brown fox jumps over the lazy dog " * 40)
    config = Config(data="text", data_dir=str(tmp_path), context=16, depth=1, width=16, batch_size=8, optimiser="adam")
    setup = Setup.build(config)
    assert setup.steps_per_epoch == (len(setup.task.train) // 16) // 8
    ledger = Ledger(setup.steps_per_epoch, setup.place)
    first_step(setup, ledger)
    assert evaluate(setup)["test_objective"] == pytest.approx(math.log(setup.task.classes), rel=0.5)


@pytest.mark.parametrize(
    ("model", "width", "layout"),
    [
        ("resnet18", 16, torch.channels_last),
        ("resnet18", 4, torch.contiguous_format),  # too thin: torch's strided 1 × 1 kernels crash there
        ("vgg16", 16, torch.channels_last),
        ("fcn", 16, torch.contiguous_format),
    ],
)
def test_wide_convolutions_get_their_images_with_channels_last(model, width, layout):
    setup = Setup.build(Config(model=model, width=width, batch_size=4))
    assert setup.layout is layout
    plain = setup.test_batch(torch.arange(4))[0].contiguous()
    images = plain.contiguous(memory_format=layout)
    assert torch.allclose(setup.model.eval()(plain), setup.model(images), atol=1e-5)
    assert all(p.is_contiguous() for p in setup.model.parameters())
