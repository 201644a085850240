"""Tell what was read from a model: a table of its parameters and their atoms."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import nn

from autogd.geometry.catalogue import read_roles
from autogd.geometry.norms import operator_norm

__all__ = ["Explanation", "Row", "explain"]


@dataclass(frozen=True)
class Row:
    """One parameter as AGD sees it."""

    parameter: str
    module: str
    atom: str
    matrices: str
    target: float
    size: float
    share: float
    trained: bool


@dataclass(frozen=True)
class Explanation:
    """What AGD read from a model; `str()` gives the table, `rows` the numbers."""

    rows: list[Row]
    depth: float

    def __str__(self) -> str:
        head = [field.name for field in fields(Row)]
        body = [[_cell(value) for value in asdict(row).values()] for row in self.rows]
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in [head, *body]
        ]
        lines.insert(1, "  ".join("-" * w for w in widths))
        return "\n".join([*lines, f"depth L = {self.depth:g}"])

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return asdict(self)


def explain(model: nn.Module) -> Explanation:
    """A table of every parameter: its atom, its matrices, target and actual size, and its share of the depth.

    `size` is the largest operator norm among the parameter's matrices, beside the `target` of Prescription 1. A frozen
    parameter has no share of the depth.

    >>> layer = nn.Linear(16, 4, bias=False)
    >>> _ = nn.init.constant_(layer.weight, 0.125)
    >>> print(explain(layer))
    parameter  module  atom    matrices     target  size  share  trained
    ---------  ------  ------  -----------  ------  ----  -----  -------
    weight     Linear  matrix  1 of 4 × 16  0.5     1     1      yes
    depth L = 1
    """
    roles = read_roles(model)
    depth = sum(role.atom.depth for role in roles if role.parameter.requires_grad)
    rows = []
    for role in roles:
        atom, trained = role.atom, role.parameter.requires_grad
        size = float("nan") if role.parameter.is_meta else float(operator_norm(role.parameter, atom).max())
        matrices = f"{atom.parts} of {atom.fan_out} × {atom.fan_in}"
        share = atom.depth / depth if trained else 0.0
        rows.append(Row(role.name, type(role.module).__name__, atom.kind, matrices, atom.target, size, share, trained))
    known = {role.parameter for role in roles}
    for name, parameter in model.named_parameters():
        if parameter not in known:  # frozen, and of no atom: it need not be known until it is trained
            owner = type(model.get_submodule(name.rpartition(".")[0])).__name__
            kind = "unknown" if parameter.numel() else "empty"
            rows.append(Row(name, owner, kind, "", float("nan"), float("nan"), 0.0, False))
    return Explanation(rows, depth)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "frozen"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
