r"""AveragedAGD: AGD's own step, and averaging; the cheapest step for minibatches."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from autogd.engine.ranks import Peers
from autogd.geometry.norms import accumulation_dtype
from autogd.optim.lending import Lending
from autogd.optim.majorisation import Majorisation
from autogd.optim.native import Native
from autogd.optim.paths import Path, choose_path
from autogd.optim.plan import Plan, Solution
from autogd.optim.sharded import local

__all__ = ["AveragedAGD"]

BETA = 0.9  # how much of the point at which gradients are taken is the average


class AveragedAGD(Lending):
    r"""AGD's step without its noise: gradients are taken near an average of the weights, which is what is shipped.

    There are three points: z, which takes the steps; x, the mean of all z, each weighted by the square of its step; and
    y = (1 − β)z + βx, which the model holds, where gradients are taken (Defazio and others, arXiv 2405.15682). AGD's
    bound limits how far a gradient moves the model. Of a step of z, y moves the share 1 − β + βc, where c is the newest
    point's weight in the mean: so z takes AGD's step divided by that, and a gradient moves y by AGD's step. In the
    first step the share is 1 and falls towards 1 − β, a warm-up that is derived. With δ for AGD's step and D = y − x,

    .. math:: y \leftarrow y + \frac{\beta c}{1 - \beta} D + \delta, \qquad
       x \leftarrow x + \frac{c}{1 - \beta} D + \frac{c}{1 - \beta + \beta c} \delta,

    so z need not be held: the state is 4 bytes a weight, and a step reads and writes less than Adam's. `StochasticAGD`
    goes further for each batch; this costs as little as a step can.

    Args:
        params: a Module, whose architecture is then read; or what any torch optimiser takes.
        gain: as for `AGD`, like all that follow.
        sizes: what a step is relative to.
        majorisation: another bound on the objective.
        weight_decay: of the weights, and of their average in proportion.
        foreach: False takes the readable path.
        maximize: ascend instead.
        atoms: for parameters that are to be read otherwise.
        process_group: as for `AGD`.

    >>> from torch import nn
    >>> model = nn.Linear(4, 1)
    >>> optimiser = AveragedAGD(model)
    >>> for _ in range(3):
    ...     optimiser.zero_grad()
    ...     model(torch.randn(16, 4)).square().mean().backward()
    ...     optimiser.step()
    >>> with optimiser.averaged():
    ...     prediction = model(torch.randn(1, 4))
    """

    def __init__(
        self,
        params: Any,
        *,
        gain: float = 1.0,
        sizes: str = "dimensional",
        majorisation: Majorisation | None = None,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        atoms: Any = None,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            params,
            gain=gain,
            sizes=sizes,
            majorisation=majorisation,
            weight_decay=weight_decay,
            foreach=foreach,
            maximize=maximize,
            atoms=atoms,
            process_group=process_group,
        )

    def _update(self, plan: Plan, peers: Peers) -> None:
        self._refuse_while_lent()
        super()._update(plan, peers)

    def _move(
        self, grads: list[Tensor], solution: Solution, coefficients: Tensor, keep: Tensor | None, plan: Plan
    ) -> None:
        averages, path = self._averages(plan), self._path(grads, plan)
        c = plan.per_tensor(lambda group: _newest(group, solution)).to(plan.weights)
        # in the first step the average is the newest point itself, wherever it was
        along, beside = torch.where(c < 1, BETA / (1 - BETA) * c, 0), torch.where(c < 1, c / (1 - BETA), 1)
        share = c / (1 - BETA + BETA * c)
        keep_beside = None if keep is None else 1 + share * (keep - 1)
        if isinstance(path, Native) and plan.looks:
            ones = torch.ones_like(plan.weights)
            mixtures = [along, beside, share, *((1, 1) if keep is None else (keep, keep_beside))]
            if path.average(grads, coefficients, averages, torch.stack([ones * each for each in mixtures], 1), plan):
                return
        weights, held = ([local(tensor) for tensor in tensors] for tensors in (plan.parameters, averages))
        _towards(weights, held, -along)
        _towards(held, weights, beside / (1 + along))  # D has grown by the line before
        super()._move(grads, solution, coefficients, keep, plan)
        twin, other = self._beside(grads, averages, plan)
        if keep_beside is not None:
            other.shrink(keep_beside, twin)
        own = grads if held[0].dtype == weights[0].dtype else [grad.to(held[0].dtype) for grad in grads]
        other.apply(own, plan.per_part(share) * coefficients, twin, None if plan.looks else solution.finite)

    def _averages(self, plan: Plan) -> list[Tensor]:
        found = [self.state[parameter].get("average") for parameter in plan.parameters]
        if self._ready is not plan or any(average is None for average in found):
            # a state's type or place changes only with another plan
            found = [self._hold(parameter, {})["average"] for parameter in plan.parameters]
            self._ready = plan
        return found

    def _beside(self, grads: list[Tensor], averages: list[Tensor], plan: Plan) -> tuple[Plan, Path]:
        """The plan of the averages, and how to go over them."""
        known: tuple[Plan, Path] | None = plan.kept.get("averages")
        if known is None or any(a is not b for a, b in zip(known[0].parameters, averages, strict=True)):
            twin = replace(plan, parameters=averages, kept={})
            known = plan.kept["averages"] = twin, choose_path(grads, twin, self.defaults["foreach"])
        return known


def _newest(group: dict[str, Any], solution: Solution) -> Tensor:
    """c = η²/Ση², the weight of the newest point; what is not finite, or no step at all, is not averaged."""
    step = torch.where(solution.finite, solution.learning_rate, 0) * (group["lr"] * group["gain"])
    square = step.square()
    group["squares"] = group["squares"].to(square) + square if "squares" in group else square
    return torch.where(group["squares"] > 0, square / group["squares"], 0)


def _towards(tensors: list[Tensor], others: list[Tensor], shares: Tensor) -> None:
    """Move every tensor its share of the way to its other, or all the same one."""
    for tensor, other, share in zip(tensors, others, shares.expand(len(tensors)).unbind(), strict=True):
        wide = accumulation_dtype(tensor.dtype)
        # in place, but for half precision, in which a share would be too coarse
        moved = tensor if tensor.dtype == wide else tensor.to(wide)
        moved.lerp_(other.to(wide), share.to(tensor.device, wide))
        if moved is not tensor:
            tensor.copy_(moved)
