"""Other people's models: both optimisers take them all, forward pass and catalogue agree, and the loss goes down."""

import math
from functools import cache
from itertools import pairwise

import pytest
import torch

pytest.importorskip("transformers", reason="needs the extra 'bench'")
pytest.importorskip("peft", reason="needs the extra 'bench'")

from autogd import AGD, StochasticAGD, explain, initialise_
from autogd.experiments.coverage import architectures, build, built, shrunk, trained
from autogd.experiments.zoo import RATES, ZOO, descend, specimen
from autogd.reading.agreement import disagreements, merged
from autogd.reading.catalogue import read_roles
from autogd.reading.graph import read_graph

pytestmark = pytest.mark.filterwarnings("ignore")  # other packages' own warnings are theirs to mend

# refused before the forward pass was read: mixtures of experts, windows, state spaces, einsums
ONCE_REFUSED = ["olmoe", "gpt_oss", "qwen3_moe", "llama4_text", "deepseek_v3", "swinv2", "dinov2", "xlnet", "jamba"]


def test_a_sample_of_all_architectures_is_taken():
    sample = [*architectures()[::14], *ONCE_REFUSED]
    rows = [built(name, model) for name in sample if (model := build(name)) is not None]
    assert len(rows) >= 40
    assert {row.architecture: row.error for row in rows if row.error} == {}


@pytest.mark.parametrize("name", ZOO)
def test_forward_pass_and_catalogue_agree_on_the_zoo(name):
    subject = specimen(name)
    roles = read_roles(subject.model, readout=False)
    reading = read_graph(subject.loss(), dict(subject.model.named_parameters()))
    assert [role.name for role, _ in disagreements(roles, reading)] == []
    read = merged(roles, reading)
    assert all(role.source != "shape" for role in read if role.parameter in reading.uses)


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("qwen3_moe", "model.layers.0.mlp.experts.gate_up_proj", (8, 64, 32)),
        ("gpt_oss", "model.layers.0.mlp.experts.gate_up_proj", (8, 64, 32)),
        ("xlnet", "transformer.layer.0.rel_attn.q", (1, 32, 32)),
        ("gpt_neox", "gpt_neox.layers.0.attention.query_key_value.weight", (3, 32, 32)),
        ("phi3", "model.layers.0.mlp.gate_up_proj.weight", (2, 64, 32)),
        ("mamba", "backbone.layers.0.mixer.in_proj.weight", (2, 64, 32)),
    ],
)
def test_what_is_packed_or_stacked_is_read_as_its_parts(name, parameter, expected):
    subject = shrunk("causal", name)
    parameters = dict(subject.model.named_parameters())
    atom = read_graph(subject.loss(), parameters).atoms[parameters[parameter]]
    assert (atom.parts, atom.fan_out, atom.fan_in) == expected


def test_a_mixture_of_experts_gets_as_far_as_adam():
    row = trained("causal", "olmoe")
    assert row is not None
    assert (row.unread, row.contradicted) == (0, 0)
    assert row.ratio > 0.8


@pytest.mark.parametrize("start", ["own", "initialise_"])
@pytest.mark.parametrize("name", ZOO)
def test_every_parameter_is_covered_and_27_of_30_steps_lower_the_loss(name, start):
    subject = specimen(name)
    if start == "initialise_":
        initialise_(subject.model)
    explanation = explain(subject.model)
    assert {row.parameter for row in explanation.rows} == {n for n, _ in subject.model.named_parameters()}
    losses = descend(subject.loss, AGD(subject.model), 30)
    assert sum(b < a for a, b in pairwise(losses)) >= 27
    assert all(map(math.isfinite, losses))
    assert all(torch.isfinite(p).all() for p in subject.model.parameters())


@cache
def adam_at_three_rates(name):
    """The losses of every run."""
    runs = []
    for rate in RATES:
        subject = specimen(name)
        runs.append(descend(subject.loss, torch.optim.Adam(subject.model.parameters(), rate), 30))
    return runs


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama", "Mixtral", "ViT", "ResNet", "CLIP", "Whisper", "Mamba"])
def test_from_initialise_stochastic_agd_gets_at_least_as_far_as_adam_at_its_best_of_three_rates(name):
    subject = specimen(name)
    ours = descend(subject.loss, StochasticAGD(initialise_(subject.model)), 30)
    rivals = adam_at_three_rates(name)
    assert ours[0] - ours[-1] >= max(losses[0] - losses[-1] for losses in rivals)
    assert ours[-1] < 0.1 * ours[0]


@pytest.mark.parametrize("name", ["BERT", "Llama", "T5", "Swin", "Whisper", "Wav2Vec2"])
def test_from_small_weights_of_its_own_stochastic_agd_gets_more_than_three_quarters_as_far(name):
    subject = specimen(name)
    ours = descend(subject.loss, StochasticAGD(subject.model), 30)
    rivals = adam_at_three_rates(name)
    assert ours[0] - ours[-1] > 0.75 * max(losses[0] - losses[-1] for losses in rivals)


def test_a_packed_projection_of_gpt2_is_three_matrices():
    rows = {row.parameter: row.matrices for row in explain(specimen("GPT-2").model).rows}
    assert rows["transformer.h.0.attn.c_attn.weight"] == "3 of 32 × 32"
    assert rows["transformer.h.0.attn.c_attn.bias"] == "3 of 32 × 1"


def test_a_low_rank_factor_that_is_zero_takes_its_size_from_the_product():
    model = specimen("BERT + LoRA").model
    for sizes in ("dimensional", "measured"):
        optimiser = AGD(model, sizes=sizes)
        zero = [p for n, p in model.named_parameters() if "lora_B" in n]
        assert zero
        assert not any(p.any() for p in zero)
        # r = 4, alpha = 8: the package scales the product by 2, so B's unit is √(out/4)/2
        for p in zero:
            group = optimiser.param_groups[0]
            p.grad = torch.zeros_like(p)
            assert optimiser._atom(p, group).scale == pytest.approx(math.sqrt(p.shape[0] / 4) / 2)


def test_an_architecture_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"Perceptron: the zoo has BERT, GPT-2"):
        specimen("Perceptron")


def test_t5_s_own_factors_are_counted():
    # it divides the input of a tied output matrix by √32, and does not divide its attention by √8
    rows = {row.parameter: row for row in explain(specimen("T5").model).rows}
    assert rows["shared.weight"].target == pytest.approx(math.sqrt(64 / 32) * math.sqrt(32))
    query = rows["decoder.block.0.layer.1.EncDecAttention.q.weight"]
    assert query.target == pytest.approx(1 / math.sqrt(8))
