"""Send pieces of matrices to their owners, and directions back: two packed all-to-alls per round.

While one round is orthogonalised, the next one's pieces and the last one's directions travel.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autogd.engine.bundles import stacked
from autogd.engine.distributed.owners import ROOM, Block, assign
from autogd.engine.distributed.pieces import Box
from autogd.engine.distributed.shards import Layout
from autogd.geometry.atom import Atom

__all__ = ["Exchange"]

Orthogonalise = Callable[[Tensor, Atom], Tensor]
"""From stacked tensors and the atom of the stack to their directions; may write over its input."""


@dataclass(frozen=True)
class _Copy:
    """One run of a buffer and the box of a tensor that it is copied from or to."""

    at: int
    block: int
    box: Box


@dataclass(frozen=True)
class _Packing:
    """A buffer that is sent or received: its runs, and the length of each rank's share."""

    splits: list[int]
    copies: list[_Copy]

    @property
    def numel(self) -> int:
        return sum(self.splits)

    def views(self, buffer: Tensor) -> list[Tensor]:
        return [buffer.narrow(0, c.at, math.prod(c.box.size)).view(c.box.size) for c in self.copies]


@dataclass(frozen=True)
class _Round:
    """One round, seen from one rank."""

    pieces_out: _Packing
    pieces_in: _Packing
    directions_out: _Packing
    directions_in: _Packing
    mine: list[int]  # the blocks that this rank owns, equal ones in a row
    tensors: list[int]


