"""The recipe of a tuned rival on a long workload: warm-up, cosine, clipping and weight decay."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from autogd import baselines

__all__ = ["RIVALS", "Recipe"]

RIVALS = ("adamw", "sgd", "muon", "muon-original")
"""The optimisers with a recipe; all others run without."""
SGD_DECAY = 5e-4  # SGD's decay is multiplied by a larger rate, so the usual number is smaller


@dataclass(frozen=True)
class Recipe:
    """The settings besides the learning rate.

    Args:
        floor: the final fraction of the learning rate in the cosine schedule.
        clip: the largest norm of a gradient; None for no clipping.
        betas: of AdamW.
        decay: of matrices, kernels and tables in AdamW, of matrices in Muon. Gains and biases have none.
        warm: steps of warm-up.

    >>> recipe = Recipe(floor=0.1, warm=100)
    >>> [round(recipe.share(step, 2000), 3) for step in (0, 99, 100, 2000)]
    [0.01, 0.99, 1.0, 0.1]
    """

    floor: float = 0.0
    clip: float | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float = 0.1
    warm: int = 100

    def share(self, step: int, steps: int) -> float:
        """The factor of the learning rate at a step, counted from zero."""
        if step < self.warm:
            return (step + 1) / (self.warm + 1)
        cosine = math.cos(math.pi * (step - self.warm) / (steps - self.warm))
        return self.floor + (1 - self.floor) / 2 * (1 + cosine)

    def build(self, name: str, model: nn.Module, lr: float | None) -> baselines.Optimiser:
        """The optimiser of that name, with the recipe's decay and betas.

        >>> made = Recipe(decay=0.2).build("adamw", nn.Linear(2, 2), lr=1e-3)
        >>> [(group["weight_decay"], len(group["params"])) for group in made.param_groups]
        [(0.2, 1), (0.0, 1)]
        """
        if name not in ("adamw", "sgd"):
            optimiser = baselines.build(name, model, lr)
            for group in optimiser.param_groups:  # Muon's group, then AdamW's for the rest
                group["weight_decay"] = 0.0 if "betas" in group else self.decay
                if "betas" in group:
                    group["betas"] = self.betas
            return optimiser
        decay = self.decay if name == "adamw" else SGD_DECAY
        every = list(model.parameters())
        groups = [
            {"params": [p for p in every if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in every if p.dim() < 2], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        rate = 1e-3 if lr is None else lr
        if name == "adamw":
            return torch.optim.AdamW(groups, lr=rate, betas=self.betas)
        return torch.optim.SGD(groups, lr=rate, momentum=0.9)
