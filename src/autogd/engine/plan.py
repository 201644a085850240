"""What a step needs to know about its tensors, worked out once: a few numbers for each tensor and each part."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from autogd.geometry.atom import Atom
from autogd.geometry.complex import as_real
from autogd.geometry.norms import LEAST, accumulation_dtype, rounding

__all__ = ["Constants", "Plan", "constants_of"]


class Plan:
    """The tensors of a step, those of one part first and then by size. The names are those of `autogd.optim.rule`.

    The constants of all parts live on the first tensor's device.

    Args:
        entries: the tensors, each with its atom and its group.
        weight_of: for biases, the weight of the same layer.
        like: tensors of the device and the type to use if there are no entries.
    """

    others: Any = None  # the ranks that hold other parts of the model, for `autogd.optim.rule`

    def __init__(
        self,
        entries: list[tuple[Tensor, Atom, dict[str, Any]]],
        weight_of: Mapping[Tensor, Tensor] | None = None,
        like: Sequence[Tensor] = (),
    ) -> None:
        # tensors that can be stacked stand together
        entries = sorted(entries, key=lambda e: (e[1].parts != 1, e[0].numel(), tuple(e[0].shape), str(e[0].dtype)))
        self.parameters, self.atoms = [e[0] for e in entries], [e[1] for e in entries]
        grads = [p.grad for p in self.parameters if p.grad is not None]
        self.complex = any(p.is_complex() for p in self.parameters)
        # complex ones viewed as real; `gradients` in steps.py renews the views
        self.weights = [as_real(p) for p in self.parameters] if self.complex else self.parameters
        self.sparse = any(grad.is_sparse for grad in grads)
        # whether all gradients are plain, dense tensors of real numbers
        self.plain = all(type(grad) is Tensor and not grad.is_sparse and not grad.is_complex() for grad in grads)

        like = self.parameters or like
        device = like[0].device
        self.one_device = all(p.device == device for p in self.parameters)
        self.on_cpu = device.type == "cpu"  # a step may read a number without waiting for a device
        wide = any(accumulation_dtype(p.dtype) == torch.float64 for p in like)

        def vector(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64 if wide else torch.float32, device=device)

        groups = {id(group): group for *_, group in entries}
        self.groups = list(groups.values())  # without repeats
        group_of = [list(groups).index(id(group)) for *_, group in entries]
        # of each tensor: the index of its group
        self.group_of = torch.tensor(group_of, dtype=torch.int64, device=device)
        self._sent: dict[tuple[Any, ...], Tensor] = {}  # the latest settings, on the device

        self.sizes = [atom.parts for atom in self.atoms]  # of each tensor: its parts
        self.owner = _numbered(self.sizes).to(device)  # of each part: the index of its tensor
        self.whole = sum(size == 1 for size in self.sizes)  # how many tensors have one part
        self.sums = partial(_sums, self.owner, len(entries))  # one number per part, summed for every tensor
        # None if every tensor is one part
        self.totals: Callable[[Any], Any] | None = None if self.whole == len(entries) else self.sums
        # linear maps: the taps of a kernel share one
        maps = [atom.maps for atom in self.atoms]
        counts = [n // m for n, m in zip(self.sizes, maps, strict=True) for _ in range(m)]
        self.map_of = _numbered(counts).to(device)  # of each part: the index of its map
        self.map_owner = _numbered(maps).to(device)  # of each map: the index of its tensor
        self.map_sums = partial(_sums, self.map_of, sum(maps))  # one number per part, summed for every map
        held_at = [atom.held_at for atom in self.atoms]
        self.holds = min(held_at, default=math.inf) < math.inf
        self.held_at = vector(held_at)[self.map_owner]  # of each map: the norm to hold it at; infinite if it is free

        place = {parameter: i for i, parameter in enumerate(self.parameters)}
        weights = {place[b]: place[w] for b, w in (weight_of or {}).items() if b in place and w in place}
        constants = constants_of(self.atoms, [p.dtype for p in self.parameters], weights)
        self.depth, self.depth_shares = constants.depth, vector(constants.depth_shares)
        self.reach = vector(constants.reach)[self.owner]
        self.part_to_tensor = vector(constants.part_to_tensor)[self.owner]
        self.noise_floor = vector(constants.noise_floor)[self.owner]
        own_weight = constants.own_weight
        self.own_weight = None if own_weight is None else torch.tensor(own_weight, device=device)
        self.own_weight_floor = vector(constants.own_weight_floor)[self.owner]

    def per_tensor(self, values: tuple[Any, ...]) -> Tensor:
        """From one number per group to a vector of one number per tensor, on the device."""
        if any(isinstance(value, Tensor) for value in values):
            each = (v if isinstance(v, Tensor) else torch.tensor(v, device="cpu") for v in values)
            return torch.stack([value.to(self.reach) for value in each])[self.group_of]
        if values not in self._sent:  # a copy to the device waits for it: only if a setting has changed
            if len(self._sent) >= 4:
                self._sent.clear()
            self._sent[values] = torch.tensor(values, device="cpu").to(self.reach)[self.group_of]
        return self._sent[values]


class Constants(NamedTuple):
    """The numbers of `autogd.optim.rule.Parts`, one per tensor; `own_weight` has one per part."""

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
        atoms: one per tensor.
        dtypes: one per tensor.
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


def _numbered(counts: Sequence[int]) -> Tensor:
    """Each index i, repeated counts[i] times."""
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts, dtype=torch.int64))


def _sums(index: Tensor, size: int, values: Tensor) -> Tensor:
    return values.new_zeros(size).index_add_(0, index, values)
