r"""StochasticAGD: the rule for minibatches, with nothing to set."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autogd.optim.again import Snapshot
from autogd.optim.averaging import averaging_share
from autogd.optim.lending import Lending
from autogd.optim.measured import MEMORY, next_rate, reach_of, renewed, trust
from autogd.optim.plan import Plan, audible
from autogd.optim.turning import Turning, choose_turning

__all__ = ["StochasticAGD"]

# Momentum and direction are held in half the weight's bytes: each is renewed by a tenth or more in every step, so what
# rounding takes is not missed. The average moves by ever smaller shares, and must not round.
HALF = {torch.float64: torch.float32}


class StochasticAGD(Lending):
    r"""AGD for minibatches: directions from momentum, η from slopes that fresh batches measure, weights averaged.

    On minibatches gradients never vanish, so AGD's η never decays; the batch's noise inflates G; and the bound's
    constant is 1 whatever the network. Here the direction is the exact minimiser of Lemma 5 without Assumption 2, the
    polar factor of the momentum, and the slope along it is measured by the next batch (`autogd.optim.measured` has the
    mathematics). η rises while steps are too short and decays by itself as training converges. What is to be evaluated
    and shipped is the average over the last quarter of the steps: `with optimiser.averaged(): evaluate(model)`; the
    statistics of batch norm are those of the trained weights there, `torch.optim.swa_utils.update_bn` renews them.

    The state is 8 bytes a weight in float32: momentum and direction in half precision, and the average.

    Args:
        params: a Module, whose architecture is then read; or what any torch optimiser takes.
        gain: multiplies every step, as does a group's `lr`. The rule sees what its steps do: a factor that is common to
            all groups it wins back, by a tenth a step; what stays is the ratio between groups. Nothing to schedule.
        geometry: as for `AGD`; "spectral" here. The others are cheaper and do not go as far.
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
    >>> with optimiser.averaged():
    ...     prediction = model(torch.randn(1, 4))
    >>> bool(optimiser.learning_rate > 0)
    True
    """

    def __init__(
        self,
        params: Any,
        *,
        gain: float = 1.0,
        geometry: str = "spectral",
        sizes: str = "dimensional",
        weight_decay: float = 0.0,
        maximize: bool = False,
        atoms: Any = None,
    ) -> None:
        self._trusted = torch.ones(())  # what the last batch's gradient was multiplied by
        super().__init__(
            params,
            gain=gain,
            geometry=geometry,
            sizes=sizes,
            weight_decay=weight_decay,
            maximize=maximize,
            atoms=atoms,
        )

    def step_and_measure(self, closure: Callable[[], Any]) -> Any:
        """`step(closure)`, and then the batch once more: the next η goes by the bound's constant of this very batch.

        `step` alone tells the constant from the slope that the next batch sees, at no cost, and the batch's noise makes
        it too large. This has none of it (where lr and gain are 1), at the price of a second forward and backward pass,
        and makes η follow faster; it may be called as seldom as one likes. The closure must clear the gradients first,
        as torch asks of closures. In the second pass dropout draws the same numbers, and the buffers of the Module that
        the optimiser was given are as they were in the first; the gradients that it leaves are of the new weights.

        >>> from torch import nn
        >>> model = nn.Linear(4, 1)
        >>> optimiser = StochasticAGD(model)
        >>> def closure():
        ...     optimiser.zero_grad()
        ...     loss = model(torch.ones(8, 4)).square().mean()
        ...     loss.backward()
        ...     return loss
        >>> loss = optimiser.step_and_measure(closure)
        >>> bool(loss > closure())
        True
        """
        before = Snapshot(self._alive(), {p.device for group in self.param_groups for p in group["params"]})
        loss = self.step(closure)
        with before.again(), torch.enable_grad():
            closure()
        plan = self._plan()
        if plan is not None and "memory" in self.param_groups[0]:
            self._learn_constant(plan)
        return loss

    @torch.no_grad()
    def _learn_constant(self, plan: Plan) -> None:
        """What the last step took away of its batch's slope, now that gradients are the same batch's after it."""
        memory = self._memory(plan)
        grads = _dense(plan)
        left = self._turning(grads, plan).look(grads, plan)[1] * self._trusted
        measured = (memory["last_same"] - left) / reach_of(memory["rate"])
        learnt = torch.stack([renewed(self._constant(memory["steps"] - 1), measured), memory["steps"]])
        # which step it was measured after goes with it: later ones must not take it for theirs
        group, skipped = self.param_groups[0], self._trusted.to(learnt.device) == 0
        group["constant"] = torch.where(skipped, group["constant"], learnt)

    def _constant(self, steps: Tensor) -> Tensor:
        """The constant that was measured after so many steps; nan where none was."""
        constant, measured_at = self.param_groups[0]["constant"].unbind()
        return torch.where(measured_at == steps, constant, torch.nan)

    def _update(self, plan: Plan) -> None:
        """Measure the slope that is left along the last direction, solve, turn, move."""
        self._refuse_while_lent()
        grads = _dense(plan)
        turning = self._turning(grads, plan)
        looks, ready = plan.looks, self._is_ready(plan)
        if looks and not ready:  # for gradients that are refused no state is made
            self._refuse_non_finite(audible(plan.reach * turning.measure(grads, plan), plan)[1], plan, grads)
        memory = self._memory(plan)
        norms, slope = turning.look(grads, plan)
        duals = plan.reach * norms
        heard, finite = audible(duals, plan)
        if looks and ready:
            self._refuse_non_finite(finite, plan, grads)
        first = memory["steps"] == 0
        G = torch.where(heard, duals, 0).sum() / plan.depth
        memory, factor = trust(memory, G, finite)
        self._trusted = factor
        after = next_rate(memory, slope * factor, self._constant(memory["steps"]))
        memory = {name: torch.where(finite & ~first, after[name], memory[name]) for name in MEMORY}
        # nothing is measured before the first step: it is Theorem 2's
        memory["rate"] = torch.where(first, self.majorisation.learning_rate(G), memory["rate"])

        multipliers = plan.per_tensor(lambda group: group["lr"] * group["gain"])
        multipliers = multipliers.to(plan.reach.device)
        steps = torch.where(finite, memory["rate"], 0) * multipliers
        # of a step that was shortened, a slope that is left over says nothing of η
        memory["found"] = torch.where(multipliers.min() < 1, 1, memory["found"])
        # a first batch without any gradient must not leave a rate of zero: what can only be multiplied would stay there
        memory["steps"] = memory["steps"] + (finite & (G > 0))
        sizes = torch.where(heard | ~finite, plan.reach / plan.depth, 0)
        share = averaging_share(memory["steps"])
        last_same = turning.turn(grads, sizes, factor, steps, share, plan) * factor
        memory["last_same"] = torch.where(finite, last_same, memory["last_same"])
        # the rule's scalars go with the groups, where torch keeps a number's type as it is
        self.param_groups[0]["memory"] = torch.stack([memory[name] for name in MEMORY])
        self.learning_rate = torch.where(finite, memory["rate"], 0)
        self.gradient_summary = memory["last_same"]
        self._last = (plan, duals, heard, multipliers)
        if not plan.looks:
            self.skipped_steps = self.skipped_steps.to(finite.device) + ~finite

    def _turning(self, grads: list[Tensor], plan: Plan) -> Turning:
        turning: Turning | None = plan.kept.get("turning")
        if turning is None or turning.state is not self.state:
            turning = plan.kept["turning"] = choose_turning(grads, plan, self._geometry, self.state)
        return turning

    def _is_ready(self, plan: Plan) -> bool:
        # a state's type or place changes only with another plan, or when somebody else puts one there
        return self._ready is plan and "average" in self.state[plan.parameters[0]]

    def _memory(self, plan: Plan) -> dict[str, Tensor]:
        """The rule's scalars, and room for each parameter's momentum, direction and average."""
        for parameter in () if self._is_ready(plan) else plan.parameters:
            half = HALF.get(parameter.dtype, torch.bfloat16)
            self._hold(parameter, {"momentum": half, "direction": half})
        self._ready = plan
        group = self.param_groups[0]
        if "constant" not in group:  # there from the first step on: whoever saves a state by its keys must find it
            group["constant"] = torch.tensor([0.0, -1.0])
        group["constant"] = group["constant"].to(plan.reach)  # once: a copy in every step would wait for the device
        saved = group.get("memory")
        vector = torch.zeros(len(MEMORY)) if saved is None else saved
        return dict(zip(MEMORY, vector.to(plan.reach).unbind(), strict=True))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._trusted = torch.ones(())


def _dense(plan: Plan) -> list[Tensor]:
    grads = plan.gradients()
    return [grad.to_dense() if grad.is_sparse else grad for grad in grads] if plan.sparse else grads
