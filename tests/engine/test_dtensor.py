"""Every atom, on two processes and cut over two and over four, takes the same steps as alone."""

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


def makers():
    from autogd import AGD, StochasticAGD

    return {
        "frobenius": lambda model: AGD(model, weight_decay=0.01),
        "averaged": lambda model: AGD(model, averaging=True, weight_decay=0.01),
        "spectral": lambda model: AGD(model, geometry="spectral"),
        "stochastic": lambda model: StochasticAGD(model, weight_decay=0.01),
    }


# StochasticAGD holds momentum and direction in float32, and a polar factor magnifies what rounding leaves there
TOLERANCE = {
    "frobenius": 1e-12,
    "averaged": 1e-12,
    "spectral": 1e-10,
    "stochastic": 1e-4,
}


def whole(model):
    return {k: (v.full_tensor() if hasattr(v, "full_tensor") else v).clone() for k, v in model.state_dict().items()}


def train(make, rank, world, spread=None, steps=12):
    """η of every step, the weights after the last, the averaged ones, and what those make of a batch."""
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = EveryAtom().double()
    if spread == "FSDP2":
        fully_shard(model)
    optimiser = make(model)
    forward = DistributedDataParallel(model) if spread == "DDP" else model
    rates, outputs = [], []
    everyone = torch.randint(11, (8, 4), generator=torch.Generator().manual_seed(99))
    for i in range(steps):
        generator = torch.Generator().manual_seed(i)
        x = torch.randint(11, (8, 4), generator=generator).chunk(world)[rank]
        y = torch.randn(8, 3, generator=generator).double().chunk(world)[rank]
        optimiser.zero_grad()
        (forward(x) - y).square().mean().backward()
        optimiser.step()
        rates.append(optimiser.learning_rate)
        if i == steps // 2:  # a look at both weights on the way must not change where the gradients are taken
            with torch.no_grad():
                outputs.append(model(everyone))
                with optimiser.averaged():
                    outputs.append(model(everyone))
                outputs.append(model(everyone))
    with optimiser.averaged():
        average = whole(model)
    return torch.stack(rates), torch.stack(outputs), whole(model), average


def close(found, expected, what, **tolerance):
    torch.testing.assert_close(found, expected, **tolerance, msg=lambda message: f"{what}: {message}")


def process(rank, world, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for name, make in makers().items():
        alone = train(make, 0, 1)
        for spread in ("FSDP2", "DDP") if world == 2 else ("FSDP2",):
            found = train(make, rank, world, spread)
            error = TOLERANCE[name]
            for what, a, b in zip(("η", "outputs"), found[:2], alone[:2], strict=True):
                close(a, b, rtol=error, atol=error / 100, what=f"{name}, {spread}, {what}")
            for a, b in zip(found[2:], alone[2:], strict=True):
                for key, weight in b.items():
                    close(a[key], weight, rtol=100 * error, atol=error, what=f"{name}, {spread}, {key}")
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [2, 4])
def test_steps_of_many_processes_equal_those_of_one_process(world):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(process, (world, port), nprocs=world)  # an assertion that fails in a process is raised here
