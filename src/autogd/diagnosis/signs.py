"""The checks of `doctor`: each function measures one thing and returns its findings."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from autogd.diagnosis.finding import Finding, forward_of, loss_of, tensor_of
from autogd.geometry.norms import operator_norm
from autogd.reading.agreement import disagreements
from autogd.reading.catalogue import Role, read_roles
from autogd.reading.graph import read_graph

__all__ = [
    "activation_sizes", "changed_gradients", "contradicted", "growth", "off_scale", "off_size", "without_effect",
    "without_gradient",
]  # fmt: skip

# report a number that differs from its ideal by more than this factor
SPREAD, OFF_SIZE, OFF_SCALE = 30.0, 8.0, 6.0
SMALL = 1e-3  # a gradient below this fraction of the largest dual norm may be noise: check it in float64
NOISE = 0.1  # of rounding noise less than this fraction remains in float64
MANY = 16  # with this many parts, do not name single ones


def activation_sizes(model: nn.Module, batch: Any) -> dict[str, float]:
    """The root-mean-square of each layer's output, in the order of the forward pass, without the last layer."""
    sizes: dict[str, float] = {}
    model = copy.deepcopy(model)  # a copy: hooks and batch statistics must not touch the caller's model
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
    furthest = f"the furthest {worst} at {off[worst]:.2g} times it"
    return [
        Finding(
            "weights",
            f"{len(off)} far from the size of Prescription 1 (see `autogd glossary`), {furthest}",
            'Start from initialise_(model), or keep trained weights and use StochasticAGD(model, sizes="measured")',
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


def changed_gradients(held: Mapping[str, Tensor | None], grads: Mapping[str, Tensor | None]) -> list[Finding]:
    """Gradients of the caller's loop that are larger or smaller than those of the loss."""
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


def without_gradient(roles: list[Role]) -> list[Finding]:
    """Parameters that get no gradient."""
    missing = [role.name for role in _trained(roles) if _nothing(role.parameter.grad)]
    remedy = "Freeze them (requires_grad=False), or see why the loss does not reach them"
    return [Finding("no gradient", ", ".join(missing), remedy)] if missing else []


def without_effect(model: nn.Module, roles: list[Role], loss_fn: Callable[..., Tensor], batch: Any) -> list[Finding]:
    """Parameters whose gradient is only rounding noise: in float64 nearly all of it vanishes.

    A gradient that is only small does not vanish there, like that of attention's queries and keys at the start.
    """
    candidates = _small_parts(roles)
    if not candidates:
        return []
    exact = _exact_gradients(model, loss_fn, batch) or {}
    noise = []
    for role in _trained(roles):
        for part in candidates.get(role.name, ()):
            mine = _part_norms(role, role.parameter.grad)[part]
            true = exact.get(role.name)
            if true is not None and bool(_part_norms(role, true)[part] < NOISE * mine):
                parts = role.atom.parts
                noise.append(f"{role.name} (part {part + 1} of {parts})" if parts > 1 else role.name)
    if not noise:
        return []
    remedy = "They do not change the output (a bias before a norm layer, the keys' bias): AGD does not move them"
    return [Finding("no effect", f"gradients of rounding noise in {', '.join(noise)}", remedy, harmless=True)]


def _trained(roles: list[Role]) -> list[Role]:
    return [role for role in roles if role.parameter.requires_grad]


def _nothing(grad: Tensor | None) -> bool:
    return grad is None or not (grad.coalesce().values() if grad.is_sparse else grad).any()


def _part_norms(role: Role, grad: Any) -> Tensor:
    dense = grad.to_dense() if grad.is_sparse else grad
    return torch.linalg.vector_norm(role.atom.cut(dense).double(), dim=role.atom.inner).flatten()


def _small_parts(roles: list[Role]) -> dict[str, list[int]]:
    """The parts whose dual norm is small compared with the largest tensor's, by name."""
    duals = {
        role.name: role.atom.scale * _part_norms(role, role.parameter.grad) * role.atom.parts
        for role in _trained(roles)
        if not _nothing(role.parameter.grad) and role.atom.parts <= MANY
    }
    largest = max((float(dual.mean()) for dual in duals.values()), default=0.0)
    small = {name: (dual <= SMALL * largest).nonzero().flatten().tolist() for name, dual in duals.items()}
    return {name: parts for name, parts in small.items() if parts}


def _exact_gradients(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Any) -> dict[str, Tensor | None] | None:
    """The gradients in float64, without dropout; None if the model does not run in float64."""
    twin = copy.deepcopy(model).double()
    twin.zero_grad()
    try:
        loss_of(twin, loss_fn, _in_double(batch)).backward()
    except (RuntimeError, TypeError, ValueError):
        return None
    return {name: parameter.grad for name, parameter in twin.named_parameters()}


def _in_double(batch: Any) -> Any:
    def wide(value: Any) -> Any:
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    return {k: wide(v) for k, v in batch.items()} if isinstance(batch, Mapping) else tuple(wide(v) for v in batch)


def contradicted(roles: Sequence[Role], loss: Tensor) -> list[Finding]:
    """Layers for which the catalogue and the computation disagree."""
    reading = read_graph(loss, {role.name: role.parameter for role in roles})
    findings = []
    for role, used in disagreements(roles, reading):
        known = role.atom
        findings.append(
            Finding(
                "architecture",
                f"{role.name}: the catalogue has {known.parts} of {known.fan_out} × {known.fan_in} ({known.kind}), the "
                f"forward pass uses {used.parts} of {used.fan_out} × {used.fan_in} ({used.kind})",
                "The catalogue's is used; name another with atoms={...}",
                harmless=True,
            )
        )
    return findings
