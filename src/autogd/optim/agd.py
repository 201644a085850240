r"""Automatic gradient descent: Theorem 2 as a `torch.optim.Optimizer`."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from autogd.engine.backend import Backend, Step
from autogd.engine.base import ReadsArchitecture
from autogd.engine.distributed.dtensor import spread_of
from autogd.engine.distributed.ranks import Peers, others_of
from autogd.engine.distributed.shards import aligned
from autogd.engine.groups import multiplier
from autogd.engine.plan import Plan
from autogd.geometry.atom import Rule
from autogd.optim.averaging import beside_average, newest_weight
from autogd.optim.bound import ExponentialMajorisation, Majorisation
from autogd.optim.rule import Summary, affordable, decayed, theorem_2

__all__ = ["AGD", "gradients"]


class AGD(ReadsArchitecture):
    r"""The optimiser of the paper: no learning rate, no schedule, no state.

    .. math::
        G = \frac1L \sum_k \sqrt{d_k/d_{k-1}} \, \|\nabla_k\|_F, \qquad
        \eta = \log\frac{1 + \sqrt{1 + 4G}}2, \qquad
        \Delta W_k = -\frac{\eta}{L} \sqrt{d_k/d_{k-1}} \, \frac{\nabla_k}{\|\nabla_k\|_F}

    Args:
        params: a Module, whose architecture is then read; or what any torch optimiser takes.
        gain: multiplies every step; 1 is the derived one.
        geometry: how a step is measured; "frobenius" is the paper's, with Assumption 2. "spectral" does without it and
            takes the best direction.
        sizes: what a step is relative to: "dimensional", the paper's, is Prescription 1; "measured" is the size of the
            weights as they are now, for fine-tuning; if the readout is above its own, all count for less by that.
        majorisation: another bound on the objective, and so another η(G); None is Lemma 5.
        averaging: take gradients near an average of the weights, and ship the average (`averaged()`): the cheapest
            step for minibatches. `autogd.optim.averaging` derives it. The state is 4 bytes a weight.
        weight_decay: λ shrinks a weight by λ times its relative step; λ = 1 keeps it within its target size.
        foreach: False takes the reference backend; None and True the fastest.
        maximize: ascend instead.
        atoms: rules that override the catalogue, by full parameter name.
        groups: settings by name: `{"encoder.*": {"gain": 0.1}, "*.bias": {"weight_decay": 0}}`.
        process_group: a group, or a mesh, whose ranks hold parts of one model as plain tensors (pipeline stages,
            experts); False if every rank trains a model of its own. DDP, FSDP2 and DTensors need none.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False))
    >>> optimiser = AGD(model)
    >>> model(torch.randn(16, 4)).square().mean().backward()
    >>> optimiser.step()
    >>> bool(optimiser.learning_rate > 0)
    True
    """

    def __init__(
        self,
        params: Any,
        *,
        gain: float = 1.0,
        geometry: str = "frobenius",
        sizes: str = "dimensional",
        majorisation: Majorisation | None = None,
        averaging: bool = False,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        atoms: Mapping[str, Rule] | None = None,
        groups: Mapping[str, Mapping[str, Any]] | None = None,
        process_group: Any = None,
        **refused: Any,
    ) -> None:
        self.majorisation: Majorisation = majorisation or ExponentialMajorisation()
        super().__init__(
            params, geometry=geometry, sizes=sizes, atoms=atoms, averaging=averaging, gain=gain,
            weight_decay=weight_decay, foreach=foreach, maximize=maximize, groups=groups,
            process_group=process_group, refused=refused,
        )  # fmt: skip

    @_disable_dynamo  # backends are already fused, and a trace would soon be invalid
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; returns the closure's loss, if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._swapped or self._awaits_train:
            self._outside("step()")
        self._reminder.steps += 1
        if self._peers is not None and not self._peers.settled:
            self._peers = None
            self._backends.clear()
        key = self._architecture.version, *(
            (id(p), p.device, p.dtype, grad.layout, None if type(grad) is Tensor else spread_of(grad))
            for group in self.param_groups for p in group["params"] if (grad := p.grad) is not None
        )  # fmt: skip
        backend = self._backends.get(key) or self._new_backend(key)
        if backend is not None:
            self._take(backend)
        elif (peers := self._join()).group is not None:
            self._sit_out(peers)
        return loss

    def _sit_out(self, peers: Peers) -> Summary:
        """A step for which other ranks have gradients, and this one has none: it takes part in their sums."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        wide = any(parameter.dtype == torch.float64 for parameter in parameters)
        none = torch.zeros((), dtype=torch.float64 if wide else torch.float32, device=parameters[0].device)
        others = others_of(peers, [], [], none)
        assert others is not None
        others.max(none)
        depth, total, duals = others.sum(none.expand(3))
        if none.device.type == "cpu" and not duals < torch.inf:
            raise ValueError("a gradient is not finite on another process; no weight was changed. Scale the loss down")
        G = total / depth.clamp(min=torch.finfo(depth.dtype).tiny)
        self.learning_rate, self.gradient_summary = self.majorisation.learning_rate(G), G
        return Summary(G, none, none, duals < torch.inf, depth)

    def _take(self, backend: Backend) -> None:
        """Measure gradients along their directions, apply the rule, update weights and average."""
        plan = backend.plan
        grads = gradients(plan)
        norms = backend.measure(grads)
        eta, coefficients, summary = theorem_2(
            norms.gradients, plan, self.majorisation.learning_rate, others=plan.others
        )
        if plan.on_cpu and not summary.finite:
            self._refuse(plan, grads)
        eta = torch.where(summary.finite, eta, 0)
        multipliers, decay = self._settings(plan)
        keeps, averages, average = None, [], None
        if decay is not None:
            moves = eta * abs(multipliers) * plan.depth_shares / summary.depth
            keeps = decayed(moves, decay)
            coefficients = coefficients * affordable(moves, decay)[plan.owner]
        if isinstance(multipliers, Tensor) and multipliers.dim():
            coefficients = coefficients * multipliers[plan.owner]
        elif isinstance(multipliers, Tensor) or multipliers != 1:
            coefficients = coefficients * multipliers
        if self._averaging:
            if self._ready is not backend or not self.state[plan.parameters[0]]:
                self._make_room(backend, grads)
            averages = [self.state[parameter]["average"] for parameter in plan.parameters]
            c = torch.stack([newest_weight(group, eta) for group in plan.groups]).to(plan.reach)
            average = beside_average(c[plan.group_of])
        finite = None if plan.on_cpu else summary.finite
        backend.update(grads, Step(coefficients, keeps, finite, average=average), averages=averages)
        self._tell(eta, summary.G, plan, summary.duals, summary.active, multipliers, finite)

    def _settings(self, plan: Plan) -> tuple[Any, Any]:
        """Step multiplier and decay (None if 0), per tensor or one number for all."""
        rates = (lr if type(lr := g["lr"]) is float and 0 <= lr < torch.inf else multiplier(g) for g in plan.groups)
        signs = (-1 if g["maximize"] else 1 for g in plan.groups)
        multipliers = tuple(r * s * g["gain"] for r, s, g in zip(rates, signs, plan.groups, strict=True))
        decay = tuple(g["weight_decay"] for g in plan.groups)
        if len(plan.groups) == 1:
            return multipliers[0], decay[0] or None
        return plan.per_tensor(multipliers), plan.per_tensor(decay) if any(decay) else None

    def _tell(
        self, eta: Tensor, G: Tensor, plan: Plan, duals: Tensor, active: Tensor, multipliers: Any, finite: Tensor | None
    ) -> None:
        """What a step leaves behind to look at."""
        self.learning_rate, self.gradient_summary = eta, G
        self._last = (plan, duals, active, multipliers)
        if finite is not None:
            self.skipped_steps = self.skipped_steps.to(finite.device) + ~finite


def gradients(plan: Plan) -> list[Any]:
    """Of all tensors of a plan, as they are now; each lies over the ranks as its parameter does."""
    pairs = [(parameter, parameter.grad) for parameter in plan.parameters]
    grads: list[Any] = [grad if type(grad) is Tensor else aligned(grad, parameter) for parameter, grad in pairs]
    return [grad.coalesce() if grad.is_sparse else grad for grad in grads] if plan.sparse else grads
