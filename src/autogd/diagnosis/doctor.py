"""Look at a training set-up before it is trained: a few real steps on a copy, then findings with remedies."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from autogd.diagnosis.signs import (
    Finding,
    activation_sizes,
    forward_of,
    growth,
    handed_over,
    loss_of,
    off_scale,
    off_size,
    summed,
    tensor_of,
    without_effect,
)  # fmt: skip
from autogd.geometry.catalogue import read_roles
from autogd.optim import AGD

__all__ = ["Diagnosis", "doctor", "width_test"]

# how far the move of the output may depend on the width before it is worth a word
WIDTH = 3.0


@dataclass(frozen=True)
class Diagnosis:
    """The findings, the sizes that suit AGD here, the first losses, and how far each width's output moved."""

    findings: list[Finding]
    sizes: str
    losses: list[float]
    widths: dict[int, float]

    def __str__(self) -> str:
        path = " → ".join(f"{loss:.4g}" for loss in self.losses)
        lines = [str(finding) for finding in self.findings] or ["nothing to mend"]
        return "\n".join([*lines, f'recommended: AGD(model, sizes="{self.sizes}")', f"loss over two steps: {path}"])

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return asdict(self)


def doctor(
    model: nn.Module,
    loss_fn: Callable[..., Tensor],
    batch: Any,
    widen: Callable[[int], nn.Module] | None = None,
) -> Diagnosis:
    """Take two real steps on a copy of the model and say what stands in AGD's way.

    Gradients that the model holds already are taken as those of the caller's own loop on the same batch: whether they
    were left scaled by a GradScaler, or clipped, shows beside the ones computed here.

    Args:
        model: left as it is.
        loss_fn: takes the model's output and the target; the output alone where `batch` is a mapping of inputs.
        batch: a pair of inputs and targets, or a mapping of keyword arguments.
        widen: returns the model at k times its width, for the width test.

    >>> import torch
    >>> from autogd import initialise_
    >>> from autogd.losses import square_loss
    >>> model = initialise_(nn.Linear(8, 4))
    >>> print(doctor(model, square_loss, (torch.randn(64, 8), torch.randn(64, 4))))  # doctest: +ELLIPSIS
    nothing to mend
    recommended: AGD(model, sizes="dimensional")
    loss over two steps: ...
    """
    subject = copy.deepcopy(model).train()
    roles = read_roles(subject)
    held = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    subject.zero_grad()
    loss = loss_of(subject, loss_fn, batch)
    loss.backward()
    grads = {role.name: role.parameter.grad for role in roles}
    off = off_size(roles)
    findings = [
        *growth(activation_sizes(subject, batch)),
        *off,
        *off_scale(batch),
        *summed(subject, loss_fn, batch),
        *handed_over(held, grads),
        *without_effect(roles),
    ]
    recommended = "measured" if off else "dimensional"
    losses = [float(loss.detach())]
    if not any(finding.kind == "loss" for finding in findings):
        losses += _two_steps(subject, loss_fn, batch, recommended)
    widths = {} if widen is None else width_test(widen, loss_fn, batch)
    if widths and max(widths.values()) > WIDTH * min(widths.values()):
        moves = ", ".join(f"×{k}: {move:.3g}" for k, move in widths.items())
        findings.append(
            Finding("width", f"the first step moves the output by {moves}", "Start from initialise_(model)")
        )
    return Diagnosis(findings, recommended, losses, widths)


def width_test(
    widen: Callable[[int], nn.Module],
    loss_fn: Callable[..., Tensor],
    batch: Any,
    factors: Sequence[int] = (1, 2, 4, 8),
    draws: int = 8,
) -> dict[int, float]:
    """By how much, in root-mean-square over a few draws, AGD's first step moves the output: no width should differ.

    >>> import torch
    >>> from autogd import initialise_, models
    >>> from autogd.losses import square_loss
    >>> batch = torch.randn(64, 8), torch.randn(64, 4)
    >>> moves = width_test(lambda k: initialise_(models.FCN(3, 32 * k, 8, 4)), square_loss, batch)
    >>> max(moves.values()) < 2 * min(moves.values())
    True
    """
    moves = {}
    for factor in factors:
        squares = []
        for _ in range(draws):
            model = widen(factor)
            before = tensor_of(forward_of(model, batch)).detach()
            loss_of(model, loss_fn, batch).backward()
            AGD(model).step()
            squares.append(float((tensor_of(forward_of(model, batch)).detach() - before).square().mean()))
        moves[factor] = (sum(squares) / draws) ** 0.5
    return moves


def _two_steps(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Any, sizes: str) -> list[float]:
    optimiser = AGD(model, sizes=sizes)
    losses = []
    for _ in range(2):
        optimiser.step()
        optimiser.zero_grad()
        loss = loss_of(model, loss_fn, batch)
        loss.backward()
        losses.append(float(loss.detach()))
    return losses
