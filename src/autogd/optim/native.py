"""The passes in C, each over all tensors at once: for float32 on the CPU, where the library has been compiled.

torch's own operations begin and end their threads with every tensor, and have none for the norms of a kernel's taps.
The folder `c` has the loops, `compile_passes` makes the library of them.
"""

import ctypes
import os
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from autogd.geometry.runs import runs
from autogd.optim.multi_tensor import MultiTensor
from autogd.optim.plan import Plan

__all__ = ["PLAIN", "Native", "Table", "library", "lies", "plain"]

# of a tensor in autogd.h: four addresses, one of the parts' numbers, blocks, rows, run, its first part, whether it is
# orthogonalised, its sign, whether it is held
WORDS = 12
PLAIN = (Tensor, torch.nn.Parameter)


@cache
def library() -> ctypes.CDLL | None:
    """The compiled passes; None if missing, stale, or turned off by AUTOGD_NATIVE=0.

    >>> library() is None or callable(library().autogd_pass)
    True
    """
    from autogd.optim.compile_passes import LIBRARY, fingerprint  # not before it can be run as a program

    if os.environ.get("AUTOGD_NATIVE") == "0":
        return None
    try:
        found = ctypes.CDLL(str(LIBRARY))
        found.autogd_source.restype = ctypes.c_char_p
    except (OSError, AttributeError):
        return None
    if found.autogd_source().decode() != fingerprint():
        return None
    pointer, number, threads = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    found.autogd_pass.argtypes = [pointer, number, number, number, *[pointer] * 3, threads]
    found.autogd_doubles.argtypes, found.autogd_doubles.restype = [pointer, number, number], number
    found.autogd_floats.argtypes, found.autogd_floats.restype = [number, number, number, threads], number
    found.autogd_measure.argtypes = [pointer, number, number, number, pointer, pointer, threads]
    found.autogd_update.argtypes = [pointer, number, pointer, *[number] * 4, *[pointer] * 7, threads]
    return found


def plain(plan: Plan) -> bool:
    """Whether all of a plan's weights are of the kind that the library takes."""
    ours = (
        plan.looks and plan.one_device and all(type(p) in PLAIN and p.dtype == torch.float32 for p in plan.parameters)
    )
    return ours and not torch.compiler.is_compiling()


def lies(tensor: Tensor, dtype: torch.dtype, layout: tuple[int, tuple[int, ...]]) -> bool:
    """Whether a tensor of the CPU has this type, as many numbers, and these strides.

    >>> lies(torch.zeros(2, 3), torch.float32, (6, (3, 1)))
    True
    """
    same = tensor.dtype is dtype and tensor.device.type == "cpu"
    return same and tensor.numel() == layout[0] and tensor.stride() == layout[1]


