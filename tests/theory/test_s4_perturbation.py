import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import nn

from autogd import AGD, initialise_
from autogd.models import FCN
from autogd.reading.catalogue import read_roles
from autogd.theory import perturbation_bound
from autogd.theory.s4_bound import Bound, normalise
from autogd.theory.s4_network import UnboundedError
from autogd.theory.s4_operations import LIPSCHITZ


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = (nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, x):
        return x + 0.3 * self.down(torch.tanh(self.up(x)))


class Fork(nn.Module):
    """Two branches side by side, then a difference."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 6, bias=False), nn.Linear(8, 4, bias=False)
        self.last, self.skip = nn.Linear(10, 3, bias=False), nn.Linear(8, 3, bias=False)

    def forward(self, x):
        joined = torch.cat([torch.relu(self.left(x)), -self.right(x)], dim=1)
        return self.last(joined) - self.skip(x)


def convolutional():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.GELU(),
        nn.AvgPool2d(3, stride=2),
        nn.Conv2d(4, 4, 3, groups=2, bias=False),
        nn.SiLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(4, 3, bias=False),
    )


def normalised():
    return nn.Sequential(
        nn.Linear(8, 8, bias=False), nn.LayerNorm(8, elementwise_affine=False), nn.ReLU(), nn.Linear(8, 4, bias=False)
    )


def biased():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(147, 6), nn.RMSNorm(6), nn.Linear(6, 2), nn.LayerNorm(2)
    )


NETWORKS = {
    "biased": (biased, (2, 9, 9)),
    "plain": (lambda: FCN(4, 6, 8, 3), (8,)),
    "residual": (lambda: nn.Sequential(nn.Linear(8, 6, bias=False), Residual(6), nn.ELU(), Residual(6)), (8,)),
    "fork": (Fork, (8,)),
    "convolutional": (convolutional, (2, 9, 9)),
    "sigmoid": (lambda: nn.Sequential(nn.Linear(8, 6, bias=False), nn.Sigmoid(), nn.Linear(6, 2, bias=False)), (8,)),
}


def inputs(shape, seed, rows=5):
    x = torch.randn(rows, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rms = x.flatten(1).square().mean(1).sqrt()
    return x / rms.view(-1, *[1] * len(shape))


def perturb(model, sizes, seed):
    """Move every parameter by its relative size: each of its matrices by exactly that much of its scale."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for role in read_roles(model):
            step = torch.randn(role.parameter.shape, generator=g, dtype=torch.float64)
            norms = torch.linalg.matrix_norm(role.atom.matrices(step), ord=2)
            role.parameter.add_(step * sizes[role.name] * role.atom.scale / norms.max())


@pytest.mark.parametrize("name", NETWORKS)
@settings(deadline=None, max_examples=10, derandomize=True)
@given(seed=st.integers(0, 2**16), size=st.floats(0.001, 1.5))
def test_no_network_moves_further_than_its_walked_bound(name, seed, size):
    build, shape = NETWORKS[name]
    model = initialise_(build().double(), torch.Generator().manual_seed(seed))
    x = inputs(shape, seed)
    bound = perturbation_bound(model, x)
    sizes = {n: size * (1 + i % 3) / 3 for i, (n, _) in enumerate(model.named_parameters())}
    with torch.no_grad():
        before = model(x)
        perturb(model, sizes, seed + 1)
        delta = model(x) - before
    assert float(before.square().mean(1).sqrt().max()) <= bound.size * (1 + 1e-9)
    assert float(delta.square().mean(1).sqrt().max()) <= bound.change(sizes) * (1 + 1e-9)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(seed=st.integers(0, 2**16), size=st.floats(0.001, 0.5))
def test_a_normalised_network_keeps_to_its_bound_on_the_stated_domain(seed, size):
    model = initialise_(normalised().double(), torch.Generator().manual_seed(seed))
    x = inputs((8,), seed)
    with torch.no_grad():
        before, inner = model(x), model[0](x)
        sizes = {n: size for n, _ in model.named_parameters()}
        perturb(model, sizes, seed + 1)
        delta, moved = model(x) - before, model[0](x)
    # the domain, measured: the deviation of what the norm layer was given, before and after
    smallest = min(float(h.std(1, correction=0).min()) for h in (inner, moved))
    model = initialise_(normalised().double(), torch.Generator().manual_seed(seed))
    bound = perturbation_bound(model, x, smallest=smallest)
    assert float(delta.square().mean(1).sqrt().max()) <= bound.change(sizes) * (1 + 1e-9)


