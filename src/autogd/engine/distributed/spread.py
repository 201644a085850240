"""Tensors over several ranks: sums over all pieces, and directions from one owner per matrix."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autogd.engine.distributed.exchange import Exchange
from autogd.engine.distributed.owners import flops, is_local, kept_cut
from autogd.engine.distributed.pieces import Piece
from autogd.engine.distributed.polar import Slabs
from autogd.engine.distributed.ranks import group_of, ranks_of
from autogd.engine.distributed.shards import Layout, is_sharded, local, piece_of, splits_of
from autogd.geometry.atom import Atom
from autogd.geometry.direction import Geometry, unit_direction
from autogd.geometry.norms import accumulation_dtype

__all__ = ["Spread", "wire_dtype"]

Deliver = Callable[[int, Tensor], None]


class Spread:
    """Where the pieces of a step's tensors are; worked out once, from shapes and placements alone.

    Args:
        tensors: DTensors, and plain tensors that are whole here.
        atoms: one per tensor.
        copies: the group whose ranks all hold the plain tensors, as under DDP, and share the work on them; None if
            each rank does its own.
        orthogonalise: another polar factor than the one that `unit_direction` takes.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        atoms: Sequence[Atom],
        copies: Any = None,
        orthogonalise: Callable[..., Tensor] | None = None,
    ) -> None:
        self.atoms = list(atoms)
        self._orthogonalise = orthogonalise
        self.pieces: list[Piece | None] = [piece_of(tensor) for tensor in tensors]
        self.sizes = [atom.parts for atom in atoms]
        self._sums = self._reductions(tensors)
        self._copies = copies
        self._tensors = list(tensors)
        self._exchanges: list[Exchange] | None = None
        self._slabs: dict[int, Slabs] = {}  # of matrices that stay cut

    def squares(self, tensors: Sequence[Tensor]) -> Tensor:
        """The squared norm of every part, over the pieces here, as one vector; `reduce` completes it."""
        dtype = self._dtype(tensors)
        each = []
        for tensor, atom, piece in zip(tensors, self.atoms, self.pieces, strict=True):
            each.append(_squares(local(tensor), atom, piece).to(dtype))
        return torch.cat(each)

    def reduce(self, sums: Tensor) -> Tensor:
        """Sums of pieces, one per part along the last dimension, all-reduced over the ranks that cut the part."""
        for group, index in self._sums:
            if index is None:
                sums = sums.contiguous()
                dist.all_reduce(sums, group=group)
            else:
                some = sums.index_select(-1, index)
                dist.all_reduce(some, group=group)
                sums = sums.index_copy(-1, index, some)
        return sums

    def sums(self, number: int, piece: Tensor) -> Tensor:
        """The sum of every part of a tensor, over the piece here."""
        atom, place = self.atoms[number], self.pieces[number]
        return _sums(piece, atom) if place is None else place.sums(piece, atom)

    def scale_(self, number: int, piece: Tensor, factors: Tensor) -> Tensor:
        """Multiply the piece here by one number per part, in place."""
        atom, place = self.atoms[number], self.pieces[number]
        factors = factors.to(piece)
        if place is None:
            atom.cut(piece).mul_(atom.spread(factors))
        else:
            place.cut(piece, atom).mul_(place.spread(factors, atom))
        return piece

    def directions(self, prepare: Callable[[int], Tensor], deliver: Deliver, geometry: Geometry = "spectral") -> None:
        """The unit direction of every tensor: matrices from their owners, vectors from a sum of squares.

        Args:
            prepare: gives this rank's piece of a tensor, by its number; it may be written over.
            deliver: takes this rank's piece of its direction.
            geometry: "frobenius" divides matrices by their norms, too.
        """
        spectral = geometry == "spectral"
        exchanges = self._plan_exchanges() if spectral else []
        away = {number for exchange in exchanges for number in exchange.layouts}
        divided: dict[int, Tensor] = {}
        for number, atom in enumerate(self.atoms):
            if number in away:
                continue
            piece, place = prepare(number), self.pieces[number]
            if not (spectral and flops(atom)):
                divided[number] = piece
            elif number in self._slabs:
                deliver(number, self._slabs[number].direction(piece))
            elif place is None:
                deliver(number, self._unit(piece, atom))
            else:  # whole matrices, some of them here
                deliver(number, self._unit(piece, place.atom_here(atom)) if piece.numel() else piece)
        if divided:
            self._divide(divided, deliver)
        for exchange in exchanges:
            exchange.run(prepare, self._unit, deliver)

    def _unit(self, stack: Tensor, atom: Atom) -> Tensor:
        if self._orthogonalise is None:
            return unit_direction(stack, atom, "spectral")
        return atom.join(self._orthogonalise(atom.matrices(stack))).reshape(stack.shape)

    def _divide(self, pieces: dict[int, Tensor], deliver: Deliver) -> None:
        """Divide every part by its Frobenius norm."""
        some = list(pieces)
        dtype = self._dtype(list(pieces.values()))
        found: dict[int, Tensor | None] = dict.fromkeys(range(len(self.atoms)))
        for number, piece in pieces.items():
            atom, place = self.atoms[number], self.pieces[number]
            found[number] = _squares(piece, atom, place).to(dtype)
        device = next(iter(pieces.values())).device
        each = [
            torch.zeros(size, dtype=dtype, device=device) if sums is None else sums
            for sums, size in zip(found.values(), self.sizes, strict=True)
        ]
        norms = self.reduce(torch.cat(each)).sqrt().split(self.sizes)
        for number in some:
            piece, norm = pieces.pop(number), norms[number]
            factors = torch.where(norm > 0, 1 / norm, 0).to(piece.dtype)
            deliver(number, self.scale_(number, piece, factors))

    def _dtype(self, tensors: Sequence[Tensor]) -> torch.dtype:
        return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32

    def _reductions(self, tensors: Sequence[Any]) -> list[tuple[Any, Tensor | None]]:
        """The groups over which tensors are cut, each with the parts it is for, or None for all."""
        members: dict[Any, list[bool]] = {}
        for number, tensor in enumerate(tensors):
            for split in splits_of(tensor) if is_sharded(tensor) else ():
                group = tensor.device_mesh.get_group(split.axis)
                members.setdefault(group, [False] * len(tensors))[number] = True
        found = []
        for group, mask in members.items():
            parts = torch.repeat_interleave(torch.tensor(mask), torch.tensor(self.sizes))
            index = None if bool(parts.all()) else parts.nonzero().flatten().to(local(tensors[0]).device)
            found.append((group, index))
        return found

    def _plan_exchanges(self) -> list[Exchange]:
        if self._exchanges is None:
            self._exchanges = list(self._find_exchanges())
        return self._exchanges

    def _find_exchanges(self) -> list[Exchange]:
        members: dict[Any, list[tuple[int, Layout, Atom]]] = {}
        groups: dict[tuple[int, ...], Any] = {}
        for number, (tensor, atom) in enumerate(zip(self._tensors, self.atoms, strict=True)):
            if not flops(atom):
                continue
            found = _layout(tensor, self._copies)
            if found is None or is_local(found[1], atom):
                continue
            ranks, layout = found
            mesh: Any = getattr(tensor, "device_mesh", None)
            if mesh is not None and mesh.ndim == 1 and ranks_of(mesh.get_group()) == ranks:
                groups[ranks] = mesh.get_group()
            dtype = accumulation_dtype(tensor.dtype)
            members.setdefault((ranks, dtype, tensor.device.type), []).append((number, layout, atom))
        found_here = []
        for (ranks, dtype, device), entries in members.items():
            for number in kept_cut(entries):
                self._slabs[number] = self._cut_along_its_length(number)
            entries = [entry for entry in entries if entry[0] not in self._slabs]
            if not entries:
                continue
            group = groups[ranks] if ranks in groups else group_of(ranks)
            found_here.append(Exchange(entries, group, ranks.index(dist.get_rank()), dtype, wire_dtype(dtype, device)))
        return found_here

    def _cut_along_its_length(self, number: int) -> Slabs:
        tensor: Any = self._tensors[number]
        groups = tuple(tensor.device_mesh.get_group(split.axis) for split in splits_of(tensor))
        return Slabs(groups, tensor.shape[0] > tensor.shape[1], self._orthogonalise)


