"""FSDP2: every atom, cut over two and over four processes, takes the same steps as whole."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

pytestmark = pytest.mark.distributed


class EveryAtom(nn.Module):
    """Odd sizes throughout, so that slices cut through parts and some processes hold nothing of a tensor."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 12)
        self.positions = nn.Parameter(torch.randn(1, 4, 12))
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.grouped = nn.Conv1d(12, 18, 3, padding=1, groups=3)
        self.transposed = nn.ConvTranspose1d(18, 6, 3, padding=1)
        self.lstm = nn.LSTM(6, 7, batch_first=True)
        self.bilinear = nn.Bilinear(7, 7, 5)
        self.slopes = nn.PReLU(5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        h = self.table(x) + self.positions
        h = self.norm(h + self.attention(h, h, h, need_weights=False)[0])
        h = self.transposed(self.grouped(h.mT)).mT
        h, _ = self.lstm(h)
        return self.head(self.slopes(self.bilinear(h, h).mean(1)))


def train(rank, world, steps=20, shard=False):
    from torch.distributed.fsdp import fully_shard

    from autogd import AGD

    torch.manual_seed(0)
    model = EveryAtom().double()
    if shard:
        fully_shard(model)
    optimiser = AGD(model, weight_decay=0.01)
    rates = []
    for i in range(steps):
        generator = torch.Generator().manual_seed(i)
        x = torch.randint(11, (8, 4), generator=generator).chunk(world)[rank]
        y = torch.randn(8, 3, generator=generator).double().chunk(world)[rank]
        optimiser.zero_grad()
        (model(x) - y).square().mean().backward()
        optimiser.step()
        rates.append(optimiser.learning_rate)
    weights = {k: v.full_tensor() if shard else v for k, v in model.state_dict().items()}
    return torch.stack(rates), weights


def process(rank, world, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    rates, weights = train(rank, world, shard=True)
    alone, reference = train(0, 1)
    torch.testing.assert_close(rates, alone, rtol=1e-12, atol=0)
    for name, weight in reference.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-10, atol=1e-13, msg=name)
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [2, 4])
def test_sharded_steps_equal_those_of_one_process(world):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(process, (world, port), nprocs=world)  # an assertion that fails in a process is raised here
