"""StochasticAGD's two passes in C: for float32 on the CPU, where the library has been compiled.

No tensor is copied: what a step needs besides the state is one square of the smaller side of the largest matrix, for
every two threads that have one to turn.
"""

import ctypes
import math
from collections.abc import Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.geometry.zolotarev import POLES, WHOLE
from autogd.optim.native import WORDS, Table, lies
from autogd.optim.plan import Plan
from autogd.optim.rate import MOMENTUM

if TYPE_CHECKING:  # which imports this
    from autogd.optim.turning import Norms, Turning

__all__ = ["NativeTurning"]

STATES = {"momentum": torch.bfloat16, "average": torch.float32}
SUMS = 4  # of every part: of squares of gradients, of momenta, of products of both, of squares of held weights


class NativeTurning:
    """All tensors in one call of the library; what it does not take in some step goes torch's way in that step."""

    def __init__(self, plan: Plan, passes: ctypes.CDLL, spectral: bool, state: Any, otherwise: "Turning") -> None:
        self.passes, self.state, self.otherwise, self.table = passes, state, otherwise, Table(plan)
        matrices = self._matrices(plan) if spectral and self.table.fits else []
        self.count = len(matrices)
        self.largest = max((matrix[3] for matrix in matrices), default=0)
        words = [word for matrix in sorted(matrices, key=lambda matrix: matrix[3:5]) for word in matrix]
        self.matrices = (ctypes.c_int64 * len(words))(*words)
        for at, atom in enumerate(plan.atoms):
            self.table.words[WORDS * at + 11] = int(atom.held_at < math.inf)
        poles = [number for pole in POLES for number in pole]
        # as `settings` in stochastic.c: what momentum keeps, the gradients' factor, the average's share, Zolotarev's
        self.settings = torch.tensor([MOMENTUM, 1, 0, WHOLE, *poles], dtype=torch.float32, device="cpu")
        self.found: tuple[Tensor, int] | None = None  # the last measurement's sums and threads, for the update after it

    def _matrices(self, plan: Plan) -> list[tuple[int, ...]]:
        """Where the parts are that are to be turned, as `matrix` in stochastic.c has it."""
        found: list[tuple[int, ...]] = []
        for at, (parameter, atom) in enumerate(zip(plan.parameters, plan.atoms, strict=True)):
            if atom.fan_in == 1 or atom.fan_out == 1:
                continue
            strides = atom.cut(parameter).stride()
            steps = (_stride(atom, strides, dims) for dims in (atom.rows, atom.columns))
            sides = list(zip((atom.fan_out, atom.fan_in), steps, strict=True))
            if any(stride is None for _, stride in sides):
                self.table.fits = False
                return []
            # of two equal sides, the one that lies without gaps
            (side, along), (length, across) = sorted(sides, key=lambda side: (side[0], side[1] or 0))
            first = self.table.words[WORDS * at + 8]
            self.table.words[WORDS * at + 9] = 1
            for part, where in enumerate(product(*(range(atom.shape[i]) for i in atom.grid))):
                offset = sum(index * strides[i] for index, i in zip(where, atom.grid, strict=True))
                found.append((at, first + part, offset, side, length, along or 0, across or 0))
        return found

    def _find(self, grads: list[Tensor], plan: Plan) -> bool:
        """Write down where everything is now; False where the library cannot take it as it is."""
        if not self.table.find(grads, plan):
            return False
        words, at = self.table.words, 0
        for parameter, group, layout in zip(plan.parameters, plan.own, self.table.layouts, strict=True):
            state = self.state[parameter]
            for place, (name, dtype) in enumerate(STATES.items(), at + 2):
                held = state[name]
                if not lies(held, dtype, layout):
                    return False
                words[place] = held.data_ptr()
            words[at + 10] = -1 if group["maximize"] else 1
            at += WORDS
        return True

    def _room(self, threads: int, turned: int) -> Tensor:
        """What the library works in."""
        floats = self.passes.autogd_floats(self.table.longest, self.largest, turned, threads)
        return torch.empty(floats, dtype=torch.float32, device="cpu")

    def measure_gradients(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        return self.otherwise.measure_gradients(grads, plan)

    def measure(self, grads: list[Tensor], plan: Plan) -> "Norms":
        """The norms of gradients, momenta and weights."""
        from autogd.optim.turning import Norms

        self.found = None
        if not self._find(grads, plan):
            return self.otherwise.measure(grads, plan)
        threads, table = torch.get_num_threads(), self.table
        doubles = self.passes.autogd_doubles(table.words, len(grads), table.parts)
        sums = torch.empty(doubles, dtype=torch.float64, device="cpu")
        room = self._room(threads, 0)
        self.passes.autogd_measure(
            table.words, len(grads), table.longest, table.parts, sums.data_ptr(), room.data_ptr(), threads
        )
        self.found = sums, threads
        gradients, momenta, _, weights = sums[: SUMS * table.parts].view(-1, SUMS).unbind(1)
        each = gradients.sqrt(), momenta.sqrt(), plan.per_owner(weights).sqrt()
        return Norms(*(norms.to(plan.reach.dtype) for norms in each))

    def update(
        self,
        grads: list[Tensor],
        sizes: Tensor,
        factor: Tensor,
        steps: Tensor,
        keeps: Tensor,
        share: Tensor,
        plan: Plan,
    ) -> None:
        """Every tensor's new momentum, weights and average."""
        if self.found is None:
            self.otherwise.update(grads, sizes, factor, steps, keeps, share, plan)
            return
        (sums, threads), self.found, table = self.found, None, self.table
        self.settings[1:3] = torch.stack([factor, share])
        steps, keeps, sizes = (each.to(torch.float32).contiguous() for each in (steps, keeps, sizes))
        norms = torch.empty(2 * table.parts, dtype=torch.float32, device="cpu")
        room = self._room(threads, self.count)
        self.passes.autogd_update(
            table.words, len(grads), self.matrices, self.count, table.longest, self.largest, table.parts,
            self.settings.data_ptr(), steps.data_ptr(), keeps.data_ptr(), sizes.data_ptr(), sums.data_ptr(),
            norms.data_ptr(), room.data_ptr(), threads,
        )  # fmt: skip
        torch.autograd.graph.increment_version(plan.parameters)


def _stride(atom: Atom, strides: Sequence[int], dims: tuple[int, ...]) -> int | None:
    """From one row, or column, of a matrix to the next; None where there is no one answer."""
    many = [i for i in dims if atom.shape[i] != 1]
    if any(strides[i] != strides[j] * atom.shape[j] for i, j in pairwise(many)):
        return None
    return strides[many[-1]] if many else math.prod(atom.shape)
