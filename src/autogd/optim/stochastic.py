r"""StochasticAGD: the rule for minibatches, with nothing to set."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from autogd.engine.backend import Average, Backend, Step
from autogd.engine.groups import refuse_settings
from autogd.engine.steps import gradients
from autogd.geometry.atom import Rule
from autogd.geometry.complex import as_real
from autogd.optim.agd import AGD
from autogd.optim.bound import Majorisation
from autogd.optim.rate import MOMENTUM, RateState, averaging_share, learning_rate, momentum_size, next_state
from autogd.optim.rule import decay_factor, hold_factor, limit_factor, summarise, total

__all__ = ["StochasticAGD"]


class StochasticAGD(AGD):
    r"""AGD for minibatches: directions from momentum, η from a law, sizes held, weights averaged.

    On minibatches gradients seldom vanish, so AGD's η does not decay, and the batch's noise inflates G. Here the
    direction is the polar factor of the momentum, one Nesterov step ahead: Lemma 5's exact minimiser without Assumption
    2, for the momentum. η falls as one over the root of the steps, and is shorter if gradients vanish, cancel each
    other or are left in few batches (`autogd.optim.rate` has the law). A hidden matrix above Prescription 1's size is
    pulled back to it, by at most its step. A part without a gradient stays. Evaluate and ship the average, roughly over
    the last seventh of the steps: `with optimiser.averaged(): evaluate(model)`. Batch-norm statistics are not averaged;
    refresh them with `torch.optim.swa_utils.update_bn`.

    Only the relative size of gradients matters: a loss times any positive number gives the same steps. The state is
    6 bytes a weight in float32: momentum in half precision, and the average.

    Args:
        params: a Module, whose architecture is then read; or what any torch optimiser takes.
        gain: multiplies every step, as does a group's `lr`. A schedule multiplies η too, and warns: η falls by itself.
        geometry: as for `AGD`; "spectral" here. "frobenius" is cheaper, and its losses fall more slowly.
        majorisation: another bound on the objective, and so another η; None is Lemma 5.
        sizes, weight_decay, foreach, maximize, atoms, groups, process_group: as for `AGD`.

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

    momentum = MOMENTUM
    _told_of_schedule = False

    def __init__(
        self, params: Any, *, gain: float = 1.0, geometry: str = "spectral", sizes: str = "dimensional",
        majorisation: Majorisation | None = None, weight_decay: float = 0.0, foreach: bool | None = None,
        maximize: bool = False, atoms: Mapping[str, Rule] | None = None,
        groups: Mapping[str, Mapping[str, Any]] | None = None, process_group: Any = None, **refused: Any,
    ) -> None:  # fmt: skip
        refuse_settings(type(self).__name__, refused)
        super().__init__(
            params, gain=gain, geometry=geometry, sizes=sizes, majorisation=majorisation, averaging=True,
            weight_decay=weight_decay, foreach=foreach, maximize=maximize, atoms=atoms, groups=groups,
            process_group=process_group,
        )  # fmt: skip
        # the rate's scalars are saved with the groups, since torch keeps a number's type there; make them now, since
        # torch.distributed.checkpoint only loads what exists
        wide = any(p.dtype.to_real() == torch.float64 for p in self._every())
        self.param_groups[0]["rate"] = torch.zeros(len(RateState._fields), dtype=torch.float64 if wide else None)

    def _take(self, backend: Backend) -> None:
        """Direction and measure, rule, rate, update, average."""
        self._notice_schedule()
        plan = backend.plan
        grads: list[Any] = [p.grad for p in plan.parameters] if plan.plain else gradients(plan, dense=True)
        states = [self.state[parameter] for parameter in plan.parameters]
        if self._ready is not backend or not all(states):
            self._prepare_state(backend, grads)
        momenta, averages = [state["momentum"] for state in states], [state["average"] for state in states]
        if plan.complex:
            averages = [as_real(average) for average in averages]

        norms = backend.measure(grads, momenta)
        summary = summarise(norms.gradients, plan)
        G, finite, L = summary.G, summary.finite, summary.depth
        if plan.on_cpu and not finite:
            self._raise_not_finite(plan, grads)
        others, duals = plan.others, plan.reach * norms.momenta  # as the gradients are summarised, over all parts
        momenta_sum = total(duals) if others is None else others.sum(total(others.shares * duals))
        self.gradient_summary = G
        if plan.on_cpu and not G > 0:  # a batch without a gradient is no step
            self.learning_rate, self._last = torch.zeros_like(G), (plan, summary, 1)
            return
        counts = finite & (G > 0)

        eta, state, gradient_factor = self._rate(G, momenta_sum / L, L, counts)

        multipliers, decay = self._settings(plan)
        moves = eta * abs(multipliers) * plan.depth_shares / L  # of every tensor, in units of its size
        # pull back hidden maps above their size: one number per map, then one per part
        keeps = hold_factor(norms.weights, plan.held_at, moves[plan.map_owner])[plan.map_of]
        keeps = torch.where(summary.active, keeps, 1)
        steps = eta * (multipliers[plan.owner] if torch.is_tensor(multipliers) and multipliers.dim() else multipliers)
        coefficients = torch.where(summary.active, plan.reach, 0) * (steps / -L)
        if decay is not None:
            keeps = keeps * decay_factor(moves, decay)[plan.owner]
            coefficients = coefficients * limit_factor(moves, decay)[plan.owner]
        share = torch.where(moves == 0, 0, averaging_share(state.steps))
        step = Step(coefficients, keeps, None if plan.on_cpu else counts, gradient_factor, Average(None, share, share))
        backend.update(grads, step, momenta, averages)
        self.param_groups[0]["rate"] = torch.stack(state)
        self.learning_rate, self._last = eta, (plan, summary, multipliers)
        if not plan.on_cpu:
            self.skipped_steps = self.skipped_steps.to(finite.device) + ~finite

    def _rate(self, G: Tensor, momenta: Tensor, L: Any, counts: Tensor) -> tuple[Tensor, RateState, Tensor]:
        """η, the rate's new scalars, and the factor of the gradients before they join the momentum."""
        saved = self.param_groups[0].get("rate")
        before = RateState(*(torch.zeros(len(RateState._fields)) if saved is None else saved).to(G).unbind())
        state, gradient_factor = next_state(before, G, counts)
        size, peers = momentum_size(momenta, before.steps), self._peers
        chain = self._architecture.chain if peers is None or peers.chain is None else peers.chain  # D
        bound = self.majorisation.learning_rate
        eta = learning_rate(state.steps, size, state.alike, L, chain, bound)
        return torch.where(counts, eta, 0), state, gradient_factor

    def _notice_schedule(self) -> None:
        """Warn once that a schedule multiplies a rate that already falls."""
        if not self._told_of_schedule and any(map(_scheduled, self.param_groups)):
            self._told_of_schedule = True
            warnings.warn(
                "a schedule multiplies η, which falls by itself: leave it out. Hugging Face's Trainer makes one if it "
                "gets none: pass optimizers=(optimiser, autogd.integrations.rate.DerivedRate(optimiser))",
                stacklevel=2,
            )


def _scheduled(group: dict[str, Any]) -> bool:
    """Whether a scheduler has changed the group's multiplier; a tensor is not read, since it may be on a device."""
    first = group.get("initial_lr")
    return isinstance(first, float) and isinstance(group["lr"], float) and group["lr"] != first