def wire_dtype(dtype: torch.dtype, device: str) -> torch.dtype:
    """The type in which matrices are sent: bfloat16 if `polar` multiplies in half precision.

    >>> wire_dtype(torch.float32, "cuda"), wire_dtype(torch.float32, "cpu")
    (torch.bfloat16, torch.float32)
    """
    return torch.bfloat16 if device != "cpu" and dtype == torch.float32 else dtype


def _layout(tensor: Any, copies: Any) -> tuple[tuple[int, ...], Layout] | None:
    """The ranks that hold a tensor, in order, and its layout over them; None if this rank alone holds it."""
    if is_sharded(tensor):
        mesh = tensor.device_mesh.mesh
        ranks = tuple(sorted(mesh.flatten().tolist()))
        places = {int(mesh[tuple(at)]): tuple(at) for at in torch.ones(mesh.shape).nonzero().tolist()}
        if len(ranks) == 1:
            return None
        return ranks, Layout(tuple(tensor.shape), tuple(splits_of(tensor)), tuple(places[rank] for rank in ranks))
    if copies is None:
        return None
    ranks = ranks_of(copies)
    if len(ranks) == 1:
        return None
    return ranks, Layout(tuple(tensor.shape), (), tuple((place,) for place in range(len(ranks))))


def _sums(piece: Tensor, atom: Atom) -> Tensor:
    cut = atom.cut(piece)
    return (cut.sum(atom.inner) if atom.inner else cut).flatten()


def _squares(piece: Tensor, atom: Atom, place: Piece | None) -> Tensor:
    if piece.is_sparse:
        piece = piece.to_dense()
    return (
        _sums(piece.to(accumulation_dtype(piece.dtype)).square(), atom) if place is None else place.squares(piece, atom)
    )
