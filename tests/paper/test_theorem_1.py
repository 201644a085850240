import statistics

from autogd.losses import square_loss
from autogd.theory import functional_expansion, linearise
from paper_draws import forward, make, make_assumption_1_hold, over_shapes, square


@over_shapes(outputs=2)
def test_the_expansion_is_the_objective_after_the_step_under_assumption_1(depth, width, batch, seed):
    problem = make_assumption_1_hold(make(depth, width, batch, seed, outputs=2))
    after = square(forward(problem.moved, problem.x), problem.y)
    found = functional_expansion(problem.model, square_loss, problem.x, problem.y, problem.named_updates)
    assert abs(float(found) - after) < 1e-11


@over_shapes(outputs=2)
def test_without_assumption_1_the_expansion_is_off_by_its_term(depth, width, batch, seed):
    problem = make(depth, width, batch, seed, outputs=2)
    after = square(forward(problem.moved, problem.x), problem.y)
    parts = linearise(problem.model, square_loss, problem.x, problem.y, problem.named_updates)
    assert abs(after - float(parts.expansion) - float(parts.model_term)) < 1e-11


def test_assumption_1_is_not_vacuous():
    terms = []
    for seed in range(10):
        problem = make(4, 8, 4, seed)
        parts = linearise(problem.model, square_loss, problem.x, problem.y, problem.named_updates)
        terms.append(abs(float(parts.model_term)) / float(parts.loss_term))
    assert statistics.median(terms) > 0.1
