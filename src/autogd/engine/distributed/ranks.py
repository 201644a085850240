"""Which ranks train one model together, and what they must agree on.

Norms, G, the depth and so the learning rate are those of the whole model. A DTensor knows which rank holds which rows.
A plain tensor does not: every rank is taken to hold a copy of it, as under DDP. The first step compares the copies, and
refuses those that would drift apart. With `process_group=`, plain tensors are parts of one model (pipeline stages,
experts): G and the depth are then sums over that group, and a tensor that several ranks hold counts once.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autogd.engine.distributed.shards import is_sharded, local
from autogd.geometry.atom import Atom
from autogd.geometry.complex import as_real
from autogd.reading.chain import Runs, joined

__all__ = ["SAME", "Others", "Peers", "find_peers", "group_of", "others_of", "ranks_of"]

SAME = 1e-3  # relative difference of gradient norms that rounding and atomics on a GPU stay below
CHUNK = 1 << 22  # numbers of a tensor that are summed in one call
_made: dict[tuple[Any, tuple[int, ...]], Any] = {}


@dataclass(frozen=True)
class Peers:
    """The ranks that this one trains with.

    Args:
        group: over which G and the depth are summed; None if every rank has them all.
        copies: the group whose ranks all hold the same plain tensors; None if there is none.
        shares: 1/n for a tensor that n ranks of `group` hold; missing ones count as 1.
        chain: D, the longest run of layers that compound, over the group; None if it is this rank's.
        inner: whether this is a stage whose output another one reads: its last matrix is no readout.
        settled: False if all gradients were zero, as when torch makes room for a state: compare in the next step too.
    """

    group: Any = None
    copies: Any = None
    shares: Mapping[Tensor, float] = field(default_factory=dict)
    chain: float | None = None
    inner: bool = False
    settled: bool = True


@dataclass(frozen=True)
class Others:
    """The ranks of a group that hold other parts of the same model, for `autogd.optim.rule`.

    Args:
        group: their process group.
        shares: for each part here, 1/n if n ranks hold it.
        depth: what the parts here add to the depth.
    """

    group: Any
    shares: Tensor
    depth: Tensor

    def max(self, values: Tensor) -> Tensor:
        """The largest of these and of the group's, all at least 0."""
        largest = values.max() if len(values) else values.new_zeros(())
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.group)
        return largest

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the group."""
        dist.all_reduce(values := values.clone(), group=self.group)
        return values


def others_of(peers: Peers, tensors: Sequence[Tensor], atoms: Sequence[Atom], like: Tensor) -> Others | None:
    """The other ranks of the group, for these tensors; None if there is no group."""
    if peers.group is None:
        return None
    each = [peers.shares.get(tensor, 1.0) for tensor in tensors]
    depth = sum(share * atom.depth for share, atom in zip(each, atoms, strict=True))
    depth = max(depth, torch.finfo(torch.float32).tiny)  # not 0, if no rank has a gradient
    parts = [share for share, atom in zip(each, atoms, strict=True) for _ in range(atom.parts)]
    return Others(peers.group, torch.tensor(parts).to(like), torch.tensor(depth, dtype=torch.float64).to(like))


def find_peers(process_group: Any, named: Mapping[str, Tensor], owner: str, runs: Runs | None = None) -> Peers:
    """Compare the parameters over the ranks, once, before the first step.

    Args:
        process_group: what the user passed: a group, a mesh, None, or False if this rank trains alone.
        named: the parameters, by name.
        owner: the optimiser's name, for messages.
        runs: of this rank's layers, without a norm layer among them.

    >>> find_peers(None, {}, "AGD").group is None
    True
    """
    if process_group is False or not (dist.is_available() and dist.is_initialized()):
        return Peers()
    group = _as_group(process_group)
    if dist.get_world_size(group) == 1 or dist.get_backend(group) == "fake":
        return Peers()
    if process_group is None:
        return _compare(named, group, owner)
    return _count(named, group, runs or Runs(0.0, 0.0, 0.0, False))


def _compare(named: Mapping[str, Tensor], group: Any, owner: str) -> Peers:
    """Every rank must have been given the same parameters; plain ones must be copies of each other."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    device = _device(group, named)
    text = repr([(name, tuple(p.shape), str(p.dtype), is_sharded(p)) for name, p in named.items()])
    mine = torch.tensor([_hash(text), len(named)], device=device)
    found = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(found, mine, group=group)
    every = torch.stack(found).tolist()
    other = next((i for i, each in enumerate(every) if each != every[rank]), None)
    if other is not None:
        here, there = every[rank][1], every[other][1]
        raise ValueError(
            f"{owner}: the ranks were given different parameters: rank {rank} has {here} tensors, rank {other} has "
            f"{there}{', of other names or shapes' if here == there else ''}. {_way_out(owner)}"
        )
    plain = {name: p for name, p in named.items() if not is_sharded(p)}
    if not plain:
        return Peers()
    found_any = torch.tensor([[0.0, 0.0, _has_gradient(named)]], dtype=torch.float64)
    prints = torch.cat([*(_fingerprint(p).cpu() for p in plain.values()), found_any]).to(device)
    extremes = torch.stack([prints, -prints])
    dist.all_reduce(extremes, dist.ReduceOp.MAX, group=group)
    settled = bool(extremes[0, -1, 2])
    high, low = extremes[0, :-1], -extremes[1, :-1]
    unequal = (high - low) > SAME * torch.maximum(high.abs(), low.abs())
    unequal[:, :2] = high[:, :2] != low[:, :2]
    weights, gradients = unequal[:, :2].any(1).tolist(), unequal[:, 2].tolist()
    names = list(plain)
    differ = [name for name, w, g in zip(names, weights, gradients, strict=True) if w or g]
    if not differ:
        return Peers(copies=group, settled=settled)
    if not any(weights) and len(differ) == sum(p.grad is not None for p in plain.values()):
        raise ValueError(
            f"{differ[0]}: its weights are the same on all ranks, its gradient is not, and so for all other tensors; "
            "the copies would drift apart. Average the gradients: wrap the model in DistributedDataParallel, or in "
            f"fully_shard. If every rank trains a model of its own: {owner}(model, process_group=False)"
        )
    same = next((name for name in names if name not in differ), None)
    beside = "" if same is None else f", while {same} is the same on all"
    raise ValueError(f"{differ[0]}: this tensor differs from rank to rank{beside}. {_way_out(owner)}")


