"""A small gradient moves its weight if it is accurate; one of rounding noise does not."""

import pytest
import torch
from torch import nn

from autogd import AGD, StochasticAGD, initialise_
from autogd.models import GPT


def silent(optimiser):
    return {name for name, size in optimiser.last_step.update_sizes.items() if size == 0}


@pytest.mark.parametrize("kind", [AGD, StochasticAGD])
def test_the_queries_and_keys_of_a_fresh_bert_move_and_the_keys_bias_does_not(kind):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(**sizes, **dropout, vocab_size=64, max_position_embeddings=32)
    model = transformers.BertForMaskedLM(config)
    optimiser = kind(model)
    ids = torch.randint(3, 64, (8, 16))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for _ in range(10):
        optimiser.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimiser.step()
    still = {name for name, p in model.named_parameters() if torch.equal(p, before[name])}
    assert {name for name in still if "token_type" not in name} == {
        f"bert.encoder.layer.{i}.attention.self.key.bias" for i in (0, 1)
    }


@pytest.mark.parametrize("scale", [1e-6, 1e-12])
def test_a_branch_of_a_deep_residual_network_moves_however_small_it_is(scale):
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)

        def forward(self, x):
            return x + scale * self.second(torch.relu(self.first(x)))

    model = nn.Sequential(*(Branch() for _ in range(24)), nn.Linear(16, 4, bias=False))
    optimiser = AGD(model)
    model(torch.randn(32, 16)).square().mean().backward()
    optimiser.step()
    assert silent(optimiser) == set()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("given", ["module", "parameters", "named", "bias alone"])
def test_a_bias_before_a_norm_layer_does_not_walk_in_any_precision(dtype, given):
    norm = nn.BatchNorm1d(16, affine=False, track_running_stats=False)
    model = nn.Sequential(nn.Linear(8, 16), norm, nn.Linear(16, 4)).to(dtype)
    if given == "bias alone":
        if torch.finfo(dtype).bits == 16:
            pytest.skip("in half precision only its own weight tells that a bias is noise")
        model[0].weight.requires_grad_(False)
    params = {"module": model, "bias alone": model, "parameters": model.parameters(), "named": model.named_parameters()}
    with pytest.warns(match="told from shape") if given in ("parameters", "named") and _fresh() else _nothing():
        optimiser = AGD(params[given])
    start = model[0].bias.detach().clone()
    for i in range(50):
        optimiser.zero_grad()
        x = torch.randn(64, 8, generator=torch.Generator().manual_seed(i)).to(dtype)
        model(x).float().square().mean().backward()
        optimiser.step()
    assert model[0].bias.grad.abs().max() > 0, "no rounding at all: the test shows nothing"
    assert torch.equal(model[0].bias, start)


def _fresh():
    """Have the warning about shapes once more."""
    from autogd.reading import catalogue

    catalogue._warned = False
    return True


def _nothing():
    from contextlib import nullcontext

    return nullcontext()


def test_a_bias_before_a_norm_layer_does_not_walk_where_most_taps_see_padding_alone():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    optimiser = AGD(model)
    start = model[0].bias.detach().clone()
    for _ in range(30):
        optimiser.zero_grad()
        model(torch.randn(64, 3, 1, 1)).square().mean().backward()
        optimiser.step()
    assert model[0].bias.grad.abs().max() > 0, "no rounding at all: the test shows nothing"
    assert torch.equal(model[0].bias, start)


def train(model, batch, steps):
    optimiser = AGD(initialise_(model))
    for i in range(steps):
        x, y = batch(torch.Generator().manual_seed(i))
        optimiser.zero_grad()
        (model(x) - y).square().mean().backward()
        optimiser.step()
    return optimiser


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_bias_in_front_of_a_norm_layer_stays_put_for_a_thousand_steps(dtype):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)).to(dtype)

    def batch(generator):
        return torch.randn(64, 8, generator=generator).to(dtype), torch.randn(64, 4, generator=generator).to(dtype)

    train(model, batch, steps=1000)
    assert model[0].bias.grad.abs().max() > 0, "no rounding at all: the test shows nothing"
    assert not model[0].bias.any()
    assert model[3].bias.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_key_bias_of_attention_stays_put_and_its_packed_neighbours_move(dtype):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    def batch(generator):
        return torch.randn(8, 10, 16, generator=generator).to(dtype), torch.randn(8, 10, 16, generator=generator).to(
            dtype
        )

    model = Block().to(dtype)
    train(model, batch, steps=300)
    query, key, value = model.attention.in_proj_bias.detach().chunk(3)
    assert model.attention.in_proj_bias.grad.chunk(3)[1].abs().max() > 0, "no rounding at all: the test shows nothing"
    assert not key.any()
    assert query.any()
    assert value.any()


def test_in_half_precision_what_counts_moves():
    model = GPT(65, 64, width=64, heads=2, depth=2, bias=True, affine=True).bfloat16()
    optimiser = AGD(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    ids = torch.randint(65, (8, 32))
    nn.functional.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten()).backward()
    norms = {name: p.grad.float().norm() for name, p in model.named_parameters()}
    optimiser.step()
    # bfloat16 weights of size one may be too coarse for a small step: look at what the step would be
    silent = {name for name, size in optimiser.last_step.update_sizes.items() if size == 0}
    assert silent == {name for name in before if name.endswith("key.bias")}
    assert all(norm > 0 for norm in norms.values())
