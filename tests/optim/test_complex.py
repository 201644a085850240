"""Complex parameters: norms and polar factors of the complex matrices themselves, and one step for every spelling."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import autogd
from autogd import AGD, StochasticAGD, explain, initialise_
from autogd.geometry.complex import as_real, from_rows, to_rows
from autogd.geometry.norms import operator_norm
from autogd.geometry.polar import orthogonalise
from autogd.reading.initialise import measured_sizes

D, H, OUT, STEPS = 6, 8, 3, 8
SETTINGS = [
    (AGD, {}), (AGD, {"geometry": "spectral"}), (AGD, {"averaging": True}), (AGD, {"weight_decay": 0.5}),
    (StochasticAGD, {}), (StochasticAGD, {"geometry": "frobenius"}), (StochasticAGD, {"sizes": "measured"}),
]  # fmt: skip
EVERY_SETTING = pytest.mark.parametrize(("optimiser_class", "settings"), SETTINGS, ids=lambda value: str(value))


def drawn(*shape, seed=0, dtype=torch.complex128):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def block(matrices):
    """The real matrices that act as complex ones do on real and imaginary parts."""
    a, b = matrices.real, matrices.imag
    return torch.cat([torch.cat([a, -b], -1), torch.cat([b, a], -1)], -2)


@pytest.mark.parametrize("shape", [(9, 9), (9, 20), (20, 9), (5, 30)])
@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64])
def test_the_polar_factor_has_the_singular_vectors_of_the_matrix(shape, dtype):
    matrix = drawn(2, *shape).to(dtype)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    found = orthogonalise(matrix)
    near_one = u.mH @ found @ vh.mH
    rounding = 1e-9 if dtype == torch.complex128 else 1e-3
    assert (near_one.diagonal(dim1=-2, dim2=-1) - 1).abs().max() < 0.145
    assert (near_one - torch.diag_embed(near_one.diagonal(dim1=-2, dim2=-1))).abs().max() < rounding


def test_the_polar_factor_of_the_real_matrix_that_acts_alike_is_the_same_one():
    matrix = drawn(3, 7, 12)
    torch.testing.assert_close(block(polar_by_svd(matrix)), polar_by_svd(block(matrix)), rtol=0, atol=1e-10)


def polar_by_svd(matrix):
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    return u @ vh


def test_rows_by_turns_and_complex_matrices_are_the_same_numbers():
    matrices = drawn(2, 3, 4)
    assert torch.equal(from_rows(to_rows(matrices)), matrices)
    assert torch.equal(to_rows(matrices)[:, 0], matrices[:, 0].real)
    assert torch.equal(to_rows(matrices.mH), to_rows(matrices.mH.resolve_conj()))


@pytest.mark.parametrize("geometry", ["frobenius", "spectral"])
def test_the_slope_of_a_step_is_the_dual_norm_of_the_complex_gradient(geometry):
    weight = nn.Parameter(drawn(4, 5, seed=1))
    optimiser = AGD(nn.ParameterList([weight]), geometry=geometry, atoms={"0": autogd.atoms.matrix})
    weight.grad = drawn(4, 5, seed=2)
    before = weight.detach().clone()
    optimiser.step()
    values = torch.linalg.svdvals(weight.grad)
    scale = math.sqrt(4 / 5)
    dual = values.square().sum().sqrt() if geometry == "frobenius" else values.sum()
    assert float(optimiser.gradient_summary) == pytest.approx(
        scale * float(dual), rel=1e-12 if len(geometry) > 8 else 0.1
    )
    direction = (before - weight.detach()) / optimiser.learning_rate / scale
    slope = float((direction.conj() * weight.grad).sum().real)
    assert slope == pytest.approx(float(dual), rel=1e-12 if geometry == "frobenius" else 0.1)
    if geometry == "frobenius":
        torch.testing.assert_close(direction, weight.grad / values.square().sum().sqrt())
    else:
        polar = polar_by_svd(weight.grad)
        assert torch.linalg.svdvals(direction - polar * (direction.abs().sum() / polar.abs().sum())).max() < 0.25


@EVERY_SETTING
def test_a_step_against_the_gradient_lowers_the_loss(optimiser_class, settings):
    weight, target = nn.Parameter(drawn(4, 5, seed=1)), drawn(4, 5, seed=2)
    optimiser = optimiser_class(nn.ParameterList([weight]), atoms={"0": autogd.atoms.matrix}, **settings)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        loss = (weight - target).abs().square().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    assert all(later < before for before, later in itertools.pairwise(losses[:5]))


class Network(nn.Module):
    """Two complex layers and a real readout; `store` makes parameters of a weight, `take` a weight of those."""

    def __init__(self, store, take):
        super().__init__()
        first, second = drawn(H, D, seed=1) / 4, drawn(D, H, seed=2)  # the second above the size that it is held at
        self.first, self.second = (nn.ParameterList(map(nn.Parameter, store(w))) for w in (first, second))
        self.take = take
        self.last = nn.Linear(2 * D, OUT, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.last.weight.copy_(drawn(OUT, 2 * D, seed=3, dtype=torch.float64))

    def forward(self, x):
        z = torch.complex(x, x.flip(-1)) @ self.take(*self.first).mT
        z = torch.complex(torch.tanh(z.real), torch.tanh(z.imag))
        return self.last(torch.view_as_real(z @ self.take(*self.second).mT).flatten(1))


def same(w):
    return w


# how a complex weight (out × in) is stored, and what is made of that
SPELLINGS = {
    "a complex parameter": (lambda w: [w], same),
    "conjugated": (lambda w: [w.conj().resolve_conj()], torch.conj),
    "the adjoint": (lambda w: [w.mH.resolve_conj().contiguous()], lambda w: w.mH),
    "turned by a quarter": (lambda w: [w / 1j], lambda w: w * 1j),
    "its parts, joined": (lambda w: [w], lambda w: torch.complex(w.real, w.imag)),
    "viewed as real and back": (lambda w: [w], lambda w: torch.view_as_complex(torch.view_as_real(w))),
    "a real parameter, viewed": (lambda w: [torch.view_as_real(w).clone()], torch.view_as_complex),
    "a real parameter, parts in front": (
        lambda w: [torch.view_as_real(w).movedim(-1, 0).contiguous()],
        lambda w: torch.view_as_complex(w.movedim(0, -1).contiguous()),
    ),
    "a stack of one": (lambda w: [w[None]], lambda w: w[0]),
}


def data():
    x, y = (drawn(STEPS, 10, n, seed=4 + n, dtype=torch.float64) for n in (D, OUT))
    return list(zip(x, y, strict=True))


def train(model, optimiser_class, **settings):
    optimiser = optimiser_class(model, **settings)
    for x, y in data():
        optimiser.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimiser.step()
    return optimiser


def outputs(model):
    return torch.cat([model(x) for x, _ in data()]).detach()


@pytest.mark.parametrize("optimiser_class", [AGD, StochasticAGD])
@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_takes_the_same_steps(name, optimiser_class):
    reference, spelt = Network(*SPELLINGS["a complex parameter"]), Network(*SPELLINGS[name])
    start = outputs(reference)
    torch.testing.assert_close(outputs(spelt), start, rtol=0, atol=1e-12)
    train(reference, optimiser_class)
    train(spelt, optimiser_class)
    assert (outputs(reference) - start).abs().max() > 0.1
    torch.testing.assert_close(outputs(spelt), outputs(reference), rtol=0, atol=1e-10)


def test_two_real_parameters_are_two_matrices_of_their_own():
    model = Network(lambda w: [w.real.clone(), w.imag.clone()], torch.complex)
    rows = explain(model, data()[0][0]).rows
    assert [(row.atom, row.matrices, row.source) for row in rows[:2]] == [("matrix", f"1 of {H} × {D}", "graph")] * 2


@EVERY_SETTING
def test_the_fast_backend_does_what_the_reference_does(optimiser_class, settings):
    models = [Network(*SPELLINGS["a complex parameter"]) for _ in range(2)]
    for model, foreach in zip(models, (None, False), strict=True):
        optimiser = train(model, optimiser_class, foreach=foreach, **settings)
        assert type(next(iter(optimiser._backends.values()))).__name__ == (
            "SingleTensor" if foreach is False else "Foreach"
        )
    torch.testing.assert_close(outputs(models[0]), outputs(models[1]), rtol=0, atol=1e-10)


@EVERY_SETTING
def test_a_resumed_run_takes_the_same_steps_and_the_average_is_swapped_exactly(optimiser_class, settings):
    model = Network(*SPELLINGS["a complex parameter"])
    optimiser = train(model, optimiser_class, **settings)
    before = [p.detach().clone() for p in model.parameters()]
    with optimiser.averaged():
        inside = [p.detach().clone() for p in model.parameters()]
        assert all(p.dtype == q.dtype for p, q in zip(inside, before, strict=True))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert (inside[0] == before[0]).all() == (not optimiser._averaging)
    twin = copy.deepcopy(model)
    again = optimiser_class(twin, **settings)
    again.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    for each, step in ((model, optimiser), (twin, again)):
        for x, y in data():
            step.zero_grad()
            F.mse_loss(each(x), y).backward()
            step.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))


def test_the_start_is_semi_unitary_at_the_size_of_the_theory():
    model = initialise_(Network(*SPELLINGS["a complex parameter"]), data()[0][0], torch.Generator().manual_seed(0))
    wide, tall = model.first[0].detach(), model.second[0].detach()
    torch.testing.assert_close(wide.mH @ wide, torch.eye(D, dtype=wide.dtype) * H / D)
    torch.testing.assert_close(tall @ tall.mH, torch.eye(D, dtype=wide.dtype) * D / H)
    assert wide.imag.std() == pytest.approx(float(wide.real.std()), rel=0.3)
    rows = explain(model, data()[0][0]).rows
    assert [(row.stored, row.source) for row in rows[:2]] == [("out × in × re/im", "graph")] * 2
    assert [row.size for row in rows[:2]] == pytest.approx([row.target for row in rows[:2]])


def test_sizes_are_singular_values_of_the_complex_matrix():
    layer = nn.Linear(5, 4, bias=False, dtype=torch.complex128)
    (role,) = autogd.reading.catalogue.read_roles(layer)
    largest = float(torch.linalg.svdvals(layer.weight.detach())[0])
    assert float(operator_norm(layer.weight, role.atom)) == pytest.approx(largest)
    assert measured_sizes([role])[layer.weight] == pytest.approx(largest)


@pytest.mark.filterwarnings("ignore:.*told from shape alone")
def test_a_gradient_that_is_not_finite_is_named_and_a_conjugated_one_is_taken():
    weight = nn.Parameter(drawn(3, 2))
    optimiser = StochasticAGD([("weight", weight)])
    weight.grad = torch.full((3, 2), complex(0, math.nan), dtype=weight.dtype)
    with pytest.raises(ValueError, match="weight: its gradient is not finite"):
        optimiser.step()
    other = nn.Parameter(weight.detach().clone())
    twin = StochasticAGD([("weight", other)])
    weight.grad, other.grad = drawn(3, 2, seed=1).conj(), drawn(3, 2, seed=1).conj().resolve_conj()
    optimiser.step()
    twin.step()
    assert torch.equal(weight, other)
    assert as_real(weight.grad).shape == (3, 2, 2)


class Spectral(nn.Module):
    """One complex matrix for each of the lowest frequencies of a signal, as Fourier neural operators have them."""

    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(width, width, modes, dtype=torch.complex64) / width)

    def forward(self, x):
        low = torch.einsum("bim,iom->bom", torch.fft.rfft(x)[..., : self.modes], self.weight)
        return torch.fft.irfft(low, n=x.shape[-1])


class FourierOperator(nn.Module):
    def __init__(self, width=16, modes=6, layers=3):
        super().__init__()
        self.lift, self.drop = nn.Conv1d(2, width, 1), nn.Conv1d(width, 1, 1)
        self.spectral = nn.ModuleList(Spectral(width, modes) for _ in range(layers))
        self.skip = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))

    def forward(self, x):
        h = self.lift(x)
        for spectral, skip in zip(self.spectral, self.skip, strict=True):
            h = F.gelu(spectral(h) + skip(h))
        return self.drop(h)


def drop_of(model, optimiser, x, y):
    losses = []
    for _ in range(31):
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        losses.append(float(loss.detach()))
        optimiser.step()
    return losses[0] - losses[-1]


def test_a_fourier_neural_operator_gets_as_far_as_adam():
    torch.manual_seed(0)
    model = FourierOperator()
    x = torch.randn(8, 2, 32)
    y = torch.cumsum(x[:, :1], -1) / 4
    rows = {row.parameter: row for row in explain(model, x).rows}
    assert rows["spectral.0.weight"].matrices == "6 of 16 × 16"
    assert rows["spectral.0.weight"].stored == "in × out × 6 × re/im"
    adams = []
    for lr in (1e-3, 1e-2, 3e-2):
        twin = copy.deepcopy(model)
        adams.append(drop_of(twin, torch.optim.Adam(twin.parameters(), lr=lr), x, y))
    assert drop_of(model, StochasticAGD(model), x, y) > 0.8 * max(adams)


@pytest.mark.parametrize("optimiser", [AGD, StochasticAGD])
def test_a_complex_weight_that_was_given_other_memory_still_moves(optimiser):
    model = nn.Linear(3, 3, bias=False, dtype=torch.complex64)
    weight, stepper = model.weight, optimiser(model)
    for _ in range(2):
        weight.grad = torch.randn_like(weight)
        stepper.step()
        weight.data = weight.data.clone()
        before = weight.detach().clone()
    weight.grad = torch.randn_like(weight)
    stepper.step()
    assert (weight - before).abs().min() > 0


@pytest.mark.parametrize("optimiser_class", [AGD, StochasticAGD])
def test_a_conjugate_view_is_refused_by_name(optimiser_class):
    # its real view would be a copy, and steps would be lost
    weight = nn.Parameter(drawn(4, 5).conj())
    optimiser = optimiser_class(nn.ParameterList([weight]), atoms={"0": autogd.atoms.matrix})
    weight.grad = drawn(4, 5, seed=1)
    with pytest.raises(ValueError, match=r"^0: a conjugate view.*resolve_conj"):
        optimiser.step()
