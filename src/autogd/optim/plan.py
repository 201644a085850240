"""What a step needs to know about its tensors, and Theorem 2 on the norms of their parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from autogd.engine.ranks import ALONE, Peers
from autogd.engine.shards import aligned, is_sharded
from autogd.geometry.atoms import Atom

__all__ = ["Plan", "Solution", "Summary", "audible", "idle", "make_plan", "rounding", "solve", "summarise"]


def rounding(dtype: torch.dtype, *, beside_own_weight: bool = False) -> float:
    """What rounding alone can leave in a gradient that should be zero, as a share of another dual norm.

    Beside the largest tensor's, 64 eps: `benchmarks/rounding.py` saw up to 10 in float32 and float64. Half precision's
    eps is so large that gradients which count may be that small: a sixteenth of it there. A bias, which is what is dead
    in practice, is told more sharply beside its own layer's weight: 64 eps, 2 in half precision.

    >>> rounding(torch.float32) == 64 * torch.finfo(torch.float32).eps
    True
    """
    half = torch.finfo(dtype).bits == 16
    return (64 if not half else 2 if beside_own_weight else 1 / 16) * torch.finfo(dtype).eps


@dataclass(frozen=True)
class Plan:
    """The tensors of a step, those of one part first and then by size, and a few numbers for each of their parts."""

    parameters: list[Tensor]
    atoms: list[Atom]
    groups: list[dict[str, Any]]
    group_of: Tensor  # the index of each tensor's group
    own: list[dict[str, Any]]  # each tensor's group
    depth: float
    sizes: list[int]  # parts of each tensor
    whole: int  # how many tensors have one part
    one_device: bool
    cut: bool  # whether any is a DTensor
    sparse: bool  # whether any gradient is; those of another layout have another plan
    weights: Tensor  # of each tensor: its share of the depth, where a layer has 1
    held_at: Tensor  # of each tensor: the norm that a hidden matrix is held at; infinite where it is free
    reach: Tensor  # of each part: scale times weight, what it moves by where a step has η/L = 1
    even: Tensor  # of each part: how many parts its tensor has, over its weight; makes dual norms comparable
    noise: Tensor  # the share of the largest tensor's dual norm that rounding can produce
    mate: Tensor  # of a part of a bias: the matching part of its weight; its own index where there is none
    mated: bool  # whether any has
    mate_noise: Tensor  # the share of that part's dual norm that rounding can produce; 0 where there is none
    owner: Tensor  # the index of the part's tensor
    # the latest settings of the groups, on the device
    sent: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)  # what else is worked out once

    @property
    def looks(self) -> bool:
        """Whether a step may look at a number without waiting for a device."""
        return self.reach.device.type == "cpu"

    def gradients(self) -> list[Tensor]:
        """Of all tensors, as they are now."""
        grads: list[Any] = [parameter.grad for parameter in self.parameters]
        if self.cut:
            grads = [aligned(grad, parameter) for grad, parameter in zip(grads, self.parameters, strict=True)]
        return [grad.coalesce() if grad.is_sparse else grad for grad in grads] if self.sparse else grads

    def per_tensor(self, setting: Callable[[dict[str, Any]], Any]) -> Tensor:
        """A setting of the groups, as a vector of one number a tensor; as one number where there is one group."""
        values = tuple(setting(group) for group in self.groups)
        if len(values) == 1:
            return _number(values[0])
        if any(isinstance(value, Tensor) for value in values):
            return torch.stack([_number(value).to(self.reach) for value in values])[self.group_of]
        if values not in self.sent:  # a copy to the device waits for it: only when a setting has changed
            if len(self.sent) >= 4:
                self.sent.clear()
            self.sent[values] = torch.tensor(values, device="cpu").to(self.reach)[self.group_of]
        return self.sent[values]

    def per_owner(self, values: Tensor) -> Tensor:
        """One number a part, added up for every tensor."""
        return values.new_zeros(len(self.sizes)).index_add_(0, self.owner, values)

    def shares(self, peers: Peers) -> tuple[Tensor, Tensor]:
        """Of each part, one over the number of ranks that hold it; and what the plan adds to the depth."""
        if "shares" not in self.kept:
            each = [peers.shares.get(parameter, 1.0) for parameter in self.parameters]
            depth = sum(share * atom.depth for share, atom in zip(each, self.atoms, strict=True))
            parts = torch.tensor(each, dtype=self.reach.dtype, device=self.reach.device)[self.owner]
            self.kept["shares"] = parts, torch.tensor(depth, dtype=self.reach.dtype, device=self.reach.device)
        shares: tuple[Tensor, Tensor] = self.kept["shares"]
        return shares

    def per_part(self, values: Tensor) -> Tensor:
        """One number a tensor, or one for all, as one number a part."""
        return values if values.dim() == 0 else values[self.owner]


def _number(value: Any) -> Tensor:
    """As a tensor, where it is one already, or on the CPU, which goes with any device."""
    return value if isinstance(value, Tensor) else torch.as_tensor(value, device="cpu")


@dataclass(frozen=True)
class Solution:
    """What Theorem 2 gives: η, G, and by what each part's gradient is to be multiplied."""

    learning_rate: Tensor
    gradient_summary: Tensor
    coefficients: Tensor
    duals: Tensor  # of each part: scale · weight · ‖∇‖
    heard: Tensor  # of each part: whether it counts, and moves
    finite: Tensor
    depth: float | Tensor  # L


