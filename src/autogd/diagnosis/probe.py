"""Learning rates for another optimiser, read off a short run of StochasticAGD.

StochasticAGD finds by itself how far each tensor may move in a step. Beside it, on the same gradients and without a
say, another optimiser works out its own updates at learning rate 1. What both do to a tensor is measured with one
ruler, the operator norm of the parts that the tensor is cut into: the ratio of the two is the learning rate at which
the other optimiser moves that tensor as far as StochasticAGD does.
"""

import copy
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autogd.diagnosis.signs import loss_of
from autogd.geometry.catalogue import Role, read_roles
from autogd.geometry.norms import operator_norm
from autogd.optim import StochasticAGD

__all__ = ["OPTIMISERS", "Rate", "Recommendation", "probe"]

# as they are recommended: no weight decay, which is a choice of its own
OPTIMISERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"momentum": 0.9}),
    "adamw": ("AdamW", {"weight_decay": 0.0}),
    "muon": ("Muon", {"weight_decay": 0.0}),
}
SETTLING = 4  # the first quarter of a run does not count: moments are still filling
DIGITS = 3


@dataclass(frozen=True)
class Rate:
    """One parameter's learning rates; Muon has none for what is not a matrix."""

    parameter: str
    atom: str
    sgd: float
    adamw: float
    muon: float | None
    measured: bool = True


