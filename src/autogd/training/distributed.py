"""One process or many: the rank, the slice of the batch, and the distribution of the model.

Every process takes an equal slice of the same global batch, so the numbers are those of one process. DDP averages the
gradients, or FSDP2 if the weights are sharded. Batch norm takes its statistics over the whole batch, with one
differentiable all-reduce.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm

from autogd.training.process import find_device

__all__ = ["Place", "local", "session", "share_batch_norm", "spread", "without_sync"]

# a process waits this long for another; if the other one died, torchrun ends the wait much sooner
PATIENCE = timedelta(minutes=10)


CPU = torch.device("cpu")


@dataclass(frozen=True)
class Place:
    """The rank of a process, the number of processes, and the device.

    >>> Place(rank=1, world=2).slice(torch.arange(4))
    tensor([2, 3])
    """

    rank: int = 0
    world: int = 1
    device: torch.device = CPU

    def slice(self, batch: Tensor) -> Tensor:
        """This process's equal share of a global batch."""
        return batch if self.world == 1 else batch.chunk(self.world)[self.rank]

    def mean(self, values: Tensor) -> Tensor:
        """The mean over all processes."""
        return self.sum(values) / self.world if self.world > 1 else values

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes; the argument is not changed."""
        if self.world == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag, whether it is set on any process."""
        if self.world == 1:
            return flags
        raised = torch.tensor(flags, dtype=torch.int32, device=self.device)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX)
        return tuple(bool(flag) for flag in raised.tolist())

    def tell(self, text: str) -> str:
        """Broadcast the first process's value."""
        if self.world == 1:
            return text
        said = [text]
        dist.broadcast_object_list(said, src=0, device=self.device)
        return said[0]

    def wait(self) -> None:
        """Wait for every process."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def session(device: str = "auto") -> Iterator[Place]:
    """This process's place: among torchrun's processes if torchrun started it, otherwise alone.

    >>> with session("cpu") as place:
    ...     place.world
    1
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    found = find_device(device, local_rank)
    joined = dist.is_available() and dist.is_initialized()
    start = "TORCHELASTIC_RUN_ID" in os.environ and not joined
    if start:
        if found.type == "cuda":
            torch.cuda.set_device(found)
        _join("nccl" if found.type == "cuda" else "gloo")
    try:
        yield Place(dist.get_rank(), dist.get_world_size(), found) if joined or start else Place(device=found)
    except (dist.DistBackendError, dist.DistNetworkError, RuntimeError) as error:
        if not (joined or start) or not any(sign in str(error) for sign in ("onnection", "imed out", "imeout")):
            raise
        detail = str(error).split("] ", 1)[-1].split(". ")[0]
        raise ConnectionError(
            f"another process of this run died or was stopped ({detail}); continue from the last checkpoint: --resume"
        ) from error
    finally:
        if start:
            dist.destroy_process_group()


def spread(model: nn.Module, place: Place, shard: bool) -> nn.Module:
    """The module to call: the model, a DDP of it, or the model with its parameters sharded.

    Build the optimiser after this call: sharding replaces the model's parameters in place.

    >>> model = nn.Linear(2, 2)
    >>> spread(model, Place(), shard=False) is model
    True
    """
    if place.world > 1:
        share_batch_norm(model)
    if shard and place.world > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(place.device.type, (place.world,))
        for container in model.children():
            if isinstance(container, nn.ModuleList | nn.Sequential):
                for block in container:
                    fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    if place.world == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    devices = [place.device] if place.device.type == "cuda" else None
    parallel = DistributedDataParallel(model, device_ids=devices)
    # Gloo's thread may still hold the tensors of its first broadcast. If an error frees the model now, torch holds the
    # interpreter's lock and waits for that thread, and the thread waits for the lock: a deadlock
    place.wait()
    return parallel


@contextmanager
def without_sync(model: nn.Module) -> Iterator[None]:
    """Inside the block gradients accumulate locally; only the last piece of a step averages them.

    >>> with without_sync(nn.Linear(1, 1)):
    ...     pass
    """
    setter: Any = getattr(model, "set_requires_gradient_sync", None)
    no_sync: Any = getattr(model, "no_sync", nullcontext)
    with no_sync():
        if setter is not None:
            setter(False)
        try:
            yield
        finally:
            if setter is not None:
                setter(True)


def local(tensor: Tensor) -> Tensor:
    """This process's shard of a tensor, or the tensor itself.

    >>> local(torch.ones(2))
    tensor([1., 1.])
    """
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def share_batch_norm(model: nn.Module) -> nn.Module:
    """Make every batch norm take its statistics over the whole batch, on any device; the modules keep their types.

    >>> type(share_batch_norm(nn.BatchNorm1d(2))).__name__
    'BatchNorm1d'
    """
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.forward = MethodType(_global_batch_norm, module)  # type: ignore[method-assign]
    return model


class _Sum(torch.autograd.Function):
    """An all-reduce with a gradient: every process's loss depends on the sum, so the gradient is a sum too."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total


_sum: Callable[[Tensor], Tensor] = _Sum.apply


def _global_batch_norm(self: _BatchNorm, x: Tensor) -> Tensor:
    if not self.training:
        return type(self).forward(self, x)
    over = [i for i in range(x.dim()) if i != 1]
    world = dist.get_world_size()
    wide = x if x.dtype == torch.float64 else x.float()
    # slices are equal, so one all-reduce collects the moments of all processes, one row for each
    variance, mean = torch.var_mean(wide, over, correction=0)
    mine = torch.zeros(world, 1, 1, dtype=wide.dtype, device=x.device)
    mine[dist.get_rank()] = 1
    means, variances = _sum(mine * torch.stack([mean, variance])).unbind(1)
    mean, variance = means.mean(0), variances.mean(0) + means.var(0, correction=0)
    if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            kept = self.running_mean
            share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
            weight = torch.as_tensor(share, dtype=kept.dtype, device=kept.device)
            count = x.numel() // x.shape[1] * world
            self.running_mean.lerp_(mean.to(kept), weight)
            self.running_var.lerp_((variance * count / (count - 1)).to(kept), weight)
    shape = [1, -1] + [1] * (x.dim() - 2)
    normal = (wide - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
    if self.affine:
        normal = normal * self.weight.view(shape) + self.bias.view(shape)
    return normal.to(x.dtype)


def _join(backend: str) -> None:
    """Join the processes of this attempt only: torchrun keeps one store over its restarts."""
    store, rank, world = next(rendezvous("env://", timeout=PATIENCE))
    fresh = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=fresh, rank=rank, world_size=world, timeout=PATIENCE)