def make_plan(
    entries: list[tuple[Tensor, Atom, dict[str, Any]]], weight_of: Mapping[Tensor, Tensor] | None = None
) -> Plan:
    """Work out the constants of all parts, once; they live on the first tensor's device.

    Args:
        entries: the tensors, each with its atom and its group.
        weight_of: for biases, the weight of the same layer.
    """
    # tensors that can be treated together stand together
    entries = sorted(entries, key=lambda e: (e[1].parts != 1, e[0].numel(), tuple(e[0].shape), str(e[0].dtype)))
    parameters = [parameter for parameter, _, _ in entries]
    atoms = [atom for _, atom, _ in entries]
    groups: list[dict[str, Any]] = []
    for _, _, group in entries:
        if not any(group is known for known in groups):
            groups.append(group)
    device = parameters[0].device
    dtype = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
    sizes = [atom.parts for atom in atoms]
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(device)

    offsets = [0, *accumulate(sizes)]
    place = {parameter: i for i, parameter in enumerate(parameters)}
    mate, mated = list(range(offsets[-1])), [False] * offsets[-1]
    for parameter, weight in (weight_of or {}).items():
        if parameter not in place or weight not in place:
            continue
        mine, theirs = place[parameter], place[weight]
        for part in range(sizes[mine]):
            # packed biases go with packed weights; beside a kernel of many taps, the first stands for all
            other = offsets[theirs] + (part if sizes[theirs] == sizes[mine] else 0)
            mate[offsets[mine] + part], mated[offsets[mine] + part] = other, True

    def spread(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)[owner]

    beside = spread([rounding(p.dtype, beside_own_weight=True) for p in parameters])

    return Plan(
        parameters=parameters,
        atoms=atoms,
        groups=groups,
        own=[group for _, _, group in entries],
        group_of=torch.tensor([next(i for i, g in enumerate(groups) if g is group) for _, _, group in entries]).to(
            device
        ),
        depth=sum(atom.depth for atom in atoms),
        sizes=sizes,
        whole=sum(size == 1 for size in sizes),
        one_device=all(p.device == device for p in parameters),
        cut=any(is_sharded(p) for p in parameters),
        sparse=any(p.grad is not None and p.grad.is_sparse for p in parameters),
        weights=torch.tensor([atom.weight for atom in atoms], dtype=dtype, device=device),
        held_at=torch.tensor([atom.held_at for atom in atoms], dtype=dtype, device=device),
        reach=spread([atom.weight * atom.scale for atom in atoms]),
        even=spread([atom.parts / atom.weight for atom in atoms]),
        noise=spread([rounding(p.dtype) for p in parameters]),
        mate=torch.tensor(mate, device=device),
        mated=any(mated),
        mate_noise=torch.where(torch.tensor(mated, device=device), beside, 0),
        owner=owner,
    )


