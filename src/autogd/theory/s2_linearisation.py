r"""The linearisation error of the objective, and what is left of it under Assumption 1.

Proposition 1 splits the error of the objective's first-order Taylor series into two means over the data:

.. math:: \Delta\mathcal{L} - \nabla\mathcal{L}^\top \Delta w =
    \overline{\nabla_f l^\top (\Delta f - \nabla_w f \, \Delta w)} + \overline{\Delta l - \nabla_f l^\top \Delta f}

The first is the model's own linearisation error, projected on the loss's gradient; Assumption 1 says it is zero. The
second is the mean Bregman divergence of the loss.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from autogd.theory.s1_bregman import bregman_of_cross_entropy, bregman_of_square, directional, per_sample
from autogd.theory.s1_losses import cross_entropy, square

__all__ = [
    "Linearisation",
    "functional_expansion",
    "functional_expansion_of_square",
    "functional_majorisation_of_cross_entropy",
    "linearise",
]

LossFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Linearisation:
    """Every quantity of Proposition 1, for one model, batch and update.

    Args:
        before: the objective 𝓛(w).
        after: the objective 𝓛(w + Δw).
        slope: ∇𝓛ᵀΔw, summed over per-sample gradients.
        model_terms: ∇_f lᵀ(Δf − ∇_w f Δw), one per sample.
        loss_terms: the Bregman divergence of the loss, one per sample.
        output: f, one row per sample.
        delta: Δf, one row per sample.
    """

    before: Tensor
    after: Tensor
    slope: Tensor
    model_terms: Tensor
    loss_terms: Tensor
    output: Tensor
    delta: Tensor

    @property
    def error(self) -> Tensor:
        """The left side: Δ𝓛 − ∇𝓛ᵀΔw."""
        return self.after - self.before - self.slope

    @property
    def model_term(self) -> Tensor:
        """The first term, zero under Assumption 1."""
        return self.model_terms.mean()

    @property
    def loss_term(self) -> Tensor:
        """The second term, the mean Bregman divergence."""
        return self.loss_terms.mean()

    @property
    def expansion(self) -> Tensor:
        """Theorem 1: 𝓛 + ∇𝓛ᵀΔw + the mean divergence, which is 𝓛(w + Δw) under Assumption 1."""
        return self.before + self.slope + self.loss_term


def linearise(
    model: nn.Module, loss: LossFunction, inputs: Tensor, targets: Tensor, updates: Mapping[str, Tensor]
) -> Linearisation:
    """Measure both terms of Proposition 1.

    Args:
        model: any Module that maps a batch to a batch, sample by sample.
        loss: from (output, target) to the mean over the batch.
        inputs: a batch.
        targets: its targets.
        updates: Δw by parameter name; other parameters do not move.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> x, y = torch.randn(5, 2), torch.randn(5, 1)
    >>> result = linearise(model, square, x, y, {"weight": torch.ones(1, 2)})
    >>> bool(result.model_term.abs() < 1e-6)  # a linear model has no linearisation error
    True
    """
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    unknown = sorted(set(updates) - set(weights))
    if unknown:
        raise ValueError(f"updates: the model has no parameter {unknown[0]!r}; its own are {', '.join(weights)}")
    step = {name: updates[name].detach() if name in updates else torch.zeros_like(w) for name, w in weights.items()}
    moved = {name: weights[name] + step[name] for name in weights}

    def forward(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, parameters, (inputs,))

    def loss_of_one(f: Tensor, y: Tensor) -> Tensor:
        return loss(f.unsqueeze(0), y.unsqueeze(0))

    def objective_of_one(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss_of_one(torch.func.functional_call(model, parameters, (x.unsqueeze(0),)).squeeze(0), y)

    output, tangent = directional(forward, weights, step)
    delta = forward(moved) - output
    gradients = torch.func.vmap(torch.func.grad(loss_of_one))(output, targets)
    # ∇_w l of every sample, so that the slope does not use the chain rule that the proposition rests on
    per_weight = torch.func.vmap(torch.func.grad(objective_of_one), in_dims=(None, 0, 0))(weights, inputs, targets)
    slopes = sum((per_weight[n].flatten(1) @ step[n].flatten() for n in weights), torch.zeros(()).to(output))
    assert isinstance(slopes, Tensor)
    return Linearisation(
        before=loss(output, targets),
        after=loss(output + delta, targets),
        slope=slopes.mean(),
        model_terms=(gradients * (delta - tangent)).flatten(1).sum(1),
        loss_terms=per_sample(loss, output, delta, targets),
        output=output,
        delta=delta,
    )


def functional_expansion(
    model: nn.Module, loss: LossFunction, inputs: Tensor, targets: Tensor, updates: Mapping[str, Tensor]
) -> Tensor:
    """Theorem 1: 𝓛(w + Δw) under Assumption 1, for any convex loss.

    >>> model, x, y = nn.Linear(2, 1, bias=False), torch.ones(3, 2), torch.ones(3, 1)
    >>> nn.init.zeros_(model.weight).shape
    torch.Size([1, 2])
    >>> round(float(functional_expansion(model, square, x, y, {"weight": torch.full((1, 2), 0.5)})), 6)
    0.0
    """
    return linearise(model, loss, inputs, targets, updates).expansion


def functional_expansion_of_square(
    model: nn.Module, inputs: Tensor, targets: Tensor, updates: Mapping[str, Tensor]
) -> Tensor:
    """Corollary 1: 𝓛 + ∇𝓛ᵀΔw + the mean of ‖Δf‖²/(2 d_L), by Lemma 1's closed form.

    >>> model, x, y = nn.Linear(2, 1, bias=False), torch.ones(3, 2), torch.ones(3, 1)
    >>> torch.nn.init.zeros_(model.weight).shape
    torch.Size([1, 2])
    >>> round(float(functional_expansion_of_square(model, x, y, {"weight": torch.ones(1, 2)})), 6)
    0.5
    """
    parts = linearise(model, square, inputs, targets, updates)
    return parts.before + parts.slope + bregman_of_square(parts.delta).mean()


def functional_majorisation_of_cross_entropy(
    model: nn.Module, inputs: Tensor, targets: Tensor, updates: Mapping[str, Tensor], *, exact: bool = False
) -> Tensor:
    """Corollary 2: 𝓛 + ∇𝓛ᵀΔw + the mean of ½‖Δf‖_∞², an upper bound; with `exact`, the mean KL instead.

    >>> model, x, y = nn.Linear(2, 2, bias=False), torch.ones(1, 2), torch.tensor([0])
    >>> torch.nn.init.zeros_(model.weight).shape
    torch.Size([2, 2])
    >>> step = {"weight": torch.tensor([[1.0, 0.0], [0.0, 0.0]])}
    >>> round(float(functional_majorisation_of_cross_entropy(model, x, y, step)), 4)  # log 2 − ½ + ½
    0.6931
    """
    loss = cross_entropy()
    parts = linearise(model, loss, inputs, targets, updates)
    if exact:
        return parts.before + parts.slope + bregman_of_cross_entropy(parts.output, parts.delta).mean()
    return parts.before + parts.slope + loss.bound(loss.measure(parts.delta)).mean()
