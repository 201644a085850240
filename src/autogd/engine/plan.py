"""What a step needs to know about its tensors, worked out once: a few numbers for each tensor and each part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from autogd.geometry.atom import Atom
from autogd.geometry.complex import as_real
from autogd.geometry.norms import LEAST, accumulation_dtype, rounding

__all__ = ["Constants", "Plan", "constants_of", "make_plan"]


@dataclass(eq=False)
class Plan:
    """The tensors of a step, those of one part first and then by size. The names are those of `autogd.optim.rule`."""

    parameters: list[Tensor]
    complex: bool  # whether any of them is
    weights: list[Tensor]  # the parameters, complex ones viewed as real; `gradients` in steps.py renews the views
    atoms: list[Atom]
    groups: list[dict[str, Any]]  # without repeats
    group_of: Tensor  # of each tensor: the index of its group
    sizes: list[int]  # of each tensor: its parts
    owner: Tensor  # of each part: the index of its tensor
    whole: int  # how many tensors have one part
    one_device: bool
    on_cpu: bool  # a step may read a number without waiting for a device
    sparse: bool  # whether any gradient is
    plain: bool  # whether all gradients are plain, dense tensors of real numbers
    holds: bool  # whether any tensor is held at its size
    depth: float
    depth_shares: Tensor
    map_of: Tensor  # of each part: the index of its linear map; the taps of a kernel share one
    map_owner: Tensor  # of each map: the index of its tensor
    held_at: Tensor  # of each map: the norm that a hidden one is held at; infinite if it is free
    reach: Tensor
    part_to_tensor: Tensor
    noise_floor: Tensor
    own_weight: Tensor | None
    own_weight_floor: Tensor
    sums: Callable[[Tensor], Tensor]  # one number a part, summed for every tensor
    map_sums: Callable[[Tensor], Tensor]  # the same for every map
    totals: Callable[[Tensor], Tensor] | None  # as `sums`; None if every tensor is one part
    others: Any = None  # the ranks that hold other parts of the model, for `autogd.optim.rule`
    _sent: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)  # the latest settings, on the device

    def per_tensor(self, values: tuple[Any, ...]) -> Tensor:
        """One number a group, as a vector of one number a tensor on the device."""
        if any(isinstance(value, Tensor) for value in values):
            each = (v if isinstance(v, Tensor) else torch.tensor(v, device="cpu") for v in values)
            return torch.stack([value.to(self.reach) for value in each])[self.group_of]
        if values not in self._sent:  # a copy to the device waits for it: only if a setting has changed
            if len(self._sent) >= 4:
                self._sent.clear()
            self._sent[values] = torch.tensor(values, device="cpu").to(self.reach)[self.group_of]
        return self._sent[values]


class Constants(NamedTuple):
    """The numbers of `autogd.optim.rule.Parts`, one a tensor; `own_weight` is one a part."""

    depth: float
    depth_shares: list[float]
    reach: list[float]
    part_to_tensor: list[float]
    noise_floor: list[float]
    own_weight: list[int] | None
    own_weight_floor: list[float]


def constants_of(atoms: Sequence[Atom], dtypes: Sequence[torch.dtype], weight_of: Mapping[int, int]) -> Constants:
    """The constants of tensors with these atoms and types.

    Args:
        atoms: one a tensor.
        dtypes: likewise.
        weight_of: the number of a bias to the number of the weight of its layer.

    >>> from autogd.geometry.atoms import bias, matrix
    >>> layer = torch.nn.Linear(4, 2)
    >>> constants_of([matrix(layer.weight), bias(layer.bias)], [torch.float32] * 2, {1: 0}).own_weight
    [0, 0]
    """
    sizes = [atom.parts for atom in atoms]
    first = [0, *accumulate(sizes)]
    own_weight = list(range(first[-1]))
    for mine, theirs in weight_of.items():
        for part in range(sizes[mine]):
            # packed biases match packed weights; of a kernel's taps take the middle one: others may see only padding
            other = part if sizes[theirs] == sizes[mine] else sizes[theirs] // 2
            own_weight[first[mine] + part] = first[theirs] + other
    # a bias whose own weight has no gradient is compared with the largest tensor
    lone = [atom.kind == "bias" and i not in weight_of for i, atom in enumerate(atoms)]
    return Constants(
        depth=sum(atom.depth for atom in atoms),
        depth_shares=[atom.depth_share for atom in atoms],
        reach=[atom.depth_share * atom.scale for atom in atoms],
        part_to_tensor=[atom.parts / atom.depth_share for atom in atoms],
        noise_floor=[max(LEAST, rounding(d)) if alone else LEAST for d, alone in zip(dtypes, lone, strict=True)],
        own_weight=own_weight if weight_of else None,
        own_weight_floor=[rounding(d, beside_own_weight=True) * (i in weight_of) for i, d in enumerate(dtypes)],
    )


def make_plan(
    entries: list[tuple[Tensor, Atom, dict[str, Any]]],
    weight_of: Mapping[Tensor, Tensor] | None = None,
    like: Sequence[Tensor] = (),
) -> Plan:
    """Work out the constants of all parts; they live on the first tensor's device.

    Args:
        entries: the tensors, each with its atom and its group.
        weight_of: for biases, the weight of the same layer.
        like: tensors of the device and the type to use if there are no entries.
    """
    # tensors that can be stacked stand together
    entries = sorted(entries, key=lambda e: (e[1].parts != 1, e[0].numel(), tuple(e[0].shape), str(e[0].dtype)))
    parameters, atoms = [e[0] for e in entries], [e[1] for e in entries]
    groups = {id(group): group for *_, group in entries}
    group_of = [list(groups).index(id(group)) for *_, group in entries]
    like = parameters or like
    device = like[0].device
    wide = any(accumulation_dtype(p.dtype) == torch.float64 for p in like)
    dtype = torch.float64 if wide else torch.float32
    sizes = [atom.parts for atom in atoms]
    maps = [atom.maps for atom in atoms]
    owner, map_owner = _numbered(sizes).to(device), _numbered(maps).to(device)
    map_of = _numbered([n // m for n, m in zip(sizes, maps, strict=True) for _ in range(m)]).to(device)
    place = {parameter: i for i, parameter in enumerate(parameters)}
    weights = {place[b]: place[w] for b, w in (weight_of or {}).items() if b in place and w in place}
    constants = constants_of(atoms, [p.dtype for p in parameters], weights)

    def per_tensor(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    def sums(values: Tensor) -> Tensor:
        return values.new_zeros(len(sizes)).index_add_(0, owner, values)

    def map_sums(values: Tensor) -> Tensor:
        return values.new_zeros(len(map_owner)).index_add_(0, map_of, values)

    grads = [p.grad for p in parameters if p.grad is not None]
    has_complex = any(p.is_complex() for p in parameters)
    own_weight = constants.own_weight
    return Plan(
        parameters=parameters,
        complex=has_complex,
        weights=[as_real(p) for p in parameters] if has_complex else parameters,
        atoms=atoms,
        groups=list(groups.values()),
        group_of=torch.tensor(group_of, dtype=torch.int64, device=device),
        sizes=sizes,
        owner=owner,
        whole=sum(size == 1 for size in sizes),
        one_device=all(p.device == device for p in parameters),
        on_cpu=device.type == "cpu",
        sparse=any(grad.is_sparse for grad in grads),
        plain=all(type(grad) is Tensor and not grad.is_sparse and not grad.is_complex() for grad in grads),
        holds=any(atom.held_at < float("inf") for atom in atoms),
        depth=constants.depth,
        depth_shares=per_tensor(constants.depth_shares),
        map_of=map_of,
        map_owner=map_owner,
        held_at=per_tensor([atom.held_at for atom in atoms])[map_owner],
        reach=per_tensor(constants.reach)[owner],
        part_to_tensor=per_tensor(constants.part_to_tensor)[owner],
        noise_floor=per_tensor(constants.noise_floor)[owner],
        own_weight=None if own_weight is None else torch.tensor(own_weight, device=device),
        own_weight_floor=per_tensor(constants.own_weight_floor)[owner],
        sums=sums,
        map_sums=map_sums,
        totals=None if max(sizes, default=1) == 1 else sums,
    )


def _numbered(counts: Sequence[int]) -> Tensor:
    """The number of each count, repeated as often as it says."""
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts, dtype=torch.int64))