class Summary(NamedTuple):
    """What all ranks agree on before a step."""

    gradient_summary: Tensor  # G
    depth: float | Tensor  # L
    heard: Tensor  # of each part: whether it counts, and moves
    finite: Tensor
    more: tuple[Tensor, ...]  # sums of whatever else was to be summed


def summarise(duals: Tensor, plan: Plan, peers: Peers = ALONE, *more: Tensor) -> Summary:
    """G, L and the noise floor, over the ranks that hold parts of the model.

    Args:
        duals: of each part, its dual norm.
        plan: whose parts they are.
        peers: those ranks.
        more: other numbers of each part, to be summed likewise.
    """
    heard, finite = audible(duals, plan, peers)
    # G = (1/L) Σ √(d_k/d_(k-1)) ‖∇_k‖_F
    if peers.group is None:
        G = torch.where(heard, duals, 0).sum() / plan.depth
        return Summary(G, plan.depth, heard, finite, tuple(each.sum() for each in more))
    shares, depth = plan.shares(peers)
    each = [torch.where(heard, duals, 0), duals, *more]
    sums = peers.sum(torch.stack([depth, *((shares * one).sum() for one in each)]))
    L = sums[0].clamp(min=torch.finfo(sums.dtype).tiny)
    return Summary(sums[1] / L, L, heard, sums[2] < torch.inf, tuple(sums[3:]))


def idle(like: Tensor, peers: Peers, more: int = 0) -> Summary:
    """Take part in the sums of a step for which this rank has no gradient."""
    peers.max(like.new_zeros(()))
    L, G, duals, *rest = peers.sum(like.new_zeros(3 + more)).unbind()
    L = L.clamp(min=torch.finfo(L.dtype).tiny)
    return Summary(G / L, L, like.new_zeros(0, dtype=torch.bool), duals < torch.inf, tuple(rest))


def audible(duals: Tensor, plan: Plan, peers: Peers = ALONE) -> tuple[Tensor, Tensor]:
    """Which parts' gradients stand out from rounding, and whether all are finite.

    A part whose gradient is zero, or smaller than rounding can produce beside the largest tensor's, counts as zero: to
    normalise it would turn noise into a full-size step.
    """
    # every part of a tensor has its weight and its siblings: times their number, a part speaks for the whole tensor
    loudness = duals * plan.even
    if plan.whole == len(plan.sizes):
        loudest = loudness.max()
    else:
        totals = duals.new_zeros(len(plan.sizes)).index_add_(0, plan.owner, duals)
        loudest = (totals / plan.weights).max()
    loud = loudness > plan.noise * peers.max(loudest)
    if plan.mated:
        loud &= loudness > plan.mate_noise * loudness[plan.mate]
    return loud, duals.sum() < torch.inf  # nan is not less than anything


def solve(norms: Tensor, plan: Plan, learning_rate: Callable[[Tensor], Tensor], peers: Peers = ALONE) -> Solution:
    """Theorem 2 from the norm of every part's gradient."""
    duals = plan.reach * norms
    G, L, heard, finite, _ = summarise(duals, plan, peers)
    eta = learning_rate(G)
    # ΔW_k = −(η/L) √(d_k/d_(k-1)) ∇_k/‖∇_k‖_F
    coefficients = torch.where(heard, plan.reach / norms, 0) * (eta / -L)
    return Solution(eta, G, coefficients, duals, heard, finite, L)
