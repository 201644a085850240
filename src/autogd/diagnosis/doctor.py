"""Examine a training set-up before training: take a few real steps on a copy, then report findings and remedies."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn

from autogd.diagnosis.backend import backend
from autogd.diagnosis.finding import Finding, forward_of, loss_of, not_scalar, summed, taken_twice, tensor_of
from autogd.diagnosis.finite import bad_gradients, not_finite
from autogd.diagnosis.signs import (
    activation_sizes,
    changed_gradients,
    contradicted,
    growth,
    off_scale,
    off_size,
    without_effect,
    without_gradient,
)
from autogd.optim import AGD, StochasticAGD
from autogd.reading.catalogue import read_roles

__all__ = ["Diagnosis", "doctor", "width_test"]

# report if the moves of the output at different widths differ by more than this factor
WIDTH = 3.0


@dataclass(frozen=True)
class Diagnosis:
    """The findings, the recommended optimiser and sizes, the first losses, the move at each width, and the backend."""

    findings: list[Finding]
    optimiser: str
    sizes: str
    losses: list[float]
    widths: dict[int, float]
    backend: str = field(default_factory=backend)

    @property
    def sound(self) -> bool:
        """Whether there is nothing to mend: no findings, or only harmless ones."""
        return all(finding.harmless for finding in self.findings)

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings]
        if self.sound:
            lines.append("nothing to mend")
        if self.optimiser:
            sizes = "" if self.sizes == "dimensional" else f', sizes="{self.sizes}"'
            lines.append(f"recommended: {self.optimiser}(model{sizes})")
        if len(self.losses) > 1:
            lines.append(f"loss over two steps: {' → '.join(f'{loss:.4g}' for loss in self.losses)}")
        return "\n".join([*lines, f"backend: {self.backend}"])

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return {"sound": self.sound, **asdict(self)}


def doctor(
    model: nn.Module,
    loss_fn: Callable[..., Tensor],
    batch: Any,
    widen: Callable[[int], nn.Module] | None = None,
    *,
    full_batch: bool = False,
) -> Diagnosis:
    """Take two real steps on a copy of the model and report what hinders training.

    If the model already has gradients, they must be those of the caller's own loop on the same batch. They are compared
    with the gradients computed here, to find out whether they were scaled by a GradScaler or clipped.

    Args:
        model: not changed.
        loss_fn: takes the model's output and the target; only the output if `batch` is a mapping of inputs.
        batch: a pair of inputs and targets, or a mapping of keyword arguments.
        widen: returns the model at k times its width, for the width test.
        full_batch: whether every step sees all of the data; AGD is for that, StochasticAGD for minibatches.

    >>> import torch
    >>> from autogd import initialise_
    >>> from autogd.losses import square_loss
    >>> model = initialise_(nn.Linear(8, 4))
    >>> print(doctor(model, square_loss, (torch.randn(64, 8), torch.randn(64, 4))))  # doctest: +ELLIPSIS
    nothing to mend
    recommended: StochasticAGD(model)
    loss over two steps: ...
    backend: ...
    """
    subject = _without_dropout(copy.deepcopy(model).train())
    held = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    subject.zero_grad()
    # with one of these the other checks are meaningless
    fatal = _frozen(subject) or _empty(batch) or not_finite(copy.deepcopy(subject), loss_fn, batch)
    if fatal:
        return Diagnosis(fatal, "", "dimensional", [], {})
    loss = loss_of(subject, loss_fn, batch)
    if not loss.requires_grad:
        seen = "it does not depend on any trained parameter: was it detached, or computed under no_grad?"
        return Diagnosis([Finding("loss", seen, "Compute it from the model's output")], "", "dimensional", [], {})
    contradictions = contradicted(read_roles(subject, readout=False), loss)
    loss.backward()
    fatal = bad_gradients(subject)
    if fatal:
        return Diagnosis(fatal, "", "dimensional", [float(loss.detach())], {})
    roles = read_roles(subject)
    grads = {role.name: role.parameter.grad for role in roles}
    off = off_size(roles)
    findings = [
        *growth(activation_sizes(subject, batch)),
        *off,
        *contradictions,
        *off_scale(batch),
        *not_scalar(copy.deepcopy(subject), loss_fn, batch),
        *summed(subject, loss_fn, batch),
        *taken_twice(copy.deepcopy(subject), loss_fn, batch),
        *changed_gradients(held, grads),
        *without_gradient(roles),
        *without_effect(subject, roles, loss_fn, batch),
    ]
    optimiser = AGD if full_batch else StochasticAGD
    sizes = "measured" if off else "dimensional"
    losses = [float(loss.detach())]
    if not any(finding.kind == "loss" for finding in findings):
        losses += _two_steps(subject, optimiser(subject, sizes=sizes), loss_fn, batch)
    widths = {} if widen is None else width_test(widen, loss_fn, batch)
    if widths and max(widths.values()) > WIDTH * min(widths.values()):
        moves = ", ".join(f"×{k}: {move:.3g}" for k, move in widths.items())
        findings.append(
            Finding("width", f"the first step moves the output by {moves}", "Start from initialise_(model)")
        )
    return Diagnosis(findings, optimiser.__name__, sizes, losses, widths)


def width_test(
    widen: Callable[[int], nn.Module],
    loss_fn: Callable[..., Tensor],
    batch: Any,
    factors: Sequence[int] = (1, 2, 4, 8),
    draws: int = 8,
) -> dict[int, float]:
    """The root-mean-square move of the output in AGD's first step, over a few draws: it should not depend on the width.

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


def _frozen(model: nn.Module) -> list[Finding]:
    parameters = list(model.parameters())
    if any(parameter.requires_grad for parameter in parameters):
        return []
    seen = f"all {len(parameters)} parameters of the model are frozen" if parameters else "the model has no parameters"
    remedy = "Set requires_grad=True for those that are to be trained" if parameters else "Pass the model to train"
    return [Finding("nothing to train", seen, remedy)]


def _empty(batch: Any) -> list[Finding]:
    values = batch.values() if isinstance(batch, Mapping) else batch
    if not any(isinstance(each, Tensor) and each.dim() and not each.numel() for each in values):
        return []
    return [Finding("nothing to train on", "the batch has a tensor without values", "Pass a batch of a few samples")]


def _without_dropout(model: nn.Module) -> nn.Module:
    """Turn dropout off: comparisons must not depend on chance."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()
    return model


def _two_steps(model: nn.Module, optimiser: AGD, loss_fn: Callable[..., Tensor], batch: Any) -> list[float]:
    losses = []
    for _ in range(2):
        optimiser.step()
        optimiser.zero_grad()
        loss = loss_of(model, loss_fn, batch)
        loss.backward()
        losses.append(float(loss.detach()))
    return losses
