"""Parameters without effect have gradients of pure rounding noise: they must stay put."""

import pytest
import torch
from torch import nn

from autogd import AGD, initialise_
from autogd.models import GPT


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
