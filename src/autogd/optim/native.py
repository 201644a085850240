"""The two passes in C, each over all tensors at once: for float32 on the CPU, where the library has been compiled.

torch's own operations begin and end their threads with every tensor, and have none for the norms of a kernel's taps.
`passes.c` has the loops, `compile_passes` makes the library of it.
"""

import ctypes
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from autogd.geometry.runs import runs
from autogd.optim.multi_tensor import MultiTensor
from autogd.optim.plan import Plan

__all__ = ["Native", "library"]

WORDS = 7  # of a tensor in passes.c: two addresses, one of the parts' numbers, blocks, rows, run, its first part
PLAIN = (Tensor, torch.nn.Parameter)


@cache
def library() -> ctypes.CDLL | None:
    """The compiled passes; None where nobody compiled them, or from another source.

    >>> library() is None or callable(library().autogd_pass)
    True
    """
    from autogd.optim.compile_passes import LIBRARY, fingerprint  # not before it can be run as a program

    try:
        found = ctypes.CDLL(str(LIBRARY))
        found.autogd_source.restype = ctypes.c_char_p
    except (OSError, AttributeError):
        return None
    if found.autogd_source().decode() != fingerprint():
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.autogd_pass.argtypes = [pointer, number, number, number, pointer, pointer, ctypes.c_int]
    return found


class Native:
    """All tensors in one call of the library; what it does not take in some step goes torch's way in that step."""

    def __init__(self, plan: Plan, passes: ctypes.CDLL) -> None:
        self.passes, self.otherwise = passes, MultiTensor(plan)
        # of tensors without gaps, these two tell the shape
        self.layouts = [(parameter.numel(), parameter.stride()) for parameter in plan.parameters]
        self.parts = sum(plan.sizes)
        self.longest = 0
        self.kept: list[Tensor] = []  # what the table has the addresses of for good
        self.table = (ctypes.c_int64 * (WORDS * len(plan.parameters)))()
        self.fits = self._describe(plan)
        self.here: tuple[int, int, int] | None = None  # which gradients' addresses the table has
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
            self.table[WORDS * at + 2 : WORDS * (at + 1)] = [number, lie.blocks, lie.rows, run or 1, first]
            first += atom.parts
        return True

    def _here(self, grads: list[Tensor], plan: Plan) -> bool:
        """Write down where everything is now; False where something is not as it was planned, or not plain memory."""
        # measured and applied in one step, they need not be looked at twice; but they must not be kept alive either
        which = (id(grads), grads[0].data_ptr(), grads[-1].data_ptr()) if self.fits else None
        if which is None or self.here == which:
            return self.fits
        table, places = self.table, []
        at = 0
        for parameter, grad, (count, stride) in zip(plan.parameters, grads, self.layouts, strict=True):
            place, slope = parameter.data_ptr(), grad.data_ptr()
            if parameter.numel() != count or grad.numel() != count or parameter.stride() != stride:
                return False
            if grad.stride() != stride or grad.dtype is not torch.float32 or type(grad) not in PLAIN or grad.is_neg():
                return False
            if not slope:  # zeros that take no memory
                return False
            table[at], table[at + 1] = place, slope
            places.append(place)
            at += WORDS
        if places != self.apart:
            ends = sorted((place, place + 4 * p.numel()) for place, p in zip(places, plan.parameters, strict=True))
            if any(end > start for (_, end), (start, _) in pairwise(ends)):
                return False  # two threads would write to the same weights
            self.apart = places
        self.here = which
        return True

    def _pass(self, plan: Plan, norms: Tensor | None, scales: Tensor | None) -> None:
        addresses = [None if tensor is None else tensor.data_ptr() for tensor in (norms, scales)]
        sizes = len(plan.parameters), self.longest, self.parts
        if self.passes.autogd_pass(self.table, *sizes, *addresses, torch.get_num_threads()):
            raise MemoryError("a step: there is no memory left for the sums of a row; no weight was changed")

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        self.here = None  # another step's list may have had this one's place
        if not self._here(grads, plan):
            return self.otherwise.measure(grads, plan)
        norms = torch.empty(self.parts, dtype=torch.float32, device="cpu")
        self._pass(plan, norms, None)
        return norms

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        if finite is not None or not self._here(grads, plan):
            self.otherwise.apply(grads, coefficients, plan, finite)
            return
        self._pass(plan, None, coefficients.to("cpu", torch.float32).contiguous())
        torch.autograd.graph.increment_version(plan.parameters)

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        self.otherwise.shrink(factors, plan)
