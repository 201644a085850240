"""A table of what was read from a model: its parameters and their atoms."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from autogd.geometry.atom import Atom
from autogd.geometry.norms import operator_norm
from autogd.reading.agreement import merged
from autogd.reading.catalogue import read_roles
from autogd.reading.graph import read_model

__all__ = ["Explanation", "Row", "explain"]


HEAD = ["parameter", "atom", "matrices", "stored", "target", "size", "share", "source"]
WIDTH = 80  # of a terminal


@dataclass(frozen=True)
class Row:
    """One parameter as AGD sees it."""

    parameter: str
    module: str
    atom: str
    matrices: str
    stored: str
    target: float
    size: float
    share: float
    trained: bool
    source: str


@dataclass(frozen=True)
class Explanation:
    """What AGD read from a model; `str()` gives the table, `rows` the numbers."""

    rows: list[Row]
    depth: float

    def __str__(self) -> str:
        body = [_cells(row) for row in self.rows]
        widths = [max(map(len, column)) for column in zip(HEAD, *body, strict=True)]
        fits = sum(widths) + 2 * len(HEAD) - 2 <= WIDTH
        widths[0] = widths[0] if fits else 0  # long names have a line of their own
        lines = []
        for name, *rest in [HEAD, ["-" * width for width in widths], *body]:
            cells = [name] if fits else [""]
            lines += [name] if name and not fits else []
            cells += rest
            lines.append("  ".join(cell.ljust(w) for cell, w in zip(cells, widths, strict=True)).rstrip())
        return "\n".join([*lines, f"depth L = {self.depth:g}"])

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return asdict(self)


def explain(model: nn.Module, batch: Any = None) -> Explanation:
    """A table of every parameter: its atom, its matrices, target and actual size, share of the depth, and source.

    `size` is the largest operator norm among the parameter's matrices, beside the `target` of Prescription 1. `stored`
    says which of the tensor's dimensions are outputs, inputs, or count matrices. A frozen parameter has no share of the
    depth. The `source` is the catalogue of layers, the graph of a forward pass, you (`register_atom`), or the shape
    alone, until a pass is read: the optimiser reads its first one, and with a `batch` it is read here. The table fits
    80 columns: long names have a line of their own. `rows` has all that was read, the module of each too.

    Args:
        model: any Module; left as it is.
        batch: an input, a tuple that begins with one, or a mapping of keyword arguments.

    >>> layer = nn.Linear(16, 4, bias=False)
    >>> _ = nn.init.constant_(layer.weight, 0.125)
    >>> print(explain(layer))
    parameter  atom    matrices   stored  target  size  share  source
    ---------  ------  ---------  ------  ------  ----  -----  ---------
    weight     matrix  1 of 4×16  out×in  0.5     1     1      catalogue
    depth L = 1
    """
    roles = read_roles(model) if batch is None else merged(read_roles(model, readout=False), read_model(model, batch))
    depth = sum(role.atom.depth for role in roles if role.parameter.requires_grad)
    rows = []
    for role in roles:
        atom, trained = role.atom, role.parameter.requires_grad
        size = float("nan") if role.parameter.is_meta else float(operator_norm(role.parameter, atom).max())
        matrices = f"{atom.parts} of {atom.fan_out} × {atom.fan_in}"
        share = atom.depth / depth if trained else 0.0
        owner = type(role.module).__name__
        rows.append(
            Row(role.name, owner, atom.kind, matrices, _stored(atom), atom.target, size, share, trained, role.source)
        )
    for name, parameter in model.named_parameters():
        if not parameter.numel():
            owner = type(model.get_submodule(name.rpartition(".")[0])).__name__
            rows.append(Row(name, owner, "empty", "", "", float("nan"), float("nan"), 0.0, False, "shape"))
    return Explanation(rows, depth)


def _stored(atom: Atom) -> str:
    names = ["out" if i in atom.rows else "in" if i in atom.columns else str(n) for i, n in enumerate(atom.shape)]
    if atom.complex:
        names[atom.rows[-1]] = "re/im"
    return " × ".join(names)


def _cells(row: Row) -> list[str]:
    words = row.parameter, row.atom, row.matrices.replace(" × ", "×"), row.stored.replace(" × ", "×")
    share = f"{row.share:.3g}" if row.trained else "frozen"
    return [*words, f"{row.target:.4g}", f"{row.size:.4g}", share, row.source]
