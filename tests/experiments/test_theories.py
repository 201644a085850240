"""The ticks of the second table that no lemma of the paper shows: the tangent kernel, and tensor programs."""

import pytest
import torch
from torch.func import functional_call, jacrev

from autogd import baselines, initialise_, losses
from autogd.models import FCN


def small(width=16, depth=3):
    torch.manual_seed(0)
    return FCN(depth, width, d_in=12, d_out=4).double()


def linear(jacobian, change):
    return sum(torch.tensordot(jacobian[key], change[key], dims=2) for key in change)


@pytest.mark.parametrize("name", ["square", "cross-entropy"])
def test_the_tangent_kernel_moves_a_linearised_network_whatever_the_loss(name):
    model = small()
    start = {key: p.detach() for key, p in model.named_parameters()}
    inputs, labels = torch.randn(5, 12, dtype=torch.float64), torch.randint(4, (5,))

    def network(weights):
        return functional_call(model, weights, (inputs,))

    def loss(output):
        if name == "square":
            return losses.square_loss(output, losses.one_hot(labels, 4).double())
        return torch.nn.functional.cross_entropy(output, labels)

    slopes_of_network = jacrev(network)(start)

    def linearised(change):
        return network(start) + linear(slopes_of_network, change)

    zero = {key: torch.zeros_like(p) for key, p in start.items()}
    slopes = jacrev(lambda change: loss(linearised(change)))(zero)
    moved = linearised({key: -0.1 * slope for key, slope in slopes.items()})
    jacobian = torch.cat([j.reshape(20, -1) for j in slopes_of_network.values()], 1)
    kernel, slope = jacobian @ jacobian.T, jacrev(loss)(network(start)).flatten()
    torch.testing.assert_close(moved, network(start) - 0.1 * (kernel @ slope).view(5, 4))


def test_the_tangent_kernel_does_not_handle_the_network_which_is_not_its_linearisation():
    model = small()
    start = {key: p.detach() for key, p in model.named_parameters()}
    change = {key: 0.5 * torch.randn_like(p) for key, p in start.items()}
    inputs = torch.randn(5, 12, dtype=torch.float64)

    def network(weights):
        return functional_call(model, weights, (inputs,))

    true = network({key: start[key] + change[key] for key in start}) - network(start)
    assert (true - linear(jacrev(network)(start), change)).norm() > 0.2 * true.norm()


def movement(optimiser, width):
    """How far one step moves the output, root-mean-square; the network starts at Prescription 1's sizes."""
    model = initialise_(small(width), torch.Generator().manual_seed(0))
    inputs = torch.nn.functional.normalize(torch.randn(64, 12, dtype=torch.float64)) * 12**0.5
    targets = losses.one_hot(torch.randint(4, (64,)), 4).double()
    before = model(inputs).detach()
    stepper = baselines.build(optimiser, model, lr=0.1)
    losses.square_loss(model(inputs), targets).backward()
    stepper.step()
    return float((model(inputs).detach() - before).square().mean().sqrt())


def test_a_rate_of_tensor_programs_moves_wide_and_narrow_networks_alike():
    steady = [movement("sgd-mup-plain", width) for width in (64, 256, 1024)]
    assert max(steady) < 1.5 * min(steady)
    plain = [movement("sgd-plain", width) for width in (64, 1024)]
    assert max(plain) > 3 * min(plain)
