"""The doctor finds each planted fault and stays silent on sound set-ups."""

import json
import sys

import pytest
import torch
from torch import nn

from autogd import doctor, initialise_
from autogd.cli.main import main
from autogd.diagnosis import width_test
from autogd.losses import one_hot, square_loss
from autogd.models import FCN


def regression(width=32, depth=4):
    return initialise_(FCN(depth, width, 16, 4)), square_loss, (torch.randn(64, 16), torch.randn(64, 4))


def convolutional():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, bias=False),
        nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 16, 10),
    )  # fmt: skip
    return initialise_(model), nn.CrossEntropyLoss(), (torch.randn(32, 3, 8, 8), torch.randint(10, (32,)))


def transformer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True, bias=False)
    model = nn.Sequential(
        nn.Embedding(20, 32), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 20)
    )
    tokens = torch.randint(20, (16, 12))

    def loss(output, target):
        return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())

    return model, loss, (tokens, tokens)


@pytest.mark.parametrize("setup", [regression, convolutional, transformer])
def test_the_doctor_is_silent_on_sound_set_ups(setup):
    model, loss, batch = setup()
    before = [p.detach().clone() for p in model.parameters()]
    statistics = [b.clone() for b in model.buffers()]
    diagnosis = doctor(model, loss, batch)
    assert diagnosis.findings == []
    assert diagnosis.losses[2] < diagnosis.losses[0]
    assert "nothing to mend" in str(diagnosis)
    # and nothing of the model was touched
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert all(torch.equal(p, b) for p, b in zip(model.buffers(), statistics, strict=True))
    assert all(p.grad is None for p in model.parameters())


def shrinking_activations():
    model = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(16, 16, bias=False), nn.ReLU())], nn.Linear(16, 4))
    return model, square_loss, (torch.randn(64, 16), torch.randn(64, 4))


def weights_off_size():
    model, loss, batch = regression()
    with torch.no_grad():
        model.layers[1].weight.mul_(0.02)
        model.layers[2].weight.mul_(50)
    return model, loss, batch


def summed_loss():
    model, _, batch = regression()
    return model, nn.MSELoss(reduction="sum"), batch


def inputs_off_scale():
    model, loss, (x, y) = regression()
    return model, loss, (x * 255, y)


def targets_off_scale():
    model = initialise_(FCN(2, 32, 16, 400))
    labels = torch.arange(64) % 400
    return model, square_loss, (torch.randn(64, 16), one_hot(labels, 400) / 20)


def scaled_gradients():
    model, loss, batch = regression()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(loss(model(batch[0]), batch[1])).backward()
    return model, loss, batch


def clipped_gradients():
    model, loss, batch = regression()
    loss(model(batch[0]), batch[1]).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    return model, loss, batch


def unused_parameter():
    model, loss, batch = regression()
    model.spare = nn.Linear(3, 3)
    return model, loss, batch


def no_effect():
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    return initialise_(model), square_loss, (torch.randn(64, 16), torch.randn(64, 4))


def nan_input():
    model, loss, (x, y) = regression()
    x[3, 5] = torch.nan
    return model, loss, (x, y)


def nan_model():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 4)

        def forward(self, x):
            return self.layer(x).sqrt()

    return Root(), square_loss, (torch.randn(64, 16), torch.randn(64, 4))


def nan_weight():
    model, loss, batch = regression()
    with torch.no_grad():
        model.layers[2].weight[0, 0] = torch.nan
    return model, loss, batch


def classifier(*end):
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5), *end)
    return initialise_(model), (torch.randn(64, 16), torch.randint(5, (64,)))


def softmax_twice():
    model, batch = classifier(nn.Softmax(-1))
    return model, nn.CrossEntropyLoss(), batch


def smoothed_softmax_twice():
    model, batch = classifier(nn.Softmax(-1))
    return model, nn.CrossEntropyLoss(label_smoothing=0.1), batch


def sigmoid_twice():
    model, (x, _) = classifier(nn.Sigmoid())
    return model, nn.BCEWithLogitsLoss(), (x, torch.randint(2, (64, 5)).float())


def frozen():
    model, loss, batch = regression()
    return model.requires_grad_(False), loss, batch


def unreduced():
    model, batch = classifier()
    return model, nn.CrossEntropyLoss(reduction="none"), batch


def detached():
    model, loss, batch = regression()
    return model, lambda output, target: loss(output.detach(), target), batch


def used_the_other_way_round():
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(32, 16, bias=False), nn.Linear(32, 4, bias=False)

        def forward(self, x):
            return self.second(torch.relu(x @ self.first.weight))  # 16 inputs, 32 outputs

    return initialise_(Transposed()), square_loss, (torch.randn(64, 16), torch.randn(64, 4))


FAULTS = {
    nan_input: ("not finite", "the inputs have 1 value of 1024 that is nan or infinite, the first at [3, 5]"),
    nan_model: ("not finite", "the model (its output is not finite)"),
    nan_weight: ("not finite", "layers.2.weight"),
    softmax_twice: ("softmax twice", "logits"),
    smoothed_softmax_twice: ("softmax twice", "logits"),
    sigmoid_twice: ("sigmoid twice", "logits"),
    frozen: ("nothing to train", "requires_grad=True"),
    unreduced: ("loss", "64 numbers"),
    detached: ("loss", "detached"),
    shrinking_activations: ("activations", "initialise_"),
    weights_off_size: ("weights", "measured"),
    summed_loss: ("loss", "mean"),
    inputs_off_scale: ("scale", "inputs"),
    targets_off_scale: ("scale", "one_hot"),
    scaled_gradients: ("scaled gradients", "unscale"),
    clipped_gradients: ("clipped gradients", "clip_grad_norm_"),
    unused_parameter: ("no gradient", "spare.weight"),
    no_effect: ("no effect", "0.bias"),
    used_the_other_way_round: (
        "architecture",
        "first.weight: the catalogue has 1 of 16 × 32 (matrix), the forward pass uses 1 of 32 × 16 (matrix)",
    ),
}


