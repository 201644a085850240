"""From Prescription 1 to Theorem 2: the network's bounds and the optimiser."""

import math

import torch
from torch import Tensor

from autogd.optim.bound import ExponentialMajorisation
from autogd.reading.initialise import initialise_, semi_orthogonal
from autogd.theory.check.draws import Draw, draw, fully_connected, on_sphere
from autogd.theory.check.statement import ROUNDING, Sides, about, assuming, parts_of, seeded, statement
from autogd.theory.s4_bound import deep_relative_trust, output_bound
from autogd.theory.s5_majorise import FunctionalMajorisation, exponential

__all__ = ["NETWORK"]


@statement("Prescription 1", "initialise_: ‖W_k‖_* = √(d_k/d_(k−1))")
def _prescription_1(seed: int) -> Sides:
    """`initialise_` puts ‖W_k‖_* at √(d_k/d_(k−1))."""
    model = initialise_(fully_connected([1 + seed % 7, 2 + seed % 11, 3]), generator=seeded(seed))
    worst = max(
        abs(float(torch.linalg.matrix_norm(p.detach(), ord=2)) / math.sqrt(p.shape[0] / p.shape[1]) - 1)
        for p in model.parameters()
    )
    return Sides(worst, ROUNDING, f"seed {seed}")


@statement("Prescription 1, √(fan_in/fan_out)", "the experiments section's wording", holds=False)
def _prescription_1_fan_in(seed: int) -> Sides:
    """The experiments section's wording, √(fan_in/fan_out): ‖W‖_* over √(d_k/d_(k−1)) is then d_(k−1)/d_k."""
    fan_out, fan_in = 1 + seed % 7, 1 + (3 * seed + 1) % 11
    weight = semi_orthogonal(1, fan_out, fan_in, torch.float64, seeded(seed))[0] * math.sqrt(fan_in / fan_out)
    size = float(torch.linalg.matrix_norm(weight, ord=2)) / math.sqrt(fan_out / fan_in)
    return Sides(abs(size - 1), ROUNDING, f"{fan_out} × {fan_in}: the norm is {size:.3g} of what is prescribed")


@statement("Lemma 3", "‖f‖ / (Π‖W_k‖_* ‖x‖) ≤ 1, any weights")
def _lemma_3(seed: int) -> Sides:
    """‖f‖ ≤ Π‖W_k‖_* ‖x‖, weights of any size."""
    problem = draw(seed, prescribed=False)
    f = problem.model(problem.inputs).detach().norm(dim=1)
    bounds = torch.tensor([output_bound(problem.norms, float(x.norm())) for x in problem.inputs], dtype=f.dtype)
    return Sides(float((f / bounds).max()), 1 + ROUNDING, about(problem, seed))


@statement("Lemma 3, prescribed", "‖f‖/√d_L ≤ 1")
def _lemma_3_prescribed(seed: int) -> Sides:
    """‖f‖/√d_L ≤ 1 under Prescription 1."""
    problem = draw(seed)
    f = problem.model(problem.inputs).detach()
    return Sides(float(f.norm(dim=1).max()) / math.sqrt(f.shape[1]), 1 + ROUNDING, about(problem, seed))


@statement("Lemma 4", "‖Δf‖ / deep relative trust ≤ 1, any weights")
def _lemma_4(seed: int) -> Sides:
    """Deep relative trust, weights and updates of any size: ‖Δf‖ over its bound."""
    problem = draw(seed, prescribed=False)
    trust = deep_relative_trust(problem.norms, problem.update_norms, 1.0)
    moved = parts_of(problem).delta.norm(dim=1) / problem.inputs.norm(dim=1)
    return Sides(float(moved.max()) / trust, 1 + ROUNDING, about(problem, seed))


@statement("Lemma 4, prescribed", "‖Δf‖/√d_L ≤ e^η − 1")
def _lemma_4_prescribed(seed: int) -> Sides:
    """‖Δf‖/√d_L ≤ e^η − 1 under Prescription 1."""
    problem = draw(seed)
    moved = parts_of(problem).delta.norm(dim=1) / math.sqrt(problem.targets.shape[1])
    return Sides(float(moved.max()), math.expm1(problem.eta) + ROUNDING, about(problem, seed))


