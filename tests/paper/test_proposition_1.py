import torch

from autogd.theory import linearise
from autogd.theory.s1_losses import cross_entropy, square
from paper_draws import directional, forward, make, over_shapes


def by_differences(loss, f, y, epsilon=1e-6):
    """∇_f l of every sample, one coordinate at a time."""
    rows = []
    for a, b in zip(f, y, strict=True):
        row = []
        for i in range(len(a)):
            e = torch.zeros_like(a)
            e[i] = epsilon
            ahead, behind = loss((a + e)[None], b[None]), loss((a - e)[None], b[None])
            row.append((ahead - behind) / (2 * epsilon))
        rows.append(torch.stack(row))
    return torch.stack(rows)


@over_shapes
def test_the_two_terms_are_those_of_finite_differences_and_add_up(depth, width, batch, seed):
    problem = make(depth, width, batch, seed, prescribed=False)
    loss, y = (cross_entropy(), problem.y.softmax(1)) if seed % 2 else (square, problem.y)
    f, moved = forward(problem.weights, problem.x), forward(problem.moved, problem.x)
    gradient, tangent = by_differences(loss, f, y), directional(problem)
    slope = (gradient * tangent).sum(1).mean()
    model_term = (gradient * (moved - f - tangent)).sum(1).mean()
    loss_term = (loss(moved, y) - loss(f, y)) - (gradient * (moved - f)).sum(1).mean()

    parts = linearise(problem.model, loss, problem.x, y, problem.named_updates)

    scale = 1 + float(moved.abs().max()) ** 2
    assert abs(float(parts.slope - slope)) < 1e-6 * scale
    assert abs(float(parts.model_term - model_term)) < 1e-6 * scale
    assert abs(float(parts.loss_term - loss_term)) < 1e-6 * scale
    assert abs(float(parts.error - (parts.model_term + parts.loss_term))) < 1e-12 * scale


@over_shapes(examples=10)
def test_per_sample_terms_are_those_of_each_sample_alone(depth, width, batch, seed):
    problem = make(depth, width, batch, seed)
    together = linearise(problem.model, square, problem.x, problem.y, problem.named_updates)
    for i in range(batch):
        one = slice(i, i + 1)
        alone = linearise(problem.model, square, problem.x[one], problem.y[one], problem.named_updates)
        assert abs(float(together.model_terms[i] - alone.model_term)) < 1e-12
        assert abs(float(together.loss_terms[i] - alone.loss_term)) < 1e-12
