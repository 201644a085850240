"""Other people's models: every parameter is recognised, and the loss goes down."""

import math
from functools import cache
from itertools import pairwise

import pytest
import torch

pytest.importorskip("transformers", reason="needs the extra 'bench'")
pytest.importorskip("peft", reason="needs the extra 'bench'")

from autogd import AGD, StochasticAGD, explain, initialise_
from autogd.experiments.zoo import RATES, ZOO, descend, specimen

pytestmark = pytest.mark.filterwarnings("default")  # warnings inside other packages


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
