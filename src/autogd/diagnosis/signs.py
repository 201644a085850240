"""The signs that a doctor looks for: each a function that measures one thing and gives its findings."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from autogd.geometry.catalogue import Role, read_roles
from autogd.geometry.norms import operator_norm, rounding

__all__ = [
    "Finding", "activation_sizes", "forward_of", "growth", "handed_over", "loss_of", "off_scale", "off_size", "summed",
    "tensor_of", "without_effect",
]  # fmt: skip

# how far from its ideal a number may be before it is worth a word
SPREAD, OFF_SIZE, OFF_SCALE = 30.0, 8.0, 6.0


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, how it shows, and what to do."""

    kind: str
    seen: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.seen}. {self.remedy}."


def forward_of(model: nn.Module, batch: Any) -> Any:
    """The model's output on a batch."""
    return model(**batch) if isinstance(batch, Mapping) else model(batch[0])


def loss_of(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Any) -> Tensor:
    """The loss of a batch."""
    output = forward_of(model, batch)
    return loss_fn(output) if isinstance(batch, Mapping) else loss_fn(output, batch[1])


def tensor_of(output: Any) -> Tensor:
    """The first floating-point tensor of whatever a model returns."""
    if isinstance(output, Tensor):
        return output
    values = output.values() if isinstance(output, Mapping) else output
    return next(tensor_of(value) for value in values if value is not None)


def activation_sizes(model: nn.Module, batch: Any) -> dict[str, float]:
    """The root-mean-square of what each layer puts out, in the order of the forward pass, the last one left out."""
    sizes: dict[str, float] = {}
    model = copy.deepcopy(model)  # statistics of norm layers, and hooks, stay off the caller's
    layers = {role.module: role.name.rpartition(".")[0] for role in read_roles(model) if role.atom.depth_share == 1}

    def record(module: nn.Module, _: Any, output: Any) -> None:
        sizes[layers[module]] = float(tensor_of(output).detach().float().square().mean().sqrt())

    for module in layers:
        module.register_forward_hook(record)
    with torch.no_grad():
        forward_of(model, batch)
    return dict(list(sizes.items())[:-1])


def growth(sizes: dict[str, float]) -> list[Finding]:
    """Activations that grow or shrink with depth."""
    if len(sizes) < 2 or max(sizes.values()) <= SPREAD * min(sizes.values()):
        return []
    small, large = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    return [
        Finding(
            "activations",
            f"their root-mean-square is {sizes[small]:.2g} after {small} and {sizes[large]:.2g} after {large}",
            "Start from initialise_(model), use relu(z)·√2 in plain stacks, or add norm layers",
        )
    ]


def off_size(roles: list[Role]) -> list[Finding]:
    """Weights far from Prescription 1."""
    off = {}
    for role in roles:
        if role.parameter.requires_grad and role.atom.depth_share == 1 and role.atom.start == "orthogonal":
            ratio = float(operator_norm(role.parameter, role.atom).max()) / role.atom.scale
            if ratio > OFF_SIZE or ratio < 1 / OFF_SIZE:
                off[role.name] = ratio
    if not off:
        return []
    worst = max(off, key=lambda name: abs(torch.tensor(off[name] + 1e-30).log().item()))
    return [
        Finding(
            "weights",
            f"{len(off)} far from the size of Prescription 1, the furthest {worst} at {off[worst]:.2g} times it",
            'Start from initialise_(model), or keep trained weights and use AGD(model, sizes="measured")',
        )
    ]


def off_scale(batch: Any) -> list[Finding]:
    """Inputs or targets whose root-mean-square is far from one."""
    findings = []
    values = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
    names = list(batch) if isinstance(batch, Mapping) else ["the inputs", "the targets"]
    for name, value in zip(names, values, strict=False):
        if isinstance(value, Tensor) and value.is_floating_point():
            size = float(value.float().square().mean().sqrt())
            if not 1 / OFF_SCALE < size < OFF_SCALE:
                findings.append(
                    Finding(
                        "scale",
                        f"{name} have a root-mean-square of {size:.3g}",
                        "Scale each sample to one (‖x‖ = √d); losses.one_hot makes targets of that size",
                    )
                )
    return findings


def summed(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Any) -> list[Finding]:
    """A loss that is summed over the batch instead of averaged."""
    if isinstance(batch, Mapping) or len(batch[0]) < 4:
        return []
    trial = copy.deepcopy(model)
    half = len(batch[0]) // 2
    with torch.no_grad():
        whole, *halves = [
            float(loss_of(trial, loss_fn, [part[rows] for part in batch]))
            for rows in (slice(0, 2 * half), slice(0, half), slice(half, 2 * half))
        ]
    if whole == 0 or abs(sum(halves) / whole - 1) > 0.2:
        return []
    return [Finding("loss", "it doubles with the size of the batch: it is a sum", "Average it: reduction='mean'")]


def handed_over(held: Mapping[str, Tensor | None], grads: Mapping[str, Tensor | None]) -> list[Finding]:
    """Compare the gradients of the caller's loop with those of the loss itself."""
    ratios = []
    for name, mine in grads.items():
        theirs = held.get(name)
        if mine is not None and theirs is not None and mine.norm() > 0:
            ratios.append(float(theirs.norm() / mine.norm()))
    if not ratios:
        return []
    ratio = sorted(ratios)[len(ratios) // 2]
    if ratio > 2:
        remedy = "Call scaler.step(optimiser), which unscales, or scaler.unscale_(optimiser) before a step of your own"
        return [Finding("scaled gradients", f"the model's are {ratio:.4g} times those of the loss", remedy)]
    if ratio < 0.7:
        remedy = "Take clip_grad_norm_ and clip_grad_value_ out: η is derived from the gradient's size"
        return [Finding("clipped gradients", f"the model's are {ratio:.2g} times those of the loss", remedy)]
    return []


def without_effect(roles: list[Role]) -> list[Finding]:
    """Parameters that get no gradient, or one of rounding noise only."""
    findings = []
    trained = [role for role in roles if role.parameter.requires_grad]
    missing = [role.name for role in trained if role.parameter.grad is None or not role.parameter.grad.any()]
    if missing:
        remedy = "Freeze them (requires_grad=False), or see why the loss does not reach them"
        findings.append(Finding("no gradient", ", ".join(missing), remedy))
    duals = {}
    for role in trained:
        if role.parameter.grad is not None and not role.parameter.grad.is_sparse:
            norms = torch.linalg.vector_norm(role.atom.cut(role.parameter.grad.float()), dim=role.atom.inner)
            duals[role.name] = (role.atom.scale * norms.flatten(), rounding(role.parameter.dtype), role.atom.parts)
    largest = max((float(dual.sum()) for dual, _, _ in duals.values()), default=0.0)
    noise = [
        f"{name} (part {int(part) + 1} of {parts})" if parts > 1 else name
        for name, (dual, floor, parts) in duals.items()
        if name not in missing and parts <= 16
        for part in (dual * parts <= floor * largest).nonzero().flatten()
    ]
    if noise:
        remedy = (
            "They do not change the output (a bias in front of a norm layer, the keys' bias): AGD leaves them alone"
        )
        findings.append(Finding("no effect", f"gradients of rounding noise in {', '.join(noise)}", remedy))
    return findings