@dataclass(frozen=True)
class Recommendation:
    """Learning rates by parameter, and the run they come from; `str()` gives a table and code to paste."""

    rates: list[Rate]
    steps: int
    first_loss: float
    last_loss: float
    single: dict[str, float] = field(default_factory=dict)  # for each optimiser, one rate for all

    def groups(self, model: nn.Module, optimiser: str) -> list[dict[str, Any]]:
        """Parameter groups for one optimiser; Muon's hold the matrices alone.

        >>> found = Recommendation([Rate("weight", "matrix", 0.1, 1e-3, 1e-2)], 10, 2.0, 1.0)
        >>> [group["lr"] for group in found.groups(nn.Linear(2, 3), "adamw")]
        [0.001]
        """
        if optimiser not in OPTIMISERS:
            raise ValueError(f"{optimiser!r}: there is no rate for it; choose from {', '.join(OPTIMISERS)}")
        rates = {rate.parameter: getattr(rate, optimiser) for rate in self.rates}
        return [{"params": [model.get_parameter(n)], "lr": lr} for n, lr in rates.items() if lr is not None]

    def code(self, optimiser: str) -> str:
        """Python that builds the optimiser for `model`.

        >>> print(Recommendation([Rate("weight", "matrix", 0.1, 1e-3, 1e-2)], 10, 2.0, 1.0).code("sgd"))
        groups = [
            {"params": [model.get_parameter("weight")], "lr": 0.1},
        ]
        optimiser = torch.optim.SGD(groups, momentum=0.9)
        """
        lines = _lines(self.rates, optimiser)
        name, settings = OPTIMISERS[optimiser]
        made = _call(f"torch.optim.{name}", "groups", settings)
        text = ["groups = [", *lines, "]", f"optimiser = {made}"]
        rest = [rate for rate in self.rates if rate.muon is None]
        if optimiser == "muon" and rest:  # what is not a matrix goes to AdamW, as is usual
            made = _call("torch.optim.AdamW", "others", OPTIMISERS["adamw"][1])
            text += ["others = [", *_lines(rest, "adamw"), "]", f"beside = {made}"]
        return "\n".join(text)

    def __str__(self) -> str:
        wide = max([len(rate.parameter) for rate in self.rates] + [9])
        lines = [f"{'parameter'.ljust(wide)}  atom       sgd       adamw     muon"]
        for rate in self.rates:
            cells = [
                f"{value:<8.2g}" if value is not None else "-       " for value in (rate.sgd, rate.adamw, rate.muon)
            ]
            note = "" if rate.measured else "  (never moved: the lowest rate of all)"
            lines.append(f"{rate.parameter.ljust(wide)}  {rate.atom:9}  {'  '.join(cells)}{note}".rstrip())
        single = ", ".join(f"{name} {value:.2g}" for name, value in self.single.items())
        return "\n".join(
            [
                *lines,
                f"as one rate for all (the median over the matrices): {single}",
                f"how: in {self.steps} steps StochasticAGD took the loss from {self.first_loss:.4g} to "
                f"{self.last_loss:.4g}. At these rates the other optimiser moves each tensor,",
                "by operator norm, as far as StochasticAGD did at its peak. They are for a constant rate, this batch",
                "size and these starting weights; nothing was tried out with the other optimiser",
                *(f"\n# {name}\n{self.code(name)}" for name in OPTIMISERS),
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return {**asdict(self), "code": {name: self.code(name) for name in OPTIMISERS}}


def probe(
    model: nn.Module, loss_fn: Callable[..., Tensor], batches: Iterable[Any], *, steps: int = 50
) -> Recommendation:
    """Train a copy of the model for a few steps, and recommend learning rates for SGD, AdamW and Muon.

    Args:
        model: left as it is; its weights are where the recommended optimisers are to start.
        loss_fn: takes the model's output and the target; the output alone where a batch is a mapping of inputs.
        batches: pairs of inputs and targets, or mappings of keyword arguments, of the size that will be trained with.
        steps: how many of the batches to use.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> batches = ((x, x.sum(1, keepdim=True)) for x in (torch.randn(32, 4) for _ in range(20)))
    >>> found = probe(model, nn.functional.mse_loss, batches, steps=20)
    >>> optimiser = torch.optim.AdamW(found.groups(model, "adamw"))
    """
    model = copy.deepcopy(model)
    roles = [role for role in read_roles(model) if role.parameter.requires_grad]
    ghosts = {name: _Ghost(name, roles) for name in OPTIMISERS}
    # relative to the weights as they are: the recommended optimiser starts from them too
    optimiser = StochasticAGD(model, sizes="measured")
    moves: list[list[float]] = []  # of each step, of each tensor: how far it went
    losses = []
    for batch, _ in zip(batches, range(steps), strict=False):
        optimiser.zero_grad()
        loss = loss_of(model, loss_fn, batch)
        loss.backward()
        losses.append(float(loss.detach()))
        before = [role.parameter.detach().clone() for role in roles]
        optimiser.step()
        moves.append([_size(role, role.parameter.detach() - old) for role, old in zip(roles, before, strict=True)])
        for ghost in ghosts.values():
            ghost.follow()
    if len(losses) < SETTLING:
        raise ValueError(f"batches: a probe needs at least {SETTLING}, found {len(losses)}")
    return _recommend(roles, moves, ghosts, losses)


class _Ghost:
    """Another optimiser on the same gradients, at learning rate 1, with parameters of its own that lead nowhere."""

    def __init__(self, name: str, roles: list[Role]) -> None:
        self.roles = [role for role in roles if name != "muon" or _is_matrix(role)]
        self.places = {role.name: i for i, role in enumerate(self.roles)}
        self.parameters = [nn.Parameter(torch.zeros_like(role.parameter)) for role in self.roles]
        kind, settings = OPTIMISERS[name]
        self.optimiser: Optimizer | None = None
        if self.parameters:
            self.optimiser = getattr(torch.optim, kind)(self.parameters, lr=1.0, **settings)
        self.sizes: list[list[float]] = []

    @torch.no_grad()
    def follow(self) -> None:
        """Take the update that the gradients ask for, from zero, and measure it."""
        for parameter, role in zip(self.parameters, self.roles, strict=True):
            grad = role.parameter.grad
            parameter.zero_()
            parameter.grad = grad.to_dense() if grad is not None and grad.is_sparse else grad
        if self.optimiser is not None:
            self.optimiser.step()
        self.sizes.append([_size(role, p.detach()) for role, p in zip(self.roles, self.parameters, strict=True)])

    def rate(self, name: str, moved: list[float], peak: float) -> float | None:
        """The learning rate at which the update is as large as the moves; None where either is nothing."""
        place = self.places.get(name)
        if place is None:
            return None
        update, move = _settled([sizes[place] for sizes in self.sizes]), _settled(moved)
        return peak * move / update if update > 0 and move > 0 else None


def _recommend(
    roles: list[Role], moves: list[list[float]], ghosts: dict[str, _Ghost], losses: list[float]
) -> Recommendation:
    # η of a step, up to a constant: the mean relative move of the tensors that have a layer's share
    relative = [
        statistics.fmean(m / role.atom.scale / role.atom.depth_share for m, role in zip(move, roles, strict=True))
        for move in moves
    ]
    peak = max(relative) / max(_settled(relative), torch.finfo(torch.float64).tiny)
    found = {
        role.name: {name: ghost.rate(role.name, [m[i] for m in moves], peak) for name, ghost in ghosts.items()}
        for i, role in enumerate(roles)
    }
    known = {name: [rate for rates in found.values() if (rate := rates[name]) is not None] for name in OPTIMISERS}
    if not known["adamw"]:
        raise ValueError("model: no parameter moved; does the loss depend on it?")
    rates = []
    for role in roles:
        # what the loss did not reach may yet matter on other data: it gets a rate that does no harm
        sgd, adamw = (found[role.name][name] or min(known[name]) for name in ("sgd", "adamw"))
        muon = found[role.name]["muon"] or (min(known["muon"], default=None) if _is_matrix(role) else None)
        measured = found[role.name]["adamw"] is not None
        rates.append(
            Rate(
                role.name, role.atom.kind, _short(sgd), _short(adamw), None if muon is None else _short(muon), measured
            )
        )
    layers = [role.name for role in roles if role.atom.depth_share == 1] or [role.name for role in roles]
    single = {
        name: _short(statistics.median(values))
        for name in OPTIMISERS
        if (values := [rate for layer in layers if (rate := found[layer][name]) is not None])
    }
    return Recommendation(rates, len(losses), losses[0], losses[-1], single)


def _is_matrix(role: Role) -> bool:
    return role.atom.kind == "matrix" and role.parameter.dim() == 2


def _size(role: Role, tensor: Tensor) -> float:
    """Operator norm of the parts that moved, their root mean square."""
    norms = operator_norm(tensor, role.atom)
    norms = norms[norms > 0]
    return float(norms.square().mean().sqrt()) if len(norms) else 0.0


def _settled(values: list[float]) -> float:
    return statistics.fmean(values[len(values) // SETTLING :])


def _short(value: float) -> float:
    """A rate that is good to a few digits, with no more than those."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else value


def _lines(rates: list[Rate], optimiser: str) -> list[str]:
    told = [(rate.parameter, getattr(rate, optimiser)) for rate in rates]
    return [f'    {{"params": [model.get_parameter("{name}")], "lr": {lr:g}}},' for name, lr in told if lr is not None]


def _call(function: str, first: str, settings: dict[str, Any]) -> str:
    return f"{function}({', '.join([first, *(f'{name}={value!r}' for name, value in settings.items())])})"
