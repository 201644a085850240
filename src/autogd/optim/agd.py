r"""Automatic gradient descent: Theorem 2 as a `torch.optim.Optimizer`.

`PlansSteps` (`engine/steps.py`) gathers the tensors of a step in a plan and chooses a backend, which carries the step
out on them. To add a backend, see `engine/backend.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from autogd.engine.backend import Backend, Step
from autogd.engine.distributed.shards import placement_of
from autogd.engine.groups import multiplier
from autogd.engine.plan import Plan
from autogd.engine.steps import PlansSteps, gradients
from autogd.geometry.atom import Rule
from autogd.geometry.complex import as_real
from autogd.optim.averaging import beside_average, newest_weight
from autogd.optim.bound import ExponentialMajorisation, Majorisation
from autogd.optim.rule import decay_factor, limit_factor, theorem_2

__all__ = ["AGD"]


class AGD(PlansSteps):
    r"""The optimiser of the paper: no learning rate to tune, no schedule, and no state without averaging.

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
            weights as they are now, for fine-tuning. If the readout is above its target, steps shrink by that ratio.
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
        self, params: Any, *, gain: float = 1.0, geometry: str = "frobenius", sizes: str = "dimensional",
        majorisation: Majorisation | None = None, averaging: bool = False, weight_decay: float = 0.0,
        foreach: bool | None = None, maximize: bool = False, atoms: Mapping[str, Rule] | None = None,
        groups: Mapping[str, Mapping[str, Any]] | None = None, process_group: Any = None, **refused: Any,
    ) -> None:  # fmt: skip
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
            self._refuse_if_swapped("step()")
        # the plan and the backend are those of the last step, unless other tensors have a gradient now
        key = self._architecture.version, *(
            (id(p), p.device, p.dtype, grad.layout, None if type(grad) is Tensor else placement_of(grad))
            for group in self.param_groups for p in group["params"] if (grad := p.grad) is not None
        )  # fmt: skip
        backend = self._backends.get(key) or self._new_backend(key)
        if backend is not None:
            self._take(backend)
        self._reminder.steps += 1
        return loss

    def _take(self, backend: Backend) -> None:
        """Measure the norms of the gradients, apply the rule, then update the weights along the directions."""
        plan = backend.plan
        grads: list[Any] = [p.grad for p in plan.parameters] if plan.plain else gradients(plan)
        norms = backend.measure(grads)
        eta, coefficients, summary = theorem_2(norms.gradients, plan, self.majorisation.learning_rate)
        if not plan.on_cpu:
            eta = torch.where(summary.finite, eta, 0)
        elif not summary.finite:
            self._raise_not_finite(plan, grads)
        multipliers, decay = self._settings(plan)
        keeps, averages, average = None, [], None
        if decay is not None:
            moves = eta * abs(multipliers) * plan.depth_shares / summary.depth
            keeps = decay_factor(moves, decay)
            coefficients = coefficients * limit_factor(moves, decay)[plan.owner]
        if isinstance(multipliers, Tensor) and multipliers.dim():
            coefficients = coefficients * multipliers[plan.owner]
        elif isinstance(multipliers, Tensor) or multipliers != 1:
            coefficients = coefficients * multipliers
        if self._averaging:
            states = [self.state[parameter] for parameter in plan.parameters]
            if self._ready is not backend or not all(states):
                self._prepare_state(backend, grads)
            averages = [as_real(state["average"]) for state in states]
            average = beside_average(plan.per_tensor(tuple(newest_weight(group, eta) for group in plan.groups)))
        finite = None if plan.on_cpu else summary.finite
        backend.update(grads, Step(coefficients, keeps, finite, average=average), averages=averages)
        self.learning_rate, self.gradient_summary, self._last = eta, summary.G, (plan, summary, multipliers)
        if finite is not None:
            self.skipped_steps = self.skipped_steps.to(finite.device) + ~finite

    def _settings(self, plan: Plan) -> tuple[Any, Any]:
        """Step multiplier and decay (None if 0), per tensor or one number for all."""
        rates = (lr if type(lr := g["lr"]) is float and 0 <= lr < torch.inf else multiplier(g) for g in plan.groups)
        signs = (-1 if g["maximize"] else 1 for g in plan.groups)
        multipliers = tuple(r * s * g["gain"] for r, s, g in zip(rates, signs, plan.groups, strict=True))
        decay = tuple(g["weight_decay"] for g in plan.groups)
        if len(plan.groups) == 1:
            return multipliers[0], decay[0] or None
        return plan.per_tensor(multipliers), plan.per_tensor(decay) if any(decay) else None
