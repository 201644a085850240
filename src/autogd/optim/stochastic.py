r"""StochasticAGD: the rule for minibatches, with nothing to set."""

from typing import Any

import torch
from torch import Tensor

from autogd.geometry.atoms import Atom
from autogd.geometry.norms import accumulation_dtype, frobenius, polar
from autogd.optim.agd import AGD
from autogd.optim.measured import MEMORY, next_rate, trust
from autogd.optim.paths import over_parts
from autogd.optim.plan import Plan, audible

__all__ = ["StochasticAGD"]

MOMENTUM = 0.9


class StochasticAGD(AGD):
    r"""AGD for minibatches: directions from momentum, η from slopes that fresh batches measure.

    On minibatches gradients never vanish, so AGD's η never decays; the batch's noise inflates G; and the bound's
    constant is 1 whatever the network. Here the direction is the exact minimiser of Lemma 5 without Assumption 2, the
    polar factor of the momentum, and the slope along it is measured by the next batch (`autogd.optim.measured` has the
    mathematics). η rises while steps are too short and decays by itself as training converges. The state is momentum
    and direction, 8 bytes a weight in float32.

    A first version: `docs/research.md` says what it does and what is open.

    Args:
        params: a Module, whose architecture is then read; or what any torch optimiser takes.
        gain: multiplies every step, as does a group's `lr`; but the rule sees what its steps do, and in time makes up
            for both. There is nothing to schedule.
        sizes: as for `AGD`.
        weight_decay: as for `AGD`.
        maximize: ascend instead.
        atoms: as for `AGD`.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> optimiser = StochasticAGD(model)
    >>> for _ in range(3):
    ...     optimiser.zero_grad()
    ...     loss = model(torch.randn(16, 4)).square().mean()
    ...     loss.backward()
    ...     optimiser.step()
    >>> bool(optimiser.learning_rate > 0)
    True
    """

    def __init__(
        self,
        params: Any,
        *,
        gain: float = 1.0,
        sizes: str = "dimensional",
        weight_decay: float = 0.0,
        maximize: bool = False,
        atoms: Any = None,
    ) -> None:
        super().__init__(
            params, gain=gain, sizes=sizes, weight_decay=weight_decay, maximize=maximize, atoms=atoms, foreach=False
        )

    def _update(self, plan: Plan) -> None:
        """Measure the slope that is left along the last direction, solve, turn, move."""
        grads = [self._dense(parameter) for parameter in plan.parameters]
        signs = [-1.0 if group["maximize"] else 1.0 for group in plan.own]
        norms = torch.cat([frobenius(grad, atom).to(plan.reach) for grad, atom in zip(grads, plan.atoms, strict=True)])
        heard, finite = audible(plan.reach * norms, plan)
        if plan.looks:
            self._refuse_non_finite(finite, plan, grads)
        memory = self._memory(plan)
        first = memory["steps"] == 0
        G = torch.where(heard, plan.reach * norms, 0).sum() / plan.depth
        memory, factor = trust(memory, G, finite)
        grads = [
            torch.where(finite, grad * (sign * factor).to(grad.device, grad.dtype), 0)
            for grad, sign in zip(grads, signs, strict=True)
        ]
        after = next_rate(memory, self._slope(grads, plan))
        memory = {name: torch.where(finite & ~first, after[name], memory[name]) for name in MEMORY}
        # nothing is measured before the first step: it is Theorem 2's
        memory["rate"] = torch.where(first, self.majorisation.learning_rate(G), memory["rate"])

        self._turn(grads, heard, plan)
        memory["last_same"] = self._slope(grads, plan)
        self._move(memory["rate"], finite, plan)
        memory["steps"] = memory["steps"] + finite.to(memory["steps"].dtype)
        # the rule's scalars go with the groups, where torch keeps a number's type as it is
        self.param_groups[0]["memory"] = torch.stack([memory[name] for name in MEMORY])
        self.learning_rate = torch.where(finite, memory["rate"], 0)
        self.gradient_summary = memory["last_same"]
        self.skipped_steps = self.skipped_steps.to(finite.device) + ~finite

    def _turn(self, grads: list[Tensor], heard: Tensor, plan: Plan) -> None:
        """Update the momentum, and from it the direction: every part of unit size, times its share of the depth."""
        for parameter, grad, atom, audible_parts, reach in zip(
            plan.parameters, grads, plan.atoms, heard.split(plan.sizes), plan.reach.split(plan.sizes), strict=True
        ):
            state = self.state[parameter]
            state["momentum"].lerp_(grad.to(parameter.dtype), 1 - MOMENTUM)
            ahead = torch.lerp(state["momentum"], grad.to(parameter.dtype), 1 - MOMENTUM)
            size = torch.where(audible_parts, reach / plan.depth, 0)
            state["direction"].copy_(_direction(ahead, atom, size))

    def _slope(self, grads: list[Tensor], plan: Plan) -> Tensor:
        """How fast the batch's loss falls along the direction."""
        dtype = plan.reach.dtype
        slopes = [
            torch.linalg.vecdot(self.state[p]["direction"].flatten().to(dtype), grad.flatten().to(dtype))
            for p, grad in zip(plan.parameters, grads, strict=True)
        ]
        return torch.stack([slope.to(plan.reach.device) for slope in slopes]).sum()

    def _move(self, rate: Tensor, finite: Tensor, plan: Plan) -> None:
        rate = torch.where(finite, rate, 0)
        for parameter, weight, group in zip(plan.parameters, plan.weights, plan.own, strict=True):
            step = rate * group["lr"] * group["gain"]
            if group["weight_decay"]:
                parameter.mul_((1 - step * group["weight_decay"] * weight / plan.depth).to(parameter.device))
            parameter.addcmul_(self.state[parameter]["direction"], -step.to(parameter.device, parameter.dtype))

    def _memory(self, plan: Plan) -> dict[str, Tensor]:
        """The rule's scalars, and room for each parameter's momentum and direction."""
        for parameter in plan.parameters:
            state = self.state[parameter]
            for name in ("momentum", "direction"):
                if name not in state:
                    state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                elif state[name].dtype != parameter.dtype or state[name].device != parameter.device:
                    state[name] = state[name].to(parameter)  # the model was moved
        saved = self.param_groups[0].get("memory")
        vector = torch.zeros(len(MEMORY)) if saved is None else saved
        return dict(zip(MEMORY, vector.to(plan.reach).unbind(), strict=True))

    def _dense(self, parameter: Tensor) -> Tensor:
        grad: Any = parameter.grad
        if hasattr(grad, "placements"):
            raise ValueError(f"{self._names[parameter]}: StochasticAGD does not take sharded parameters yet; use AGD")
        return grad.to_dense() if grad.is_sparse else grad


def _direction(ahead: Tensor, atom: Atom, size: Tensor) -> Tensor:
    """Every part at operator norm `size`: the polar factor of a matrix, the normalised vector of a vector."""
    if atom.fan_in == 1 or atom.fan_out == 1:
        norms = frobenius(ahead, atom)
        factors = torch.where(norms > 0, size / norms, 0)
        return atom.cut(ahead).mul(over_parts(factors, atom)).to(ahead.dtype).reshape(ahead.shape)
    parts = polar(atom.matrices(ahead).to(accumulation_dtype(ahead.dtype))) * size.view(-1, 1, 1)
    return atom.join(parts).to(ahead.dtype).reshape(ahead.shape)
