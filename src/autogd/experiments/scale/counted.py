"""What a step really sends: bytes of the collectives that torch dispatches."""

from typing import Any

import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Counted"]


class Counted(TorchDispatchMode):
    """Inside, the bytes that this rank sends to others and receives from them add up; all-reduces and all-gathers as a
    ring's.

    >>> with Counted() as counted:
    ...     pass
    >>> counted.sent, counted.calls
    (0, {})
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sent = self.received = 0
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Count a collective, and let everything go its way."""
        name = func.name()
        if name.startswith("c10d::"):
            self._count(name.removeprefix("c10d::"), args)
        return func(*args, **(kwargs or {}))

    def _count(self, name: str, args: tuple[Any, ...]) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        if name == "alltoall_base_":
            into, out, _, into_splits, out_splits = args[:5]
            rank = dist.get_rank()  # the group is all ranks, where this is used
            self.sent += (sum(out_splits) - out_splits[rank]) * out.element_size()
            self.received += (sum(into_splits) - into_splits[rank]) * into.element_size()
        elif name == "allreduce_":
            ranks = dist.get_world_size()
            moved = sum(2 * t.numel() * t.element_size() * (ranks - 1) // ranks for t in args[0])
            self.sent += moved
            self.received += moved
        elif name == "allgather_":
            moved = sum(t.numel() * t.element_size() * (dist.get_world_size() - 1) for t in args[1])
            self.sent += moved
            self.received += moved
        else:
            raise ValueError(f"{name}: this collective is not counted yet")
