r"""StochasticAGD: the rule for minibatches, with nothing to set."""

from typing import Any

import torch
from torch import Tensor

from autogd.engine.ranks import Peers
from autogd.optim.lending import Lending
from autogd.optim.plan import Plan, Summary, audible, summarise
from autogd.optim.rate import RateState, averaging_share, counted, learning_rate, momentum_size
from autogd.optim.turning import Turning, choose_turning

__all__ = ["StochasticAGD"]

# Momentum is held in half the weight's bytes: a tenth of it is renewed in every step, so what rounding takes is not
# missed. The average moves by ever smaller shares, and must not round.
HALF = {torch.float64: torch.float64}


class StochasticAGD(Lending):
    r"""AGD for minibatches: directions from momentum, η by a law of the steps, hidden matrices held, weights averaged.

    On minibatches gradients never vanish, so AGD's η never decays, and the batch's noise inflates G. Here the direction
    is the exact minimiser of Lemma 5 without Assumption 2, the polar factor of the momentum, and η falls as one over
    the root of the steps (`autogd.optim.rate` has the law). A hidden matrix above Prescription 1's size is brought back
    to it, by at most as much as a step moves it. What is to be evaluated and shipped is the average over the last
    seventh of the steps: `with optimiser.averaged(): evaluate(model)`; the statistics of batch norm are those of the
    trained weights there, `torch.optim.swa_utils.update_bn` renews them.

    Only the size of gradients beside each other matters: a loss times any number gives the same steps. The state is
    6 bytes a weight in float32: momentum in half precision, and the average.

    Args:
        params: a Module, whose architecture is then read; or what any torch optimiser takes.
        gain: multiplies every step, as does a group's `lr`. Nothing to schedule, though schedules work.
        geometry: as for `AGD`; "spectral" here. The others are cheaper and do not go as far.
        sizes: as for `AGD`.
        weight_decay: as for `AGD`.
        maximize: ascend instead.
        atoms: as for `AGD`.
        process_group: as for `AGD`.

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
        process_group: Any = None,
    ) -> None:
        super().__init__(
            params,
            gain=gain,
            geometry=geometry,
            sizes=sizes,
            weight_decay=weight_decay,
            maximize=maximize,
            atoms=atoms,
            process_group=process_group,
        )
        # here from the start: torch.distributed.checkpoint loads what is there already
        wide = any(p.dtype == torch.float64 for group in self.param_groups for p in group["params"])
        self.param_groups[0]["rate"] = torch.zeros(2, dtype=torch.float64 if wide else torch.float32)

    def _update(self, plan: Plan, peers: Peers) -> None:
        """Measure, take the rate from the law, update."""
        self._refuse_while_lent()
        grads = _dense(plan)
        backend = self._turning(grads, plan)
        looks, ready = plan.looks, self._is_ready(plan)
        if looks and not ready and peers.group is None:  # for gradients that are refused no state is made
            self._refuse_non_finite(audible(plan.reach * backend.measure_gradients(grads, plan), plan)[1], plan, grads)
        before = self._rate_state(plan)
        norms = backend.measure(grads, plan)
        duals = plan.reach * norms.gradients
        G, L, heard, finite, (momenta,) = summarise(duals, plan, peers, plan.reach * norms.momenta)
        if looks and (ready or peers.group is not None):
            self._refuse_non_finite(finite, plan, grads)
        self.gradient_summary = G
        if looks and not G > 0:
            return  # a batch without a gradient is no step
        active = finite & (G > 0)
        state, factor, eta = self._take_rate(before, G, L, active, momenta, peers)

        multipliers = plan.per_tensor(lambda group: group["lr"] * group["gain"]).to(plan.reach.device)
        steps = (eta * multipliers).expand(len(grads))
        moves = steps * plan.weights / L  # of every tensor, in units of its size
        decay = plan.per_tensor(lambda group: group["weight_decay"]).to(plan.reach.device)
        # a hidden matrix above its size comes back to it, by no more than its step
        held = torch.where(norms.weights > plan.held_at, (plan.held_at / norms.weights).clamp(min=1 - moves), 1)
        keeps = held * (1 - moves * decay).clamp(min=0)
        sizes = torch.where(heard, plan.reach / L, 0)
        backend.update(grads, sizes, factor, steps, keeps, averaging_share(state.steps), plan)
        self._last = (plan, duals, heard, multipliers)
        if not looks:
            self.skipped_steps = self.skipped_steps.to(finite.device) + ~finite

    def _sit_out(self, peers: Peers, more: int = 1) -> Summary:
        """A step for which this rank alone has no gradient: it counts it all the same."""
        summary = super()._sit_out(peers, more)
        G, L, _, finite, (momenta,) = summary
        saved = self.param_groups[0].get("rate")
        before = RateState(*(torch.zeros(2) if saved is None else saved).to(G).unbind())
        self._take_rate(before, G, L, finite & (G > 0), momenta, peers)
        return summary

    def _take_rate(
        self, before: RateState, G: Tensor, L: float | Tensor, active: Tensor, momenta: Tensor, peers: Peers
    ) -> tuple[RateState, Tensor, Tensor]:
        """The rate's scalars after a batch, what its gradient is multiplied by, and η."""
        state, factor = counted(before, G, active)
        size = momentum_size(momenta / L, before.steps)
        chain = self._chain if peers.chain is None else peers.chain
        eta = torch.where(active, learning_rate(state.steps.clamp(min=1), size, L, chain), 0)
        # the rate's scalars go with the groups, where torch keeps a number's type as it is
        self.param_groups[0]["rate"] = torch.stack(state)
        self.learning_rate = eta
        return state, factor, eta

    def _turning(self, grads: list[Tensor], plan: Plan) -> Turning:
        turning: Turning | None = plan.kept.get("turning")
        if turning is None or turning.state is not self.state:
            turning = plan.kept["turning"] = choose_turning(
                grads, plan, self._geometry, self.state, self._peers and self._peers.copies
            )
        return turning

    def _is_ready(self, plan: Plan) -> bool:
        # a state's type or place changes only with another plan, or when somebody else puts one there
        return self._ready is plan and "average" in self.state[plan.parameters[0]]

    def _rate_state(self, plan: Plan) -> RateState:
        """The rate's scalars, and room for each parameter's momentum and average."""
        for parameter in () if self._is_ready(plan) else plan.parameters:
            self._hold(parameter, {"momentum": HALF.get(parameter.dtype, torch.bfloat16)})
        self._ready = plan
        saved = self.param_groups[0].get("rate")
        return RateState(*(torch.zeros(2) if saved is None else saved).to(plan.reach).unbind())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if any("memory" in group for group in self.param_groups):
            raise ValueError("memory: this state is of a StochasticAGD that measured slopes; begin anew, without it")


def _dense(plan: Plan) -> list[Tensor]:
    grads = plan.gradients()
    return [grad.to_dense() if grad.is_sparse else grad for grad in grads] if plan.sparse else grads