def _way_out(owner: str) -> str:
    return (
        "Each would get a learning rate of its own. If the ranks hold parts of one model (pipeline stages, experts), "
        f"name their group: {owner}(model, process_group=torch.distributed.group.WORLD). If every rank trains a model "
        f"of its own: {owner}(model, process_group=False)"
    )


def _count(named: Mapping[str, Tensor], group: Any, runs: Runs) -> Peers:
    """How many ranks of the group hold each tensor; and D, of stages one after the other."""
    mine = [(_key(name, p), float(_gradient_norm(p))) for name, p in named.items()]
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, (runs, mine, _has_gradient(named)), group=group)
    shares = {}
    held: dict[int, list[float]] = {}
    for _, tensors, _ in every:
        for key, norm in tensors:
            held.setdefault(key, []).append(norm)
    for (key, norm), parameter in zip(mine, named.values(), strict=True):
        shares[parameter] = 1 / sum(_close(norm, other) for other in held[key])
    first = {key for key, _ in every[0][1]}
    staged = all(first.isdisjoint(key for key, _ in tensors) for _, tensors, _ in every[1:])
    each = [runs for runs, _, _ in every]
    chain = joined(each) if staged else max(runs.longest for runs in each)
    inner = staged and dist.get_rank(group) < len(every) - 1
    settled = any(found_any for _, _, found_any in every)
    return Peers(group, shares=shares, chain=chain, inner=inner, settled=settled)


def _close(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= SAME * max(abs(one), abs(other)) or (one != one and other != other)


def _key(name: str, parameter: Any) -> int:
    """The same on two ranks if they hold the same tensor: by its mesh, or else by its numbers."""
    if is_sharded(parameter):
        content: Any = sorted(parameter.device_mesh.mesh.flatten().tolist())
    else:
        content = _fingerprint(parameter)[0, :2].tolist()
    return _hash(repr((name, tuple(parameter.shape), str(parameter.dtype), content)))


def _fingerprint(parameter: Tensor) -> Tensor:
    """Two sums of a tensor's numbers, and the norm of its gradient."""
    sums = torch.zeros(3, dtype=torch.float64, device=parameter.device)
    for place, some in enumerate(parameter.detach().flatten().split(CHUNK)):
        numbers = as_real(some).double().flatten()
        # the second tells a permutation, too
        places = torch.arange(1, numbers.numel() + 1, device=numbers.device, dtype=torch.float64)
        sums[0] += numbers.sum()
        sums[1] += (numbers * places.add_(place).rsqrt_()).sum()
    sums[2] = _gradient_norm(parameter)
    return torch.nan_to_num(sums).unsqueeze(0)


def _has_gradient(named: Mapping[str, Tensor]) -> bool:
    """Whether any gradient here is not zero."""
    grads = (local(parameter.grad) for parameter in named.values() if parameter.grad is not None)
    return any(bool((grad.coalesce()._values() if grad.is_sparse else grad).any()) for grad in grads)


def _gradient_norm(parameter: Tensor) -> Tensor:
    grad = parameter.grad
    if grad is None or is_sharded(parameter):
        return torch.zeros((), dtype=torch.float64)
    numbers = as_real(grad.coalesce()._values() if grad.is_sparse else grad)
    return torch.linalg.vector_norm(numbers, dtype=torch.float64 if numbers.dtype == torch.float64 else torch.float32)


def _hash(text: str) -> int:
    return int(struct.unpack("<q", hashlib.sha256(text.encode()).digest()[:8])[0])


def _device(group: Any, named: Mapping[str, Tensor]) -> torch.device:
    if dist.get_backend(group) == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    first = next(iter(named.values()))
    return local(first).device


def _as_group(process_group: Any) -> Any:
    if process_group is None:
        return dist.group.WORLD
    if hasattr(process_group, "mesh"):  # a DeviceMesh
        return group_of(tuple(sorted(process_group.mesh.flatten().tolist())))
    return process_group


def ranks_of(group: Any) -> tuple[int, ...]:
    """The global ranks of a group, in its order."""
    return tuple(dist.get_process_group_ranks(group))


def group_of(ranks: Sequence[int]) -> Any:
    """The process group of these ranks, in ascending order: the world's, or one that they make together, once."""
    ranks = tuple(ranks)
    world: Any = dist.group.WORLD
    if ranks == ranks_of(world):
        return world
    key = (world, ranks)
    if key not in _made:
        _made[key] = dist.new_group(list(ranks), use_local_synchronization=True)
    return _made[key]