@pytest.mark.parametrize("setup", FAULTS, ids=lambda setup: setup.__name__)
def test_the_doctor_finds_a_planted_fault(setup):
    kind, word = FAULTS[setup]
    findings = doctor(*setup()).findings
    assert kind in [finding.kind for finding in findings]
    assert any(word in str(finding) for finding in findings if finding.kind == kind)


def test_each_fault_gives_no_finding_of_another_kind_where_none_is_planted():
    alone = (nan_input, nan_model, nan_weight, softmax_twice, sigmoid_twice, frozen, unreduced, detached)
    for setup in (
        *alone,
        summed_loss,
        targets_off_scale,
        scaled_gradients,
        clipped_gradients,
        unused_parameter,
        no_effect,
    ):
        assert {finding.kind for finding in doctor(*setup()).findings} == {FAULTS[setup][0]}


def test_a_softmax_under_its_own_loss_is_no_finding():
    for end, loss in ((nn.LogSoftmax(-1), nn.NLLLoss()), (nn.Identity(), nn.CrossEntropyLoss())):
        model, batch = classifier(end)
        assert doctor(model, loss, batch).findings == []
    model, (x, _) = classifier(nn.Softmax(-1))
    assert doctor(model, square_loss, (x, torch.rand(64, 5))).findings == []


def test_small_gradients_that_are_no_noise_are_not_called_noise():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, vocab_size=64, max_position_embeddings=32))
    ids = torch.randint(3, 64, (8, 16))
    diagnosis = doctor(model, lambda output: output.loss, {"input_ids": ids, "labels": ids})
    assert diagnosis.sound
    said = " ".join(finding.seen for finding in diagnosis.findings)
    assert "query" not in said
    assert "key.weight" not in said
    assert "key.bias" in said  # the softmax does not see it


def test_the_optimiser_recommended_is_that_of_the_batches():
    assert "recommended: StochasticAGD(model)" in str(doctor(*regression()))
    assert "recommended: AGD(model)" in str(doctor(*regression(), full_batch=True))
    assert 'recommended: StochasticAGD(model, sizes="measured")' in str(doctor(*weights_off_size()))
    assert "recommended" not in str(doctor(*nan_input()))


def test_the_key_bias_of_attention_is_named_by_its_part():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    findings = doctor(Block(), square_loss, (torch.randn(8, 10, 16), torch.randn(8, 10, 16))).findings
    assert [finding.kind for finding in findings] == ["no effect"]
    assert "attention.in_proj_bias (part 2 of 3)" in findings[0].seen


def test_measured_sizes_are_recommended_for_weights_that_are_off_and_only_then():
    assert doctor(*weights_off_size()).sizes == "measured"
    assert doctor(*regression()).sizes == "dimensional"


def test_the_width_test_is_flat_for_agd_and_not_for_other_sizes():
    _, loss, batch = regression()
    moves = width_test(lambda k: initialise_(FCN(4, 32 * k, 16, 4)), loss, batch)
    assert max(moves.values()) < 2 * min(moves.values())

    def standard(k):
        model = FCN(4, 32 * k, 16, 4)
        for p in model.parameters():
            nn.init.normal_(p, std=0.2)  # a size that does not follow the width
        return model

    diagnosis = doctor(*regression(), widen=standard)
    assert "width" in [finding.kind for finding in diagnosis.findings]


def test_a_model_with_a_mapping_as_batch_is_examined_too():
    class Keyed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2, bias=False)

        def forward(self, x):
            return {"logits": self.layer(x)}

    diagnosis = doctor(Keyed(), lambda output: output["logits"].square().mean(), {"x": torch.randn(8, 4)})
    assert diagnosis.findings == []


SETUP = """
import torch
from autogd import initialise_, models
from autogd.losses import square_loss

def wide(k):
    return initialise_(models.FCN(3, 16 * k, 8, 4))

def sound():
    torch.manual_seed(0)
    return wide(1), square_loss, (torch.randn(32, 8), torch.randn(32, 4)), wide

def wrong():
    return 3

def bad():
    model, loss, (x, y), _ = sound()
    return model, loss, (x * torch.nan, y)
"""


def test_the_command_prints_findings_and_draws_the_figure(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_setup.py").write_text(SETUP)
    monkeypatch.syspath_prepend(str(tmp_path))
    figure = tmp_path / "width.png"
    assert main(["doctor", "my_setup:sound", "--figure", str(figure), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
    assert figure.stat().st_size > 5000
    assert main(["doctor", "my_setup:bad"]) == 1
    assert "not finite" in capsys.readouterr().out
    assert main(["doctor", "my_setup:wrong"]) == 1
    assert "expected (model, loss_fn, batch)" in capsys.readouterr().err
    sys.modules.pop("my_setup")
