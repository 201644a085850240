from autogd.theory.s2_linearisation import functional_expansion_of_square
from paper_draws import forward, make, make_assumption_1_hold, over_shapes, square


@over_shapes(outputs=2)
def test_square_loss_after_the_step_is_its_expansion_under_assumption_1(depth, width, batch, seed):
    problem = make_assumption_1_hold(make(depth, width, batch, seed, outputs=2))
    after = square(forward(problem.moved, problem.x), problem.y)
    found = functional_expansion_of_square(problem.model, problem.x, problem.y, problem.named_updates)
    assert abs(float(found) - after) < 1e-11


@over_shapes
def test_it_is_exact_without_any_assumption_where_only_the_last_layer_moves(depth, width, batch, seed):
    problem = make(depth, width, batch, seed, prescribed=False)
    problem.updates[:-1] = [0 * u for u in problem.updates[:-1]]
    after = square(forward(problem.moved, problem.x), problem.y)
    found = functional_expansion_of_square(problem.model, problem.x, problem.y, problem.named_updates)
    assert abs(float(found) - after) < 1e-10 * (1 + after)