@statement("Lemma 4, tight", "0.99 ≤ ‖Δf‖/(√d_L (e^η − 1)), aligned layers", share=0.1)
def _lemma_4_tight(seed: int) -> Sides:
    """Rank-one positive layers, all aligned, of depth 64: 99% of √d_L (e^η − 1) is reached."""
    generator, depth, eta = seeded(seed), 64, 0.5
    widths = [1 + int(w) for w in torch.randint(8, (depth + 1,), generator=generator)]
    model, updates = fully_connected(widths), {}
    units = [torch.rand(w, generator=generator, dtype=torch.float64) + 0.1 for w in widths]
    units = [u / u.norm() for u in units]
    for k, (name, parameter) in enumerate(model.named_parameters()):
        parameter.data.copy_(math.sqrt(widths[k + 1] / widths[k]) * torch.outer(units[k + 1], units[k]))
        updates[name] = parameter.detach() * eta / depth
    x = (units[0] * math.sqrt(widths[0])).unsqueeze(0)
    problem = Draw(model, x, on_sphere(1, widths[-1], generator), updates, eta)
    reached = float(parts_of(problem).delta.norm()) / math.sqrt(widths[-1]) / math.expm1(eta)
    return Sides(0.99, reached, f"seed {seed}: depth {depth}, eta {eta}")


@statement("Lemma 5", "𝓛(w + Δw) ≤ exponential majorisation")
def _lemma_5(seed: int) -> Sides:
    """Under Assumption 1 and Prescription 1, 𝓛(w + Δw) is at most the exponential majorisation."""
    problem, parts = assuming(seed)
    bound = parts.before + parts.slope + 0.5 * math.expm1(problem.eta) ** 2
    return Sides(float(parts.after), float(bound) + ROUNDING, about(problem, seed))


@statement("Theorem 2, η", "bound at η(G) ≤ bound at any other η")
def _theorem_2(seed: int) -> Sides:
    """No η of a fine grid gives a lower majorisation than Theorem 2's; nor does Newton's method find another."""
    G = 10 ** (3 * torch.rand((), generator=seeded(seed), dtype=torch.float64) - 2)
    rule = ExponentialMajorisation()
    grid = torch.linspace(1e-4, 4, 20_000, dtype=torch.float64)
    newton = FunctionalMajorisation(lambda s: s**2 / 2, exponential).learning_rate(G)
    best = torch.minimum(rule.upper_bound(grid, G).min(), rule.upper_bound(newton, G))
    return Sides(
        float(rule.upper_bound(rule.learning_rate(G), G)), float(best) + ROUNDING, f"seed {seed}: G {float(G):.3g}"
    )


@statement("Theorem 2, direction", "stable rank 1: no direction beats ∇/‖∇‖_F")
def _theorem_2_direction(seed: int) -> Sides:
    """With a gradient of stable rank 1, no direction of unit operator norm has a larger inner product than ∇/‖∇‖_F."""
    generator = seeded(seed)
    u, v = (torch.randn(1 + w, generator=generator, dtype=torch.float64) for w in (seed % 5, seed % 7))
    return _direction(torch.outer(u, v), generator, f"seed {seed}: rank one, {len(u)} × {len(v)}")


@statement("Theorem 2, any gradient", "the same without Assumption 2", holds=False)
def _theorem_2_any_direction(seed: int) -> Sides:
    """The same without Assumption 2, as the proof's first sentence has it: false, UVᵀ has the nuclear norm."""
    generator = seeded(seed)
    gradient = torch.randn(2 + seed % 5, 2 + seed % 7, generator=generator, dtype=torch.float64)
    gradient = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64) if seed % 10 == 0 else gradient
    where = "gradient diag(2, 1)" if seed % 10 == 0 else f"seed {seed}: {len(gradient)} × {gradient.shape[1]}"
    return _direction(gradient, generator, where + "; direction UVᵀ against ∇/‖∇‖_*")


def _direction(gradient: Tensor, generator: torch.Generator, drawn: str) -> Sides:
    others = torch.randn(64, *gradient.shape, generator=generator, dtype=torch.float64)
    u, _, vt = torch.linalg.svd(gradient, full_matrices=False)
    others = torch.cat([others, (u @ vt).unsqueeze(0), gradient + 0.1 * others])
    others = others / torch.linalg.matrix_norm(others, ord=2)[:, None, None]
    best = float((others * gradient).sum((1, 2)).max())
    claimed = float((gradient * gradient).sum() / torch.linalg.matrix_norm(gradient, ord=2))
    return Sides(best, claimed + ROUNDING, drawn)


NETWORK = [
    _prescription_1,
    _prescription_1_fan_in,
    _lemma_3,
    _lemma_3_prescribed,
    _lemma_4,
    _lemma_4_prescribed,
    _lemma_4_tight,
    _lemma_5,
    _theorem_2,
    _theorem_2_direction,
    _theorem_2_any_direction,
]
"""The derivation for fully-connected networks."""