class Exchange:
    """The tensors whose matrices are cut over, or copied on, the ranks of one group.

    Args:
        tensors: number in the plan, layout and atom of each.
        group: the process group; the layouts' coordinates are in the order of its ranks.
        rank: this process's rank in it.
        dtype: the type to orthogonalise in.
        wire: the type that travels; bfloat16 if the orthogonalisation multiplies in half precision.
        room: numbers that a rank may receive in one round.
    """

    def __init__(
        self,
        tensors: Sequence[tuple[int, Layout, Atom]],
        group: Any,
        rank: int,
        dtype: torch.dtype,
        wire: torch.dtype | None = None,
        room: int = ROOM,
    ) -> None:
        self.group, self.rank, self.dtype, self.wire = group, rank, dtype, wire or dtype
        self.device = torch.device("cpu")  # set by the first pieces
        self.layouts = {number: layout for number, layout, _ in tensors}
        ranks = len(tensors[0][1].coordinates)
        self.ownership = assign([(number, layout.shape, atom) for number, layout, atom in tensors], ranks, room)

    @cached_property
    def rounds(self) -> list[_Round]:
        """All rounds, worked out once."""
        return [self._round(indices) for indices in self.ownership.rounds]

    def run(
        self,
        prepare: Callable[[int], Tensor],
        orthogonalise: Orthogonalise,
        deliver: Callable[[int, Tensor], None],
    ) -> None:
        """Exchange everything once.

        Args:
            prepare: gives this rank's piece of a tensor, by its number.
            orthogonalise: see `Orthogonalise`.
            deliver: takes this rank's piece of the direction of a tensor.
        """
        rounds = self.rounds
        coming = self._send_pieces(rounds[0], prepare) if rounds else None
        returning: tuple[_Round, Any] | None = None
        for at, now in enumerate(rounds):
            wholes = self._receive_pieces(now, coming)
            coming = self._send_pieces(rounds[at + 1], prepare) if at + 1 < len(rounds) else None
            back = self._send_directions(now, wholes, orthogonalise)
            if returning is not None:
                self._deliver(*returning, deliver)
            returning = now, back
        if returning is not None:
            self._deliver(*returning, deliver)

    def _send_pieces(self, now: _Round, prepare: Callable[[int], Tensor]) -> Any:
        pieces = {number: prepare(number) for number in now.tensors}
        self.device = pieces[now.tensors[0]].device
        out = torch.empty(now.pieces_out.numel, dtype=self.wire, device=self.device)
        sources = [c.box.of_piece(pieces[self._block(c).tensor]) for c in now.pieces_out.copies]
        _copy(now.pieces_out.views(out), sources)
        return self._all_to_all(out, now.pieces_out, now.pieces_in)

    def _receive_pieces(self, now: _Round, coming: Any) -> dict[int, Tensor]:
        """The blocks that this rank owns, whole; equal ones are views of one stack."""
        pieces = self._received(coming)
        wholes: dict[int, Tensor] = {}
        for alike in self._alike(now.mine):
            shape = self.ownership.blocks[alike[0]].shape
            stack = torch.empty(len(alike), *shape, dtype=self.dtype, device=pieces.device)
            wholes.update(zip(alike, stack.unbind(), strict=True))
        _copy([c.box.of_whole(wholes[c.block]) for c in now.pieces_in.copies], now.pieces_in.views(pieces))
        return wholes

    def _send_directions(self, now: _Round, wholes: dict[int, Tensor], orthogonalise: Orthogonalise) -> Any:
        for alike in self._alike(now.mine):
            first = wholes[alike[0]]
            stack = first.as_strided((len(alike), *first.shape), (first.numel(), *first.stride()))
            result = orthogonalise(stack, stacked(self.ownership.blocks[alike[0]].atom, len(alike)))
            wholes.update(zip(alike, result.unbind(), strict=True))
        out = torch.empty(now.directions_out.numel, dtype=self.wire, device=self.device)
        _copy(now.directions_out.views(out), [c.box.of_whole(wholes[c.block]) for c in now.directions_out.copies])
        wholes.clear()  # make room for what comes back
        return self._all_to_all(out, now.directions_out, now.directions_in)

    def _deliver(self, now: _Round, back: Any, deliver: Callable[[int, Tensor], None]) -> None:
        buffer = self._received(back)
        sizes = {number: self.layouts[number].piece(self.rank).size for number in now.tensors}
        found = {n: torch.empty(size, dtype=self.dtype, device=buffer.device) for n, size in sizes.items()}
        targets = [c.box.of_piece(found[self._block(c).tensor]) for c in now.directions_in.copies]
        _copy(targets, now.directions_in.views(buffer))
        for number in now.tensors:
            deliver(number, found.pop(number))

    def _all_to_all(self, out: Tensor, send: _Packing, receive: _Packing) -> Any:
        into = torch.empty(receive.numel, dtype=out.dtype, device=out.device)
        # as bytes: not every process group can send bfloat16
        work = dist.all_to_all_single(
            into.view(torch.uint8),
            out.view(torch.uint8),
            [n * out.element_size() for n in receive.splits],
            [n * out.element_size() for n in send.splits],
            group=self.group,
            async_op=True,
        )
        return into, work, out  # buffers must live until they are sent

    @staticmethod
    def _received(arrived: Any) -> Tensor:
        into, work, _ = arrived
        work.wait()
        return into

    def _alike(self, indices: Sequence[int]) -> list[list[int]]:
        """Group blocks by shape and atom."""
        found: dict[Any, list[int]] = {}
        for index in indices:
            block = self.ownership.blocks[index]
            found.setdefault((block.shape, block.atom), []).append(index)
        return list(found.values())

    def _block(self, copy: _Copy) -> Block:
        return self.ownership.blocks[copy.block]

    def _round(self, indices: Sequence[int]) -> _Round:
        me, ranks = self.rank, range(self.ownership.ranks)
        owners, blocks = self.ownership.owners, self.ownership.blocks
        mine = sorted((i for i in indices if owners[i] == me), key=lambda i: (blocks[i].shape, repr(blocks[i].atom), i))
        by_owner: dict[int, list[int]] = {rank: [] for rank in ranks}
        for index in indices:
            by_owner[owners[index]].append(index)

        def layout(index: int) -> Layout:
            return self.layouts[blocks[index].tensor]

        def supplied(owner: int, source: int) -> list[tuple[int, int]]:
            """The blocks of an owner that a rank sends pieces of: those of the same copy of the tensor."""
            return [(i, source) for i in by_owner[owner] if layout(i).same_copy(source, owner)]

        return _Round(
            pieces_out=self._packing([supplied(owner, me) for owner in ranks]),
            pieces_in=self._packing([supplied(me, source) for source in ranks]),
            directions_out=self._packing([[(i, rank) for i in by_owner[me]] for rank in ranks]),
            directions_in=self._packing([[(i, me) for i in by_owner[owner]] for owner in ranks]),
            mine=mine,
            tensors=list(dict.fromkeys(blocks[i].tensor for i in indices)),
        )

    def _packing(self, lists: Sequence[Sequence[tuple[int, int]]]) -> _Packing:
        """For each rank, the blocks in a buffer, each with the rank that holds the piece."""
        splits, copies, at = [], [], 0
        for each in lists:
            start = at
            for index, holder in each:
                block = self.ownership.blocks[index]
                for box in self.layouts[block.tensor].piece(holder).boxes(block.first, block.count):
                    copies.append(_Copy(at, index, box))
                    at += math.prod(box.size)
            splits.append(at - start)
        return _Packing(splits, copies)


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)
