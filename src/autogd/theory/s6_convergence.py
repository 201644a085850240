r"""How large the objective and its gradient can be, and how fast AGD reduces them.

The paper's Lemma 6 is false as stated: ‖f − y‖² ≤ ‖f‖² + ‖y‖² needs fᵀy ≥ 0. The triangle inequality gives (‖f‖ + ‖y‖)²
instead, at worst twice as much, and the constants of the rates double. Each function below has the corrected form by
default, and the paper's with `form="paper"`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from torch import Tensor, nn

from autogd.geometry.norms import operator_norm
from autogd.reading.catalogue import read_roles

__all__ = [
    "critical_point_rate",
    "decrease",
    "global_rate",
    "gradient_bound",
    "objective_bound",
    "polyak_lojasiewicz",
]

Form = Literal["corrected", "paper"]


def objective_bound(
    output_norms: Sequence[float], target_norms: Sequence[float], d: int, form: Form = "corrected"
) -> float:
    """Lemma 6: the square-loss objective is at most the mean of (‖f‖ + ‖y‖)²/(2 d_L): 2 under Prescription 1.

    The paper has (‖f‖² + ‖y‖²)/(2 d_L), which is 1 under Prescription 1, and which f = −y breaks.

    >>> objective_bound([2.0], [2.0], d=4), objective_bound([2.0], [2.0], d=4, form="paper")
    (2.0, 1.0)
    """
    pairs = list(zip(output_norms, target_norms, strict=True))
    each = [(f + y) ** 2 if form == "corrected" else f**2 + y**2 for f, y in pairs]
    return sum(each) / len(each) / (2 * d)


def gradient_bound(
    norms: Sequence[float], layer: int, objective: float, input_norms: Sequence[float], outputs: int
) -> float:
    """Lemma 7: ‖∇_k‖_F ≤ (Π‖W_l‖_*/‖W_k‖_*) √(2𝓛/d_L) √(mean ‖x‖²).

    Under Prescription 1 that is √(2𝓛 d_(k−1)/d_k): at most 2√(d_(k−1)/d_k) by the corrected Lemma 6, and √2 times the
    root by the paper's.

    Args:
        norms: ‖W_l‖_* of every layer.
        layer: k, counted from 0.
        objective: 𝓛.
        input_norms: ‖x‖ of every sample.
        outputs: d_L.

    >>> gradient_bound([1.0, 3.0], 0, objective=0.5, input_norms=[2.0], outputs=1)
    6.0
    """
    others = math.prod(n for k, n in enumerate(norms) if k != layer)
    mean_square = sum(n**2 for n in input_norms) / len(input_norms)
    return others * math.sqrt(2 * objective / outputs) * math.sqrt(mean_square)


def decrease(summary: float) -> float:
    """The least decrease of the objective in one step of AGD under its assumptions, for G ≤ 2: G²/11 (Lemma 8's proof).

    >>> round(decrease(1.1), 4)
    0.11
    """
    if not 0 <= summary <= 2 + 1e-6:  # allow for rounding
        raise ValueError(f"summary: the bound holds for 0 ≤ G ≤ 2, found {summary}")
    return summary**2 / 11


def critical_point_rate(steps: int, form: Form = "corrected", *, start: float | None = None) -> float:
    """Lemma 8: min_t G_t² ≤ 22/T; the paper's 11/T holds if 𝓛(w_1) ≤ 1; with 𝓛(w_1) known it is 11·𝓛(w_1)/T.

    >>> critical_point_rate(10), critical_point_rate(10, form="paper"), critical_point_rate(10, start=0.5)
    (2.2, 1.1, 0.55)
    """
    largest = start if start is not None else 2.0 if form == "corrected" else 1.0
    return 11 * largest / steps


def global_rate(steps: int, alpha: float, form: Form = "corrected", *, start: float | None = None) -> float:
    """Theorem 3: 𝓛(w_T) ≤ 11/(α²T) under Assumption 3; the paper's 6/(α²T) holds if 𝓛(w_1) ≤ 1.

    >>> global_rate(10, alpha=0.5), global_rate(10, alpha=0.5, form="paper")
    (4.4, 2.4)
    """
    if form == "paper" and start is None:
        return 6 / (alpha**2 * steps)
    return critical_point_rate(steps, form, start=start) / (2 * alpha**2)


def polyak_lojasiewicz(
    model: nn.Module, gradients: Mapping[str, Tensor], objective: float, input_norms: Sequence[float], outputs: int
) -> dict[str, float]:
    """Assumption 3's α of every layer: ‖∇_k‖_F over Lemma 7's bound; the least of them is the network's α here.

    For networks with one matrix per layer, as in Definition 10. It is never above 1, by Lemma 7.

    >>> import torch
    >>> model = nn.Linear(1, 1, bias=False)
    >>> alpha = polyak_lojasiewicz(model, {"weight": torch.ones(1, 1)}, 0.5, [1.0], 1)
    >>> round(alpha["weight"], 4)
    1.0
    """
    roles = read_roles(model)
    if any(role.atom.parts != 1 for role in roles):
        raise ValueError("Assumption 3 is stated for fully-connected layers, one matrix each")
    norms = [float(operator_norm(role.parameter, role.atom)) for role in roles]
    alphas = {}
    for k, role in enumerate(roles):
        bound = gradient_bound(norms, k, objective, input_norms, outputs)
        alphas[role.name] = float(gradients[role.name].norm()) / bound if bound > 0 else math.nan
    return alphas
