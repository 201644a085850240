import numpy as np
import torch
from scipy.optimize import approx_fprime

from autogd.losses import square_loss
from autogd.theory.s1_bregman import bregman, bregman_of_square, per_sample
from paper_draws import forward, make, over_shapes, square


@over_shapes
def test_divergence_of_square_loss_is_what_lies_above_the_tangent(depth, width, batch, seed):
    problem = make(depth, width, batch, seed, prescribed=False)
    f, y = forward(problem.weights, problem.x), problem.y
    delta = forward(problem.moved, problem.x) - f
    closed, automatic = bregman_of_square(delta), per_sample(square_loss, f, delta, y)
    for i in range(batch):

        def loss(v, i=i):
            return square(torch.as_tensor(v)[None], y[i][None])

        tangent = approx_fprime(f[i].numpy(), loss, 1e-7) @ delta[i].numpy()
        above = loss(f[i] + delta[i]) - loss(f[i]) - tangent
        tolerance = 1e-5 * (1 + float(delta[i].abs().sum()))
        assert abs(float(closed[i]) - above) < tolerance
        assert abs(float(automatic[i]) - above) < tolerance
    assert np.isclose(float(bregman(square_loss, f, delta, y)), float(closed.mean()), rtol=1e-10)