class Numbers(nn.Module):
    """One positive number at every place: nothing is lost, so every bound must be reached."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(1, 1, bias=False) for _ in range(3))
        self.last = nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            for value, layer in enumerate((self.a, self.b, self.c), start=1):
                layer.weight.fill_(value)
            # the direction of what it is given, [x + 2·1·x/2, 3x]: the concatenation loses nothing either
            self.last.weight.copy_(torch.tensor([[2.0, 3.0]]))

    def forward(self, x):
        h = x + self.b(torch.relu(self.a(x))) / 2
        return self.last(torch.cat([h, self.c(x)], 1))


def test_the_bound_on_numbers_is_reached():
    model = Numbers().double()
    x = torch.ones(1, 1, dtype=torch.float64)
    bound = perturbation_bound(model, x)
    assert bound.size == pytest.approx(model(x).item())
    for sizes in ({"a": 0.3, "b": 0.2, "c": 0.0, "last": 0.0}, {"a": 0.0, "b": 0.0, "c": 0.0, "last": 0.4}):
        moved = Numbers().double()
        with torch.no_grad():
            for name, size in sizes.items():
                weight = moved.get_parameter(f"{name}.weight")
                unit = math.sqrt(weight.shape[0] / weight.shape[1])
                weight += size * unit * weight / weight.norm()
        # of the last layer's input [2, 3] a change of the first number reaches 2/√13 of what the bound must allow
        lost = 2 / math.sqrt(13) if sizes["a"] else 1.0
        expected = (moved(x) - model(x)).item() / lost
        found = bound.change({f"{name}.weight": size for name, size in sizes.items()})
        assert found == pytest.approx(expected)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(seed=st.integers(0, 2**16), smallest=st.floats(0.05, 2.0), epsilon=st.sampled_from([0.0, 1e-5, 0.3]))
def test_normalisation_keeps_to_its_constant_and_reaches_it(seed, smallest, epsilon):
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, 12, generator=g, dtype=torch.float64)

    def norm(v):
        return v / (v.square().mean() + epsilon).sqrt()

    # on the edge of the domain, and anywhere in it
    a = a / a.square().mean().sqrt() * smallest
    b = b / b.square().mean().sqrt() * smallest * (1 + 3 * torch.rand((), generator=g, dtype=torch.float64))
    unit = Bound(1.0, lambda relative: torch.ones(1, dtype=torch.float64))
    constant = normalise(12, smallest, epsilon)(unit).change(0.0)
    assert float((norm(a) - norm(b)).norm()) <= constant * float((a - b).norm()) * (1 + 1e-9)
    sideways = b - (a @ b) / (a @ a) * a
    step = 1e-5 * smallest * sideways / sideways.norm()
    assert float((norm(a + step) - norm(a)).norm()) >= 0.999 * constant * float(step.norm())


def dense(layer, shape):
    """The matrix of a linear layer, column by column."""
    eye = torch.eye(math.prod(shape), dtype=torch.float64).view(-1, *shape)
    with torch.no_grad():
        return layer(eye).flatten(1).T.numpy()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.AvgPool2d(2), (3, 6, 6)),
        (nn.AvgPool2d(3, stride=2), (2, 9, 9)),
        (nn.AvgPool1d(4, stride=1), (1, 12)),
        (nn.AvgPool2d(3, stride=1, padding=1), (1, 6, 6)),
        (nn.AdaptiveAvgPool2d(2), (2, 6, 6)),
        (nn.Conv2d(3, 4, 3, bias=False), (3, 7, 7)),
        (nn.Conv2d(4, 4, (3, 2), groups=2, stride=2, padding=1, bias=False), (4, 6, 6)),
        (nn.Conv1d(3, 5, 4, dilation=2, bias=False), (3, 16)),
        (nn.ConvTranspose2d(4, 6, 3, groups=2, stride=2, bias=False), (4, 5, 5)),
    ],
)
def test_linear_layers_are_no_larger_than_the_norm_of_their_dense_matrix_allows(layer, shape):
    layer = layer.double()
    norm = np.linalg.norm(dense(layer, shape), 2)
    example = torch.zeros(1, *shape, dtype=torch.float64)
    outputs = layer(example).numel()
    bound = perturbation_bound(nn.Sequential(layer), example).size * math.sqrt(outputs / math.prod(shape))
    assert norm <= bound * (1 + 1e-9)
    if isinstance(layer, nn.AvgPool2d) and layer.kernel_size == layer.stride:
        assert norm == pytest.approx(bound)


FUNCTIONS = {
    "Relu": torch.relu, "Hardtanh": nn.functional.hardtanh, "LeakyRelu": nn.functional.leaky_relu, "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid, "Softplus": nn.functional.softplus, "Abs": torch.abs, "Neg": torch.neg, "Sin": torch.sin,
    "Gelu": nn.functional.gelu, "Silu": nn.functional.silu, "Elu": nn.functional.elu,
}  # fmt: skip


@pytest.mark.parametrize("name", LIPSCHITZ)
def test_lipschitz_constants_are_the_largest_slopes(name):
    function = FUNCTIONS[name]

    def slope(x, h=1e-6):
        ahead, behind = (function(torch.tensor(x + s, dtype=torch.float64)) for s in (h, -h))
        return abs(float(ahead - behind)) / (2 * h)

    grid = max(np.linspace(-10, 10, 4001), key=slope)
    best = minimize_scalar(lambda x: -slope(x), bounds=(grid - 0.01, grid + 0.01), method="bounded")
    constant, at_zero = LIPSCHITZ[name]
    assert constant == pytest.approx(max(slope(grid), -best.fun), rel=1e-4)
    assert constant >= max(slope(grid), -best.fun) * (1 - 1e-6)
    assert float(function(torch.zeros(()))) == pytest.approx(at_zero)


def test_the_tanh_form_of_gelu_is_no_steeper():
    x = torch.linspace(-6, 6, 100_001, dtype=torch.float64, requires_grad=True)
    nn.functional.gelu(x, approximate="tanh").sum().backward()
    assert float(x.grad.abs().max()) <= LIPSCHITZ["Gelu"][0]


@pytest.mark.parametrize("name", ["plain", "residual", "fork", "biased"])
def test_the_polynomial_in_eta_is_the_change_at_equal_relative_sizes(name):
    build, shape = NETWORKS[name]
    bound = perturbation_bound(build(), inputs(shape, 0).float(), sizes="prescribed")
    for eta in (0.01, 0.5, 3.0):
        value = np.polynomial.polynomial.polyval(eta, bound.coefficients().numpy())
        sizes = {name: eta * share for name, share in bound.shares.items()}
        assert value == pytest.approx(bound.change(sizes), rel=1e-6)


def test_every_layer_without_a_bound_is_named():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Softmax(1), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False))
    with pytest.raises(UnboundedError, match=r"Softmax.*BatchNorm1d") as caught:
        perturbation_bound(model)
    assert list(caught.value.names) == ["1", "2"]


class Raw(nn.Module):
    """A stack of `nn.Linear`, with its weights as raw parameters and `spelling` for the layers."""

    def __init__(self, layers, spelling, store):
        super().__init__()
        self.weights = nn.ParameterList(store(layer.weight.detach().clone()) for layer in layers)
        self.biases = nn.ParameterList(layer.bias.detach().clone() for layer in layers)
        self.spelling = spelling

    def forward(self, x):
        for i in range(3):
            x = self.spelling(x, self.weights[i], self.biases[i])
            x = torch.relu(x) if i < 2 else x
        return x


SPELLINGS = {
    "F.linear": (lambda x, w, b: nn.functional.linear(x, w, b), lambda w: w),
    "x @ W.T + b": (lambda x, w, b: x @ w.T + b, lambda w: w),
    "x @ W + b": (lambda x, w, b: b + x @ w, lambda w: w.T.contiguous()),
    "einsum": (lambda x, w, b: torch.einsum("bi,oi->bo", x, w) + b, lambda w: w),
    "addmm": (lambda x, w, b: torch.addmm(b, x, w), lambda w: w.T.contiguous()),
    "W @ column + b": (lambda x, w, b: (w @ x.unsqueeze(-1)).flatten(1) + b, lambda w: w),
}


@pytest.mark.parametrize("sizes", ["measured", "prescribed"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_a_network_of_raw_parameters_has_the_bound_of_its_layers(name, sizes):
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)])
    for layer in layers if sizes == "prescribed" else ():  # as `initialise_` has a bias that it knows
        nn.init.zeros_(layer.bias)
    x = inputs((4,), 0).float()
    expected = perturbation_bound(nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]), x, sizes=sizes)
    found = perturbation_bound(Raw(layers, *SPELLINGS[name]), x, sizes=sizes)
    assert found.size == pytest.approx(expected.size)
    assert found.change(0.1) == pytest.approx(expected.change(0.1))
    assert sorted(found.shares.values()) == pytest.approx(sorted(expected.shares.values()))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: torch.einsum("bti,io->bo", x.view(-1, 1, 8).repeat(1, 2, 1), w),  # adds up positions too
        lambda x, w: x * w.sum(),
        lambda x, w: w @ x,  # mixes samples
        lambda x, w: torch.einsum("oi,io->io", w, x),
        lambda x, w: torch.addmm(w[0], x, w, alpha=2.0),
        lambda x, w: x + w[0],
        lambda x, w: x @ (2 * w),
        lambda x, w: x @ w.view(1, 64).expand(8, 64),
        lambda x, w: x + w,  # another for each sample
        lambda x, w: torch.softmax(w, 0)[0] * x,
    ],
)
def test_other_uses_of_a_raw_parameter_have_no_bound(function):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 8, bias=False)
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x):
            return function(self.first(x), self.weight)

    with pytest.raises(UnboundedError):
        perturbation_bound(Model(), inputs((4,), 0, rows=8).float())


def test_a_forward_that_depends_on_the_numbers_of_its_input_has_no_bound():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            return self.weight(x) if x.sum() > 0 else x

    with pytest.raises(UnboundedError, match="does not run on an input without numbers"):
        perturbation_bound(Outer())


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x * x, "constant|no bound"),
        (lambda x: x + 1, "neither a value of the network"),
        (lambda x: torch.cat([x, x]), "batch dimension"),
        (lambda x: x.mean(0), "batch dimension"),
        (lambda x: torch.softmax(x, 1), "no bound is known"),
        (lambda x: 2 / x, r"no bound is known \(Reciprocal in Model\)"),
        (lambda x: x * x.detach().mean(), "constant"),
        (lambda x: x / x.detach().norm(dim=1, keepdim=True), "constant"),
        (lambda x: x.t().contiguous().view(-1, 4), "batch dimension"),
        (lambda x: x[:2] + x[2:], "batch dimension"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "it rounds"),
    ],
)
def test_functions_without_a_bound_are_named(function, why):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            return function(self.first(x))

    with pytest.raises(UnboundedError, match=why):
        perturbation_bound(Model(), torch.ones(4, 4))


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (lambda x: nn.functional.leaky_relu(x, 7.0), 7.0),
        (lambda x: torch.sub(x, x.relu(), alpha=2), 3.0),
        (lambda x: x.view(-1, 2, 2).transpose(1, 2).flatten(1) if x.shape[1] > 3 else x * x, 1.0),
        (lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), math.sqrt(2)),
        (lambda x: nn.functional.avg_pool1d(x, 2), math.sqrt(2) / math.sqrt(2)),
        (lambda x: x * -5.0 / 2, 2.5),
        (lambda x: torch.stack([x, x]).permute(1, 0, 2).mean(1), 1.0),
    ],
)
def test_functions_are_bounded_by_their_settings(function, size):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            return function(self.first(x))

    assert perturbation_bound(Model(), sizes="prescribed").size == pytest.approx(size)


def test_a_frozen_parameter_has_no_share_and_agd_agrees_on_the_rest():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    model[2].requires_grad_(False)
    shares = perturbation_bound(model).shares
    x = inputs((4,), 0).float()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = AGD(model)
    model(x).square().mean().backward()
    optimiser.step()
    for role in read_roles(model):
        step = (role.parameter.detach() - before[role.name]).norm() / role.atom.scale
        assert float(step) == pytest.approx(shares.get(role.name, 0.0) * float(optimiser.learning_rate), rel=1e-4)


def test_the_modes_of_training_are_left_as_they_were():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Dropout(0.5), nn.Linear(4, 4, bias=False))
    model[1].eval()
    perturbation_bound(model)
    assert [module.training for module in model] == [True, False, True]
    assert model.training


def test_an_output_that_does_not_depend_on_the_input_has_no_bound():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            return self.first(x.detach())

    with pytest.raises(UnboundedError, match="does not depend on its input"):
        perturbation_bound(Model(), torch.ones(2, 4))


def test_a_lazy_model_is_refused_by_name_and_still_works():
    model = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(UnboundedError, match="it is lazy"):
        perturbation_bound(model, torch.ones(2, 5))
    assert model(torch.ones(2, 5)).shape == (2, 4)


def test_what_a_model_keeps_is_left_as_it_was():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.seen, self.last = [], None
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls += 1
            self.last = self.first(x)
            self.seen.append(self.last)
            return self.last

    model = Model()
    perturbation_bound(model, torch.ones(2, 4))
    assert (model.seen, model.last, float(model.calls)) == ([], None, 0)