class Table:
    """How a plan's tensors lie in memory, as autogd.h describes them, and where they are in this step."""

    def __init__(self, plan: Plan) -> None:
        # of tensors without gaps, these two tell the shape
        self.layouts = [(parameter.numel(), parameter.stride()) for parameter in plan.parameters]
        self.parts = sum(plan.sizes)
        self.longest = 0
        self.kept: list[Tensor] = []  # what the words have the addresses of for good
        self.words = (ctypes.c_int64 * (WORDS * len(plan.parameters)))()
        self.fits = self._describe(plan)
        self.apart: list[int] = []  # where weights lay when no two of them shared memory

    def _describe(self, plan: Plan) -> bool:
        """Write down how the tensors lie in memory; False where one has gaps, or its parts mingle."""
        first = 0
        for at, (parameter, atom) in enumerate(zip(plan.parameters, plan.atoms, strict=True)):
            cut = atom.cut(parameter)
            lie = runs(cut, atom)
            if lie is None:
                return False
            number = run = 0
            if lie.rest:
                # the parts' own numbers, spread as their coefficients would be
                numbers = torch.arange(atom.parts, dtype=torch.int32, device="cpu")
                parts = lie.spread(numbers, atom).contiguous()
                self.kept.append(parts)
                number, run = parts.data_ptr(), parts.shape[-1]
                self.longest = max(self.longest, run)
            self.words[WORDS * at + 4 : WORDS * (at + 1)] = [number, lie.blocks, lie.rows, run or 1, first, 0, 1, 0]
            first += atom.parts
        return True

    def find(self, grads: list[Tensor], plan: Plan) -> bool:
        """Write down where everything is now; False where something is not as it was planned, or not plain memory."""
        if not self.fits:
            return False
        words, places = self.words, []
        at = 0
        for parameter, grad, (count, stride) in zip(plan.parameters, grads, self.layouts, strict=True):
            place, slope = parameter.data_ptr(), grad.data_ptr()
            if parameter.numel() != count or grad.numel() != count or parameter.stride() != stride:
                return False
            if grad.stride() != stride or grad.dtype is not torch.float32 or type(grad) not in PLAIN or grad.is_neg():
                return False
            if not slope:  # zeros that take no memory
                return False
            words[at], words[at + 1] = place, slope
            places.append(place)
            at += WORDS
        if places != self.apart:
            ends = sorted((place, place + 4 * p.numel()) for place, p in zip(places, plan.parameters, strict=True))
            if any(end > start for (_, end), (start, _) in pairwise(ends)):
                return False  # two threads would write to the same weights
            self.apart = places
        return True


class Native:
    """All tensors in one call of the library; what it does not take in some step goes torch's way in that step."""

    def __init__(self, plan: Plan, passes: ctypes.CDLL) -> None:
        self.passes, self.otherwise, self.table = passes, MultiTensor(plan), Table(plan)
        self.found: tuple[int, int, int] | None = None  # which gradients' addresses the table has

    def _find(self, grads: list[Tensor], plan: Plan) -> bool:
        # measured and applied in one step, they need not be looked at twice; but they must not be kept alive either
        which = id(grads), grads[0].data_ptr(), grads[-1].data_ptr()
        if self.found == which:
            return True
        self.found = which if self.table.find(grads, plan) else None
        return self.found is not None

    def _pass(self, plan: Plan, *given: Tensor | None) -> None:
        addresses = [None if tensor is None else tensor.data_ptr() for tensor in given]
        sizes = len(plan.parameters), self.table.longest, self.table.parts
        if self.passes.autogd_pass(self.table.words, *sizes, *addresses, torch.get_num_threads()):
            raise MemoryError("a step: there is no memory left for the sums of a row; no weight was changed")

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        self.found = None  # another step's list may have had this one's place
        if not self._find(grads, plan):
            return self.otherwise.measure(grads, plan)
        norms = torch.empty(self.table.parts, dtype=torch.float32, device="cpu")
        self._pass(plan, norms, None, None)
        return norms

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        if finite is not None or not self._find(grads, plan):
            self.otherwise.apply(grads, coefficients, plan, finite)
            return
        self._pass(plan, None, coefficients.to("cpu", torch.float32).contiguous(), None)
        self.found = None
        torch.autograd.graph.increment_version(plan.parameters)

    def average(
        self, grads: list[Tensor], coefficients: Tensor, averages: list[Tensor], mixtures: Tensor, plan: Plan
    ) -> bool:
        """`apply`, with an average beside every tensor; False where that cannot be, and nothing was done.

        Args:
            grads: the gradients that were measured.
            coefficients: of every part.
            averages: of every tensor.
            mixtures: of every tensor, what `mixture` in passes.c has.
            plan: whose tensors they are.
        """
        if not self._find(grads, plan):
            return False
        for at, (held, layout) in enumerate(zip(averages, self.table.layouts, strict=True)):
            if not lies(held, torch.float32, layout):
                return False
            self.table.words[WORDS * at + 3] = held.data_ptr()
        self._pass(plan, None, *(given.to("cpu", torch.float32).contiguous() for given in (coefficients, mixtures)))
        self.found = None
        torch.autograd.graph.increment_version(plan.parameters)
        return True

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        self.otherwise.shrink(factors, plan)
