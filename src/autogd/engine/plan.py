"""What a step needs to know about its tensors, worked out once: a few numbers for each tensor and each part."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from autogd.geometry.atom import Atom
from autogd.geometry.norms import LEAST, rounding

__all__ = ["Plan", "make_plan"]


@dataclass(eq=False)
class Plan:
    """The tensors of a step, those of one part first and then by size. The names are those of `autogd.optim.rule`."""

    parameters: list[Tensor]
    atoms: list[Atom]
    groups: list[dict[str, Any]]  # without repeats
    group_of: Tensor  # of each tensor: the index of its group
    own: list[dict[str, Any]]  # of each tensor: its group
    sizes: list[int]  # of each tensor: its parts
    owner: Tensor  # of each part: the index of its tensor
    whole: int  # how many tensors have one part
    one_device: bool
    on_cpu: bool  # a step may look at a number without waiting for a device
    sparse: bool  # whether any gradient is
    holds: bool  # whether any tensor is held at its size
    depth: float
    depth_shares: Tensor
    held_at: Tensor  # of each tensor: the norm that a hidden matrix is held at; infinite if it is free
    reach: Tensor
    speaks_for: Tensor
    noise: Tensor
    mate: Tensor | None
    mate_noise: Tensor
    sums: Callable[[Tensor], Tensor]  # one number a part, summed for every tensor
    totals: Callable[[Tensor], Tensor] | None  # the same; None if every tensor is one part
    others: Any = None  # the ranks that hold other parts of the model, as `autogd.optim.rule` knows them
    _sent: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)  # the latest settings, on the device

    def per_tensor(self, values: tuple[Any, ...]) -> Tensor:
        """One number a group, as a vector of one number a tensor on the device."""
        if any(isinstance(value, Tensor) for value in values):
            return torch.stack([torch.as_tensor(value).to(self.reach) for value in values])[self.group_of]
        if values not in self._sent:  # a copy to the device waits for it: only if a setting has changed
            if len(self._sent) >= 4:
                self._sent.clear()
            self._sent[values] = torch.tensor(values, device="cpu").to(self.reach)[self.group_of]
        return self._sent[values]


def make_plan(
    entries: list[tuple[Tensor, Atom, dict[str, Any]]], weight_of: Mapping[Tensor, Tensor] | None = None
) -> Plan:
    """Work out the constants of all parts; they live on the first tensor's device.

    Args:
        entries: the tensors, each with its atom and its group.
        weight_of: for biases, the weight of the same layer.
    """
    # tensors that can be stacked stand together
    entries = sorted(entries, key=lambda e: (e[1].parts != 1, e[0].numel(), tuple(e[0].shape), str(e[0].dtype)))
    parameters, atoms, own = (list(column) for column in zip(*entries, strict=True))
    groups: list[dict[str, Any]] = []
    for group in own:
        if not any(group is known for known in groups):
            groups.append(group)
    device = parameters[0].device
    dtype = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
    sizes = [atom.parts for atom in atoms]
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(device)
    mate, mated = _mates(parameters, sizes, weight_of or {})

    def per_tensor(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    def sums(values: Tensor) -> Tensor:
        return values.new_zeros(len(sizes)).index_add_(0, owner, values)

    beside = per_tensor([rounding(p.dtype, beside_own_weight=True) for p in parameters])[owner]
    # the floor of a bias beside the largest tensor, which serves if its own weight has no gradient
    lone = per_tensor([rounding(p.dtype) * (atom.kind == "bias") for p, atom in zip(parameters, atoms, strict=True)])
    return Plan(
        parameters=parameters,
        atoms=atoms,
        groups=groups,
        own=own,
        group_of=torch.tensor([next(i for i, g in enumerate(groups) if g is group) for group in own]).to(device),
        sizes=sizes,
        owner=owner,
        whole=sum(size == 1 for size in sizes),
        one_device=all(p.device == device for p in parameters),
        on_cpu=device.type == "cpu",
        sparse=any(p.grad is not None and p.grad.is_sparse for p in parameters),
        holds=any(atom.held_at < float("inf") for atom in atoms),
        depth=sum(atom.depth for atom in atoms),
        depth_shares=per_tensor([atom.depth_share for atom in atoms]),
        held_at=per_tensor([atom.held_at for atom in atoms]),
        reach=per_tensor([atom.depth_share * atom.scale for atom in atoms])[owner],
        speaks_for=per_tensor([atom.parts / atom.depth_share for atom in atoms])[owner],
        noise=torch.where(torch.tensor(mated, device=device), 0, lone[owner]).clamp(min=LEAST),
        mate=torch.tensor(mate, device=device) if any(mated) else None,
        mate_noise=torch.where(torch.tensor(mated, device=device), beside, 0),
        sums=sums,
        totals=None if max(sizes) == 1 else sums,
    )


def _mates(
    parameters: list[Tensor], sizes: list[int], weight_of: Mapping[Tensor, Tensor]
) -> tuple[list[int], list[bool]]:
    """For each part of a bias, the index of the matching part of its weight; a part's own index if there is none."""
    offsets = [0, *accumulate(sizes)]
    place = {parameter: i for i, parameter in enumerate(parameters)}
    mate, mated = list(range(offsets[-1])), [False] * offsets[-1]
    for parameter, weight in weight_of.items():
        if parameter not in place or weight not in place:
            continue
        mine, theirs = place[parameter], place[weight]
        for part in range(sizes[mine]):
            # packed biases go with packed weights; beside a kernel of many taps, the first stands for all
            other = offsets[theirs] + (part if sizes[theirs] == sizes[mine] else 0)
            mate[offsets[mine] + part], mated[offsets[mine] + part] = other, True
    return mate, mated
