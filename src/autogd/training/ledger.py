"""The numbers of an epoch's steps, kept on the device and read once."""

import math

import torch
from torch import Tensor

from autogd.training.distributed import Place

__all__ = ["COLUMNS", "Ledger"]

COLUMNS = ("objective", "accuracy", "learning_rate", "update_size")


class Ledger:
    """One row per step, one column per quantity; a cell that was not written is nan.

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
        """The mean of the rows over the processes: each has seen its own slice of every batch."""
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
