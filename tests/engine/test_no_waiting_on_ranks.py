"""A step on many ranks never waits for a device either: after the first one, it reads no number.

The ranks are those of torch's fake process group: this process is one of four, and its collectives return at once.
"""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from autogd import AGD, StochasticAGD
from autogd.engine.distributed.ranks import Peers


@pytest.fixture
def mesh():
    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    yield init_device_mesh("cpu", (2, 2))
    dist.destroy_process_group()


def network():
    """The last matrix is so long that it gets no owner if it is cut along its length."""
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 60))


def assert_no_looks(optimiser, model, looks, gradient):
    for step in range(3):
        for p in model.parameters():
            p.grad = gradient(p)
        looks.clear()
        optimiser.step()
        assert step == 0 or looks == []


MAKERS = [AGD, StochasticAGD, lambda model: AGD(model, geometry="spectral")]


@pytest.mark.parametrize("placements", [[Replicate(), Shard(0)], [Shard(0), Shard(1)]], ids=["hsdp", "two dimensions"])
@pytest.mark.parametrize("make", MAKERS)
def test_no_number_is_looked_at(make, placements, mesh, looks, as_on_an_accelerator):
    model = network()
    for layer in model[::2]:
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.data, mesh, placements))
        layer.bias = nn.Parameter(distribute_tensor(layer.bias.data, mesh, [placements[0], Replicate()]))
    optimiser = make(model)
    assert_no_looks(
        optimiser, model, looks, lambda p: distribute_tensor(torch.randn(p.shape), p.device_mesh, p.placements)
    )


@pytest.mark.parametrize("held", ["copies", "group"])
@pytest.mark.parametrize("make", MAKERS)
def test_no_number_of_a_plain_tensor_is_looked_at(make, held, mesh, looks, as_on_an_accelerator):
    """Copies that share the work (DDP), and parts of one model (`process_group=`)."""
    model = network()
    optimiser = make(model)
    optimiser._peers = Peers(**{held: dist.group.WORLD})  # a fake group has no other ranks to compare with
    assert_no_looks(optimiser, model, looks, lambda p: torch.randn(p.shape))
