import torch
from scipy.optimize import minimize
from scipy.stats import entropy

from autogd.theory.s1_bregman import bregman_of_cross_entropy, per_sample
from autogd.theory.s1_losses import cross_entropy
from paper_draws import forward, make, over_shapes


@over_shapes
def test_divergence_of_cross_entropy_is_the_kl_whatever_the_target(depth, width, batch, seed):
    problem = make(depth, width, batch, seed, prescribed=False)
    f = forward(problem.weights, problem.x)
    delta = forward(problem.moved, problem.x) - f
    closed = bregman_of_cross_entropy(f, delta)
    automatic = per_sample(cross_entropy(), f, delta, problem.y.softmax(1))
    by_label = per_sample(cross_entropy(), f, delta, problem.y.argmax(1))
    for i in range(batch):
        kl = entropy(f[i].softmax(0).numpy(), (f[i] + delta[i]).softmax(0).numpy())
        for found in (closed[i], automatic[i], by_label[i]):
            assert abs(float(found) - kl) < 1e-9 * (1 + float(delta[i].abs().max()))


@over_shapes(outputs=2)
def test_no_step_of_any_length_exceeds_half_its_largest_entry_squared(depth, width, batch, seed):
    problem = make(depth, width, batch, seed, prescribed=False, outputs=2)
    f = 3 * forward(problem.weights, problem.x)
    for length in (1e-2, 1.0, 30.0):
        delta = length * torch.randn(f.shape, generator=problem.generator, dtype=f.dtype)
        loss = cross_entropy()
        kl = torch.tensor([entropy(a.softmax(0), (a + d).softmax(0)) for a, d in zip(f, delta, strict=True)])
        assert (kl <= loss.bound(loss.measure(delta)) + 1e-12).all()
        rms = cross_entropy(f.shape[1])
        assert (kl <= rms.bound(rms.measure(delta)) + 1e-12).all()


def test_the_search_for_the_worst_step_finds_the_bound_and_nothing_above_it():
    loss = cross_entropy()

    def ratio(v):
        f, delta = torch.as_tensor(v[:2])[None], torch.as_tensor(v[2:])[None] * 1e-2
        return -float(bregman_of_cross_entropy(f, delta) / loss.bound(loss.measure(delta)))

    found = -minimize(ratio, [0.3, -0.2, 1.0, 0.2], method="Nelder-Mead", options={"maxiter": 4000}).fun
    assert 0.99 < found <= 1.0 + 1e-9
