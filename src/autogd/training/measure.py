"""What a run measures: the numbers of its steps, how far a step moves the weights, memory and versions."""

import math
import platform
import sys
from typing import Any

import torch
from torch import Tensor, nn

import autogd
from autogd.training.distributed import Place, local

__all__ = ["COLUMNS", "Ledger", "UpdateSize", "environment", "peak_memory"]

COLUMNS = ("objective", "accuracy", "learning_rate", "update_size")


class Ledger:
    """The numbers of an epoch's steps, kept on the device and read once.

    It has one row per step and one column per quantity; a cell that was not written is nan.

    >>> ledger = Ledger(2, Place())
    >>> ledger.write(0, "objective", torch.tensor(0.5)); ledger.write(1, "objective", torch.tensor(0.25))
    >>> ledger.summary(2)["objective_mean"]
    0.375
    """

    def __init__(self, steps: int, place: Place) -> None:
        self.place = place
        dtype = torch.float32 if place.device.type == "mps" else torch.float64
        self.rows = torch.full((steps, len(COLUMNS)), math.nan, dtype=dtype, device=place.device)

    def write(self, step: int, column: str, value: Tensor | float) -> None:
        """Write a quantity; a tensor stays on the device, so nothing waits."""
        self.rows[step, COLUMNS.index(column)] = value

    def shared(self) -> Tensor:
        """The mean of the rows over the processes, since each sees its own slice of every batch."""
        return self.place.mean(self.rows)

    def first_bad(self, steps: int) -> int | None:
        """The first step whose objective is not finite; waits for the device."""
        bad = (~torch.isfinite(self.shared()[:steps, 0])).nonzero()
        return int(bad[0]) if len(bad) else None

    def steps(self) -> dict[str, list[float]]:
        """The columns as lists, to six digits; without the update size, which few steps measure.

        >>> ledger = Ledger(1, Place())
        >>> ledger.write(0, "objective", 0.5)
        >>> ledger.steps()["objective"]
        [0.5]
        """
        columns = zip(COLUMNS, self.shared().cpu().unbind(1), strict=True)
        return {
            name: [float(f"{value:.6g}") for value in column.tolist()]
            for name, column in columns
            if name != "update_size"
        }

    def summary(self, steps: int) -> dict[str, float | None]:
        """min, mean and max of every column over the steps that wrote it; None if none did."""
        rows = self.shared()[:steps].cpu()
        found: dict[str, float | None] = {}
        for name, column in zip(COLUMNS, rows.unbind(1), strict=True):
            known = column[~column.isnan()]
            for what, reduce in (("min", torch.min), ("mean", torch.mean), ("max", torch.max)):
                found[f"{name}_{what}"] = float(reduce(known)) if len(known) else None
        return found


class UpdateSize:
    """How far a step moves the weights: ‖ΔW_k‖_F / ‖W_k‖_F, averaged over the layers.

    It compares the weights before and after the step, so it is the same quantity for every optimiser. It costs a copy
    of the weights and two passes over them, so the loop measures only some steps.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> ruler = UpdateSize(model, Place())
    >>> with torch.no_grad():
    ...     _ = model.weight.mul_(1.5)
    >>> round(float(ruler.read()), 4)
    0.5
    """

    def __init__(self, model: nn.Module, place: Place) -> None:
        # no vectors: a bias may be zero, which makes the relative size infinite
        self.weights = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
        self.spread = any(local(p) is not p for p in self.weights)
        self.place = place
        with torch.no_grad():
            self.before = [local(p).detach().clone() for p in self.weights]
            self.sizes = _norms(self.before)

    @torch.no_grad()
    def read(self) -> Tensor:
        """The relative size of the update, on the device. Call it once: it overwrites the copy."""
        if not self.weights:
            return torch.zeros((), device=self.place.device)
        torch._foreach_sub_(self.before, [local(p) for p in self.weights])
        norms = torch.stack([_norms(self.before), self.sizes])
        if self.spread:
            norms = self.place.sum(norms.square()).sqrt()
        change, size = norms.unbind()
        known = size > 0
        return torch.where(known, change / size, 0).sum() / known.sum().clamp(min=1)


def _norms(tensors: list[Tensor]) -> Tensor:
    return torch.stack(torch._foreach_norm(tensors)) if tensors else torch.zeros(0)


def peak_memory(device: torch.device) -> int:
    """The peak memory so far, in bytes: of the device, or of the process if the device is the CPU.

    >>> peak_memory(torch.device("cpu")) > 0
    True
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def environment(place: Place) -> dict[str, Any]:
    """What results may depend on besides the config.

    >>> environment(Place())["processes"]
    1
    """
    return {
        "device": str(place.device),
        "processes": place.world,
        "threads": torch.get_num_threads(),
        "autogd": autogd.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
