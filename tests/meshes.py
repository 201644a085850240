"""The ways to lay a network over all ranks, by name; and a network that every way can take."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


class Experts(nn.Module):
    """Matrices in one tensor; five, so that two ranks hold three and two of them, four ranks two, two, one and none."""

    def __init__(self, count=5, width=12):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, width, width) / width**0.5)

    def forward(self, x):
        each = torch.bmm(x.unsqueeze(0).expand(len(self.weight), *x.shape), self.weight)
        return torch.tanh(each).sum(0)


class Block(nn.Module):
    """A table, a norm, experts, and what tensor parallelism cuts: columns of one matrix, rows of the next.

    The head is so long that it gets no owner if it is cut along its length.
    """

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 12)
        self.norm = nn.LayerNorm(12)
        self.experts = Experts()
        self.up = nn.Linear(12, 20)
        self.down = nn.Linear(20, 12)
        self.head = nn.Linear(12, 90)

    def forward(self, x):
        h = self.norm(self.table(x).mean(1))
        h = h + self.experts(h)
        return torch.tanh(self.head(h + self.down(torch.tanh(self.up(h))))).unflatten(1, (3, 30)).mean(2)


def _fsdp(model):
    fully_shard(model)
    return model, (dist.get_rank(), dist.get_world_size())


def _ddp(model):
    return DistributedDataParallel(model), (dist.get_rank(), dist.get_world_size())


def _hsdp(model):
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("copies", "shards"))
    fully_shard(model, mesh=mesh)
    return model, (dist.get_rank(), dist.get_world_size())


def _parallel(model, mesh):
    head = ColwiseParallel(output_layouts=Replicate())
    return parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel(), "head": head})


def _tensor_parallel(model):
    return _parallel(model, init_device_mesh("cpu", (dist.get_world_size(),))), (0, 1)


def _fsdp_and_tensor_parallel(model):
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("data", "tensor"))
    _parallel(model, mesh["tensor"])
    fully_shard(model, mesh=mesh["data"])
    return model, (mesh["data"].get_local_rank(), 2)


def _expert_parallel(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def cut(name, module, mesh):
        module.weight = nn.Parameter(distribute_tensor(module.weight.data, mesh, [Shard(0)]))

    def enter(module, inputs, mesh):
        return tuple(DTensor.from_local(x, mesh, [Replicate()]) for x in inputs)

    distribute_module(model.experts, mesh, cut, enter, lambda module, output, mesh: output.full_tensor())
    return model, (0, 1)


MESHES = {
    "ddp": _ddp,
    "fsdp": _fsdp,
    "hsdp": _hsdp,
    "tensor_parallel": _tensor_parallel,
    "fsdp_and_tensor_parallel": _fsdp_and_tensor_parallel,
    "expert_parallel": _expert_parallel,
    "alone": lambda model: (model, (0, 1)),
}
"""Each lays a network over all ranks; it gives what to call, which share of a batch is this rank's, and of how many."""
