import torch
from scipy.special import logsumexp

from autogd.theory.s2_linearisation import functional_majorisation_of_cross_entropy
from paper_draws import exact_directional, forward, make, over_shapes


def objective(weights, x, y):
    """Cross-entropy by hand: the mean of logsumexp(f) − yᵀf, for targets of sum 1."""
    f = forward(weights, x).numpy()
    return float((logsumexp(f, axis=1) - (f * y.numpy()).sum(1)).mean())


def assume(problem):
    """Targets of sum 1 with softmax(f) − y at right angles to the model's linearisation error."""
    f = forward(problem.weights, problem.x)
    error = forward(problem.moved, problem.x) - f - exact_directional(problem)
    rows = []
    for a, e in zip(f, error, strict=True):
        basis, _ = torch.linalg.qr(torch.stack([torch.ones_like(e), e], 1))
        v = torch.randn(len(a), generator=problem.generator, dtype=a.dtype)
        rows.append(a.softmax(0) - 0.3 * (v - basis @ (basis.T @ v)))
    return torch.stack(rows)


@over_shapes(outputs=3)
def test_the_objective_after_the_step_is_below_the_majorisation_under_assumption_1(depth, width, batch, seed):
    problem = make(depth, width, batch, seed, outputs=3, prescribed=bool(seed % 2))
    y = assume(problem)
    after = objective(problem.moved, problem.x, y)
    found = functional_majorisation_of_cross_entropy(problem.model, problem.x, y, problem.named_updates)
    exact = functional_majorisation_of_cross_entropy(problem.model, problem.x, y, problem.named_updates, exact=True)
    assert after <= float(found) + 1e-9
    assert abs(after - float(exact)) < 1e-9 * (1 + abs(after))
