from autogd.theory import perturbation_bound
from autogd.theory.s4_bound import output_bound
from paper_draws import aligned, forward, make, over_shapes, spectral


@over_shapes
def test_output_is_never_larger_than_the_product_of_norms(depth, width, batch, seed):
    problem = make(depth, width, batch, seed, prescribed=False)
    norms = [spectral(w) for w in problem.weights]
    for x, f in zip(problem.x, forward(problem.weights, problem.x), strict=True):
        assert float(f.norm()) <= output_bound(norms, float(x.norm())) * (1 + 1e-12)


@over_shapes
def test_output_of_a_prescribed_network_has_root_mean_square_at_most_one(depth, width, batch, seed):
    problem = make(depth, width, batch, seed)
    rms = forward(problem.weights, problem.x).square().mean(1).sqrt().max()
    walked = perturbation_bound(problem.model).size
    assert float(rms) <= walked * (1 + 1e-9)
    assert abs(walked - 1) < 1e-9


@over_shapes
def test_the_bound_is_reached_where_layers_are_aligned(depth, width, batch, seed):
    problem = aligned(depth, width, 0.1, seed)
    assert abs(float(forward(problem.weights, problem.x).square().mean().sqrt()) - 1) < 1e-12
