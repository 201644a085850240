"""The backend in C: each pass goes over all tensors at once. For float32 on the CPU, if the library was compiled.

torch's own operations start and end their threads with every tensor, and use one thread for the norms of a kernel's
taps. No tensor is copied: besides the state, a step needs one square of the smaller side of the largest matrix for
every two threads that orthogonalise.

Matrices are orthogonalised by Zolotarev's rational function, x (w + a₁/(x² + p₁) + a₂/(x² + p₂)), which takes two
inverses of XXᵀ + p instead of twelve multiplications (Nakatsukasa and Freund, SIAM Review 58(3), 2016). It is as close
as `autogd.geometry.polar`: singular values from 1/392 of the 8-norm on come out within 0.14 of one.
"""

import ctypes
import math
from array import array
from collections.abc import Sequence
from itertools import pairwise, product

import torch
from torch import Tensor

from autogd.engine.backend import Norms, Step
from autogd.engine.foreach import Foreach
from autogd.engine.layout import runs
from autogd.engine.plan import Plan
from autogd.geometry.atom import Atom
from autogd.geometry.direction import Geometry

__all__ = ["POLES", "WHOLE", "Native", "takes"]

WHOLE = 0.932231  # w
POLES = ((0.01090493, 2.770019e-5), (0.1982113, 0.01117049))  # a and p; p is far above what rounding does to XXᵀ
# of a tensor in autogd.h: the addresses of weight, gradient, momentum and average, of the parts' numbers; blocks, rows,
# run, its first part; whether it is orthogonalised, and held
WORDS = 11
PLAIN = (Tensor, torch.nn.Parameter)
SUMS = 4  # of every part: of squares of gradients, of momenta, of products of both, of squares of held weights


def takes(plan: Plan) -> bool:
    """Whether the library supports all of a plan's weights."""
    ours = all(type(p) in PLAIN and p.dtype == torch.float32 for p in plan.parameters)
    return ours and plan.on_cpu and plan.one_device


