"""A step on many ranks never waits for a device either: after the first one, no number is looked at.

The ranks are those of torch's fake process group: this process is one of four, and its collectives return at once.
"""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from accelerator_cases import accelerator
from autogd import AGD, StochasticAGD
from autogd.engine.distributed.ranks import Peers

WAITS = {  # the size of what they give depends on numbers, or a number leaves the device, or comes to it
    "aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::lift_fresh", "aten::masked_select",
    "aten::nonzero", "aten::_unique2", "aten::repeat_interleave.Tensor",
}  # fmt: skip


class Waits(TorchDispatchMode):
    """The operations for which a host would wait, or that copy from it."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        masked = func.name() == "aten::index.Tensor" and any(i is not None and i.dtype == torch.bool for i in args[1])
        if func.name() in WAITS or masked:
            self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.fixture
def mesh():
    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    yield init_device_mesh("cpu", (2, 2))
    dist.destroy_process_group()


@pytest.fixture
def blind(as_on_an_accelerator):
    """The route of an accelerator, on which nobody may read a number."""
    with accelerator():
        yield


def network():
    """The last matrix is so long that it gets no owner if it is cut along its length."""
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 60))


def assert_no_looks(optimiser, model, looks, gradient, steps=3):
    for step in range(steps):
        for p in model.parameters():
            p.grad = gradient(p, step)
        looks.clear()
        with Waits(looks):
            optimiser.step()
        assert step < steps - 2 or looks == []


def test_the_watch_sees_operations_that_wait(looks):
    with Waits(looks):
        mask = torch.ones(3) > 0
        _ = mask.nonzero(), torch.ones(3)[mask], torch.equal(mask, mask), torch.tensor([1.0]), mask.cpu()
    assert {"aten::nonzero", "aten::index.Tensor", "aten::equal", "aten::lift_fresh", "cpu"} <= set(looks)


MAKERS = {
    "AGD": AGD,
    "AGD, averaging": lambda model, **more: AGD(model, averaging=True, weight_decay=0.1, **more),
    "AGD, spectral": lambda model, **more: AGD(model, geometry="spectral", **more),
    "StochasticAGD": StochasticAGD,
    "StochasticAGD, frobenius": lambda model, **more: StochasticAGD(model, geometry="frobenius", **more),
}
PLACEMENTS = {
    "hsdp": [Replicate(), Shard(0)],
    "fsdp and tensor parallel": [_StridedShard(0, split_factor=2), Shard(0)],
    "two dimensions": [Shard(0), Shard(1)],
    "along the other dimension": [Replicate(), Shard(1)],
}


@pytest.mark.parametrize("placements", PLACEMENTS)
@pytest.mark.parametrize("make", MAKERS)
def test_no_number_is_looked_at(make, placements, mesh, looks, blind):
    model, placements = network(), PLACEMENTS[placements]
    along_bias = [Replicate() if placements[0].is_replicate() else Shard(0), Replicate()]
    for layer in model[::2]:
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.data, mesh, placements))
        layer.bias = nn.Parameter(distribute_tensor(layer.bias.data, mesh, along_bias))
    optimiser = MAKERS[make](model)
    gradients = {p: distribute_tensor(torch.randn(p.shape), p.device_mesh, p.placements) for p in model.parameters()}
    assert_no_looks(optimiser, model, looks, lambda p, step: gradients[p])


@pytest.mark.parametrize("held", ["copies", "group", "group, no gradient here"])
@pytest.mark.parametrize("make", MAKERS)
def test_no_number_of_a_plain_tensor_is_looked_at(make, held, mesh, looks, blind):
    """Copies that share the work (DDP), and parts of one model (`process_group=`), with and without a gradient here."""
    model, some = network(), held in ("copies", "group")
    optimiser = MAKERS[make](model)
    # a fake group has nobody to compare with
    optimiser._peers = Peers(**{held.split(",")[0]: dist.group.WORLD})
    # after two steps with gradients and two without, each kind of step has its plan
    gradient = lambda p, step: torch.randn(p.shape) if some or step < 2 else None  # noqa: E731
    assert_no_looks(optimiser, model, looks, gradient, steps=3 if some else 6)
