"""How a step touches the weights: two passes, measure and apply.

There are four ways: one to be read, one to be fast anywhere, one in C for the CPU, and one for tensors of which each
process holds a slice. All take and give one number a part, in the plan's order; the tests hold them equal to rounding.
"""

from typing import Protocol

from torch import Tensor

from autogd.optim.multi_tensor import MultiTensor
from autogd.optim.native import Native, library, plain
from autogd.optim.plan import Plan
from autogd.optim.readable import Readable
from autogd.optim.sharded import Sharded, is_sharded

__all__ = ["MultiTensor", "Native", "Path", "Readable", "Sharded", "choose_path"]


class Path(Protocol):
    """How a step touches the weights."""

    def measure(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """The norm of every part's gradient, as one vector."""
        ...

    def apply(self, grads: list[Tensor], coefficients: Tensor, plan: Plan, finite: Tensor | None = None) -> None:
        """Add to every part its gradient times its coefficient; nothing at all where `finite` is false."""
        ...

    def shrink(self, factors: Tensor, plan: Plan) -> None:
        """Multiply every tensor by its factor."""
        ...


def choose_path(grads: list[Tensor], plan: Plan, foreach: bool | None) -> Path:
    """The fast path where it is possible and not declined; it holds for all steps of the plan."""
    if any(is_sharded(grad) for grad in grads):
        return Sharded(grads, plan)
    if foreach is False or not plan.one_device or any(grad.is_sparse for grad in grads):
        return Readable()
    if plain(plan) and (passes := library()) is not None:
        return Native(plan, passes)
    return MultiTensor(plan)