class Native(Foreach):
    """All tensors in one call of the library. Falls back to foreach for inputs that it does not support."""

    def __init__(self, plan: Plan, passes: ctypes.CDLL, geometry: Geometry, momentum: float = 0.0) -> None:
        super().__init__(plan, geometry, momentum)
        self.passes = passes
        # tensors without gaps that agree in both have one shape
        self.counts = [parameter.numel() for parameter in plan.parameters]
        self.strides = [parameter.stride() for parameter in plan.parameters]
        self.parts = sum(plan.sizes)
        self.longest = 0
        self.kept: list[Tensor] = []  # tensors whose addresses the words keep
        self.words = array("q", [0] * (WORDS * len(plan.parameters)))
        self.fits = self._describe()
        matrices = self._matrices() if self.fits and momentum and geometry == "spectral" else []
        self.count, self.largest = len(matrices), max((matrix[3] for matrix in matrices), default=0)
        words = [word for matrix in sorted(matrices, key=lambda matrix: matrix[3:5]) for word in matrix]
        self.matrices = (ctypes.c_int64 * len(words))(*words)
        poles = [number for pole in POLES for number in pole]
        # as `settings` in stochastic.c: what momentum keeps, the gradients' factor, the average's share, Zolotarev's
        self.settings = torch.tensor([momentum, 1, 0, WHOLE, *poles], dtype=torch.float32, device="cpu")
        self.none = torch.empty(0, dtype=torch.float32, device="cpu")
        self.distinct: list[int] = []  # addresses of the weights when they were last checked for overlaps
        self.found: tuple[Tensor | None, int] | None = None  # sums and threads of the last measurement in C

    def measure(self, grads: list[Tensor], momenta: Sequence[Tensor] = ()) -> Norms:
        """The norms of gradients, momenta and held weights."""
        self.found = None
        supported = self.momentum or self.geometry == "frobenius"
        if not supported or (self.momentum and not momenta) or not self._locate(grads, momenta):
            return super().measure(grads, momenta)
        threads, plan = torch.get_num_threads(), self.plan
        if not self.momentum:
            norms = torch.empty(self.parts, dtype=torch.float32, device="cpu")
            self._pass(threads, norms, None, None)
            self.found = None, threads
            return Norms(norms, self.none, self.none)
        doubles = self.passes.autogd_doubles(self._address(), len(grads), self.parts)
        sums = torch.empty(doubles, dtype=torch.float64, device="cpu")
        room = self._room(threads, 0)
        self.passes.autogd_measure(
            self._address(), len(grads), self.longest, self.parts, sums.data_ptr(), room.data_ptr(), threads
        )
        self.found = sums, threads
        gradients, momenta_, _, weights = sums[: SUMS * self.parts].view(-1, SUMS).unbind(1)
        return Norms(*(each.sqrt().to(plan.reach.dtype) for each in (gradients, momenta_, plan.map_sums(weights))))

    def update(
        self, grads: list[Tensor], step: Step, momenta: Sequence[Tensor] = (), averages: Sequence[Tensor] = ()
    ) -> None:
        """Move every tensor, its momentum and its average."""
        found, self.found = self.found, None
        if found is None or step.finite is not None or not self._locate_states(averages, 3, torch.float32):
            super().update(grads, step, momenta, averages)
            return
        sums, threads = found
        if sums is None:
            if step.keeps is not None and step.average is None:
                torch._foreach_mul_(self.plan.parameters, list(step.keeps.unbind()))
            self._pass(threads, None, _floats(step.coefficients), self._mixtures(step))
        else:
            self._orthogonalise(sums, threads, step)
        torch.autograd.graph.increment_version(self.plan.parameters)

    def _pass(self, threads: int, *given: Tensor | None) -> None:
        addresses = [None if tensor is None else tensor.data_ptr() for tensor in given]
        sizes = len(self.plan.parameters), self.longest, self.parts
        if self.passes.autogd_pass(self._address(), *sizes, *addresses, threads):
            raise MemoryError("a step: there is no memory left for the sums of a row; no weight was changed")

    def _mixtures(self, step: Step) -> Tensor | None:
        """The numbers of `mixture` in passes.c, for every tensor."""
        if step.average is None:
            return None
        ones = torch.ones_like(self.plan.depth_shares)
        keeps = ones if step.keeps is None else step.keeps
        return _floats(torch.stack([ones * each for each in (*step.average, keeps) if each is not None], 1))

    def _orthogonalise(self, sums: Tensor, threads: int, step: Step) -> None:
        """Momentum, directions, weights and averages of all tensors."""
        assert step.average is not None
        assert step.gradient_factor is not None
        assert step.keeps is not None
        share = step.average.share
        self.settings[1:3] = torch.stack([step.gradient_factor.to(torch.float32), share.max().to(torch.float32)])
        moves, keeps, sizes = (_floats(each) for each in (share > 0, step.keeps, -step.coefficients))
        norms = torch.empty(2 * self.parts, dtype=torch.float32, device="cpu")
        room = self._room(threads, self.count)
        self.passes.autogd_update(
            self._address(), len(self.plan.parameters), self.matrices, self.count,
            self.longest, self.largest, self.parts,
            self.settings.data_ptr(), moves.data_ptr(), keeps.data_ptr(), sizes.data_ptr(), sums.data_ptr(),
            norms.data_ptr(), room.data_ptr(), threads,
        )  # fmt: skip

    def _address(self) -> int:
        return self.words.buffer_info()[0]

    def _room(self, threads: int, count: int) -> Tensor:
        """The library's scratch memory."""
        floats = self.passes.autogd_floats(self.longest, self.largest, count, threads)
        return torch.empty(floats, dtype=torch.float32, device="cpu")

    def _describe(self) -> bool:
        """Write down the memory layout of the tensors; False if one has gaps, or its parts mix."""
        first = 0
        for at, (parameter, atom) in enumerate(zip(self.plan.parameters, self.plan.atoms, strict=True)):
            layout = runs(atom.cut(parameter), atom)
            if layout is None:
                return False
            number = run = 0
            if layout.rest:
                # the parts' own numbers, spread as their coefficients would be
                parts = layout.spread(torch.arange(atom.parts, dtype=torch.int32, device="cpu"), atom).contiguous()
                self.kept.append(parts)
                number, run = parts.data_ptr(), parts.shape[-1]
                self.longest = max(self.longest, run)
            held = int(atom.held_at < math.inf)
            words = array("q", [number, layout.blocks, layout.rows, run or 1, first, 0, held])
            self.words[WORDS * at + 4 : WORDS * (at + 1)] = words
            first += atom.parts
        return True

    def _matrices(self) -> list[tuple[int, ...]]:
        """The parts to orthogonalise, as `matrix` in stochastic.c has them."""
        found: list[tuple[int, ...]] = []
        for at, (parameter, atom) in enumerate(zip(self.plan.parameters, self.plan.atoms, strict=True)):
            if atom.fan_in == 1 or atom.fan_out == 1:
                continue
            strides = atom.cut(parameter).stride()
            steps = (_stride(atom, strides, dims) for dims in (atom.rows, atom.columns))
            sides = list(zip((atom.fan_out, atom.fan_in), steps, strict=True))
            if atom.complex or any(stride is None for _, stride in sides):
                self.fits = False
                return []
            # of two equal sides, take the one without gaps
            (side, along), (length, across) = sorted(sides, key=lambda side: (side[0], side[1] or 0))
            first = self.words[WORDS * at + 8]
            self.words[WORDS * at + 9] = 1
            for part, where in enumerate(product(*(range(atom.shape[i]) for i in atom.grid))):
                offset = sum(index * strides[i] for index, i in zip(where, atom.grid, strict=True))
                found.append((at, first + part, offset, side, length, along or 0, across or 0))
        return found

    def _locate(self, grads: list[Tensor], momenta: Sequence[Tensor]) -> bool:
        """Write down all addresses; False if a tensor is not as it was planned, or not plain memory."""
        if not self.fits or not self._locate_states(momenta, 2, torch.bfloat16):
            return False
        places = self._write(self.plan.parameters, 0)
        if not places or not self._locate_states(grads, 1, torch.float32):
            return False
        if places != self.distinct:
            ends = sorted((place, place + 4 * count) for place, count in zip(places, self.counts, strict=True))
            if any(end > start for (_, end), (start, _) in pairwise(ends)):
                return False  # two threads would write to the same weights
            self.distinct = places
        return True

    def _locate_states(self, states: Sequence[Tensor], word: int, dtype: torch.dtype) -> bool:
        """Write down the addresses of states or gradients; False if one is not laid out as its parameter is."""
        if not states:
            return True
        found = {(type(held), held.dtype, held.is_cpu, held.is_neg()) for held in states}
        return found <= {(kind, dtype, True, False) for kind in PLAIN} and bool(self._write(states, word))

    def _write(self, tensors: Sequence[Tensor], word: int) -> list[int]:
        """Write down and return the addresses; none of them if a tensor has another shape, or takes no memory."""
        # compare all tensors at once: a step of small tensors is mostly such calls
        if list(map(Tensor.numel, tensors)) != self.counts or list(map(Tensor.stride, tensors)) != self.strides:
            return []
        places = list(map(Tensor.data_ptr, tensors))
        self.words[word::WORDS] = array("q", places)
        return places if all(places) else []


def _floats(values: Tensor) -> Tensor:
    return values.to("cpu", torch.float32).contiguous()


def _stride(atom: Atom, strides: Sequence[int], dims: tuple[int, ...]) -> int | None:
    """The stride from one row, or column, of a matrix to the next; None if it is not constant."""
    many = [i for i in dims if atom.shape[i] != 1]
    if any(strides[i] != strides[j] * atom.shape[j] for i, j in pairwise(many)):
        return None
    return strides[many[-1]] if many else math.prod(atom.shape)
