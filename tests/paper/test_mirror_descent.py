import numpy as np
import torch
from scipy.optimize import approx_fprime, minimize
from scipy.special import logsumexp

from autogd.losses import square_loss
from autogd.theory.s1_losses import cross_entropy
from autogd.theory.s3_recover import mirror_descent_step
from paper_draws import make, over_shapes


def linear(width, batch, seed, outputs=1):
    problem = make(1, width, batch + 3 * width, seed, outputs=outputs)
    return problem.weights[0], problem.x, problem.y


def cross_entropy_by_hand(w, x, y):
    f = x @ w.reshape(y.shape[1], -1).T
    return float((logsumexp(f, axis=1) - (y * f).sum(1)).mean())


@over_shapes
def test_for_square_loss_it_is_the_solution_of_the_normal_equations(depth, width, batch, seed):
    w, x, y = linear(width, batch, seed)
    solution = np.linalg.solve((x.T @ x).numpy(), (x.T @ y).numpy()).T
    assert np.allclose(w + mirror_descent_step(square_loss, w, x, y), solution, atol=1e-8)
    half = mirror_descent_step(square_loss, w, x, y, step=0.5)
    assert np.allclose(w + half, 0.5 * (w.numpy() + solution), atol=1e-8)


@over_shapes(examples=10, outputs=2)
def test_for_cross_entropy_it_minimises_what_a_quasi_newton_method_minimises(depth, width, batch, seed):
    w, x, y = linear(min(width, 5), batch, seed, outputs=2)
    y = y.softmax(1)
    found = minimize(cross_entropy_by_hand, w.flatten().numpy(), args=(x.numpy(), y.numpy()), options={"gtol": 1e-8})
    step = mirror_descent_step(cross_entropy(), w, x, y)
    assert abs(cross_entropy_by_hand((w + step).numpy(), x.numpy(), y.numpy()) - found.fun) < 1e-8


@over_shapes(examples=10, outputs=2)
def test_a_shorter_step_moves_the_mirrored_weights_by_the_step_times_the_gradient(depth, width, batch, seed):
    w, x, y = linear(min(width, 5), batch, seed, outputs=2)
    y = y.softmax(1)
    moved = w + mirror_descent_step(cross_entropy(), w, x, y, step=0.3)
    before, after = (
        approx_fprime(v.flatten().numpy(), cross_entropy_by_hand, 1e-7, x.numpy(), y.numpy()) for v in (w, moved)
    )
    assert np.allclose(after, 0.7 * before, atol=1e-5)
    assert bool(torch.isfinite(moved).all())
