"""Unit directions, and the polar factor that is one of them."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from autogd.engine.distributed.polar import orthogonalise as rational
from autogd.engine.groups import check_geometry
from autogd.geometry.direction import GEOMETRIES, unit_direction
from autogd.geometry.polar import RESTARTS, ROUNDED, _directly, _room, _through_gram, orthogonalise
from autogd.reading.catalogue import read_roles

REACH = 265


def spectrum(values, rows, columns, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rank = len(values)
    left = torch.linalg.qr(torch.randn(batch, rows, rank, dtype=torch.float64, generator=generator))[0]
    right = torch.linalg.qr(torch.randn(batch, columns, rank, dtype=torch.float64, generator=generator))[0]
    return (left * values) @ right.mT, left, right


@pytest.mark.parametrize("shape", [(24, 24), (24, 100), (100, 24), (24, 30)])
def test_singular_values_within_reach_come_out_near_one_and_their_vectors_stay(shape):
    # one large value and the rest just within reach of it: the 8-norm is then the large one
    values = torch.full((24,), 1.01 / REACH, dtype=torch.float64)
    values[0] = 1.0
    values[1:6] = torch.linspace(0.02, 0.5, 5, dtype=torch.float64)
    matrices, left, right = spectrum(values, *shape)
    got = left.mT @ orthogonalise(1e-6 * matrices) @ right
    assert (got.diagonal(dim1=-2, dim2=-1) - 1).abs().max() < 0.145
    assert (got - torch.diag_embed(got.diagonal(dim1=-2, dim2=-1))).abs().max() < 1e-9


def test_a_singular_value_out_of_reach_comes_out_smaller_in_proportion():
    values = torch.tensor([1.0, 1e-5, 1e-6], dtype=torch.float64)
    matrices, left, right = spectrum(values, 3, 5)
    got = (left.mT @ orthogonalise(matrices) @ right).diagonal(dim1=-2, dim2=-1)[0]
    assert 0 < got[1] < 0.01
    torch.testing.assert_close(got[1] / got[2], torch.tensor(10.0, dtype=torch.float64), rtol=1e-3, atol=0)


def test_a_batch_equals_its_matrices_alone():
    matrices = torch.randn(3, 70, 40, dtype=torch.float64)
    alone = torch.stack([orthogonalise(matrix.unsqueeze(0))[0] for matrix in matrices])
    torch.testing.assert_close(orthogonalise(matrices), alone)


def test_zero_stays_zero_and_huge_and_tiny_matrices_do_no_harm():
    matrices = torch.stack([torch.zeros(4, 6), 1e15 * torch.eye(4, 6), 1e-15 * torch.eye(4, 6)])
    got = orthogonalise(matrices)
    assert torch.equal(got[0], torch.zeros(4, 6))
    assert torch.isfinite(got).all()
    assert (got[1:] - torch.eye(4, 6)).abs().max() < 0.145


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [(48, 48), (96, 96), (48, 200), (200, 48)])
def test_products_in_float16_leave_singular_values_near_one(shape, seed):
    values = torch.logspace(0, -3, 48, dtype=torch.float64)
    matrices, left, right = spectrum(values, *shape, seed=seed)
    rounded = orthogonalise(1e-6 * matrices.float(), products=torch.float16)
    assert rounded.dtype == torch.float32
    got = (left.mT @ rounded.double() @ right).diagonal(dim1=-2, dim2=-1)[0]
    assert (got[values > 1 / 50] - 1).abs().max() < 0.155
    assert (got[values > 1 / 200] - 1).abs().max() < 0.2
    assert torch.linalg.matrix_norm(rounded, 2).max() < 1.16


@pytest.mark.parametrize("products", [torch.float16, torch.bfloat16])
def test_a_random_matrix_does_not_grow_in_half_precision(products):
    # the unrounded coefficients take this one to 2.6: their values between the peaks drown in rounding
    torch.manual_seed(0)
    assert torch.linalg.matrix_norm(orthogonalise(torch.randn(4, 128, 128), products=products), 2).max() < 1.2
    zero = orthogonalise(torch.zeros(1, 8, 8), products=products)
    assert torch.equal(zero, torch.zeros(1, 8, 8))


@pytest.mark.parametrize("side", [2**power for power in range(19)])
def test_the_square_of_a_gram_of_any_side_fits_into_float16(side):
    # the worst case: all of the norm in one row, rounded up to the bound; then the square has one number
    row = torch.tensor([[2.0 ** _room(side)]], dtype=torch.float16)
    gram = row @ row.mH
    assert torch.isfinite(gram @ gram).all()


@pytest.mark.parametrize("rank", [1, 5, 20, 48])
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_matrix_in_float16_comes_out_near_one_through_its_gram_as_directly(rank, seed):
    values = torch.cat([torch.logspace(0, -1.5, rank), torch.zeros(48 - rank)]).double()
    matrices, left, right = spectrum(values, 48, 200, seed=seed)
    x = (matrices / torch.linalg.matrix_norm(matrices, keepdim=True)).to(torch.float16)
    for way in (partial(_through_gram, restarts=RESTARTS), _directly):
        got = left.mT @ way(x.clone(), ROUNDED).double() @ right
        assert (got.diagonal(dim1=-2, dim2=-1)[0, :rank] - 1).abs().max() < 0.155
        assert torch.linalg.matrix_norm(got, 2).max() < 1.16  # what rounding leaves of a zero does not grow


@pytest.mark.parametrize(("columns", "share"), [(512, 0.9), (1024, 0.723), (4096, 0.561)])
def test_the_gram_spares_multiplications_on_an_accelerator(columns, share):
    with FlopCounterMode(display=False) as counted:
        orthogonalise(torch.empty(3, 256, columns, device="meta"))
    with FlopCounterMode(display=False) as directly:
        _directly(torch.empty(3, 256, columns, device="meta", dtype=torch.float16), ROUNDED)
    assert counted.get_total_flops() <= share * directly.get_total_flops()


def test_on_an_accelerator_all_of_it_runs():
    assert orthogonalise(torch.empty(2, 64, 200, device="meta")).shape == (2, 64, 200)
    assert orthogonalise(torch.empty(2, 64, 200, device="meta")).dtype == torch.float32


@pytest.mark.parametrize("shape", [(24, 24), (24, 100), (70, 90), (130, 300)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_inverses_take_singular_values_within_reach_near_one(shape, dtype):
    values = torch.full((shape[0],), 1.1 / 392, dtype=torch.float64)
    values[0] = 1.0
    values[1:6] = torch.linspace(0.02, 0.1, 5, dtype=torch.float64)
    matrices, left, right = spectrum(values, *shape)
    x = (matrices / torch.linalg.matrix_norm(matrices, keepdim=True)).to(dtype)
    got = left.mT @ rational(x).double() @ right
    assert (got.diagonal(dim1=-2, dim2=-1) - 1).abs().max() < 0.145
    off = got - torch.diag_embed(got.diagonal(dim1=-2, dim2=-1))
    assert off.abs().max() < (1e-9 if dtype == torch.float64 else 0.02)


def test_a_matrix_without_a_factor_keeps_its_direction(monkeypatch):
    x = torch.randn(2, 30, 30)
    x /= torch.linalg.matrix_norm(x, keepdim=True)
    expected = rational(x[:1])
    original = torch.linalg.cholesky_ex

    def fails(matrices):
        factors, _ = original(matrices)
        factors[1] = torch.nan
        return factors, torch.tensor([0, 3])

    monkeypatch.setattr(torch.linalg, "cholesky_ex", fails)
    got = rational(x)
    torch.testing.assert_close(got[:1], expected)
    torch.testing.assert_close(got[1] / torch.linalg.matrix_norm(got[1]), x[1])


@pytest.mark.parametrize("shape", [(20, 20), (20, 60), (60, 20), (260, 260)])
@pytest.mark.parametrize(("dtype", "sizes"), [(torch.float32, (1e-42, 1e-25, 1e30)), (torch.float64, (1e-200, 1e200))])
def test_very_small_and_very_large_numbers_have_directions_too(shape, dtype, sizes):
    torch.manual_seed(0)
    matrices = torch.randn(1, *shape, dtype=dtype)
    for size in sizes:
        got, expected = orthogonalise(size * matrices), orthogonalise(matrices)
        loose = 0.3 if size < torch.finfo(dtype).tiny else 1e-3  # what is below has few digits
        torch.testing.assert_close(got, expected, rtol=0, atol=loose)
    assert torch.isfinite(orthogonalise(torch.full((1, *shape), 1e-45, dtype=dtype))).all()


@pytest.mark.parametrize("way", [orthogonalise, rational])
@pytest.mark.parametrize("n", [64, 256])
def test_both_ways_reach_as_far_on_flat_spectra(n, way):
    values = torch.cat([torch.ones(n // 2), torch.logspace(0, -2, n - n // 2)]).double()
    matrices, left, right = spectrum(values, n, n)
    got = way(matrices.float())
    assert ((left.mT @ got.double() @ right).diagonal(dim1=-2, dim2=-1) - 1).abs().max() < 0.145


LAYERS = {
    "matrix": lambda: nn.Linear(9, 14),
    "packed matrices": lambda: nn.MultiheadAttention(12, 2),
    "gates": lambda: nn.LSTM(6, 7),
    "kernel": lambda: nn.Conv2d(5, 8, 3),
    "grouped kernel": lambda: nn.Conv1d(12, 18, 3, groups=3),
    "transposed kernel": lambda: nn.ConvTranspose2d(8, 6, 2, groups=2),
    "bilinear": lambda: nn.Bilinear(5, 4, 3),
    "embedding": lambda: nn.Embedding(11, 6),
    "gain": lambda: nn.LayerNorm(7),
    "slopes": lambda: nn.PReLU(5),
}
EVERY_ATOM = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
ERROR = {"frobenius": 0.0, "spectral": 0.145}  # of the operator norm


def tensors(layer):
    """For each parameter of a layer a random tensor with singular values that fall, and its atom."""
    generator = torch.Generator().manual_seed(0)
    for role in read_roles(layer):
        yield torch.randn(role.parameter.shape, generator=generator, dtype=torch.float64), role.atom


@pytest.mark.parametrize("geometry", GEOMETRIES)
@EVERY_ATOM
def test_every_part_comes_out_at_size_one(layer, geometry):
    for tensor, atom in tensors(layer()):
        turned = unit_direction(tensor, atom, geometry)
        assert turned.shape == tensor.shape
        parts = atom.matrices(turned)
        norms = torch.linalg.matrix_norm(parts, "fro" if geometry == "frobenius" else 2)
        torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=ERROR[geometry] + 1e-12)


@EVERY_ATOM
def test_slopes_are_the_dual_norms(layer):
    for tensor, atom in tensors(layer()):
        parts = atom.matrices(tensor)
        values = torch.linalg.svdvals(parts)
        expected = {
            "frobenius": values.square().sum(1).sqrt(),
            "spectral": values.sum(1),  # the nuclear norm
        }
        for geometry, norm in expected.items():
            turned = unit_direction(tensor, atom, geometry)
            slopes = (atom.matrices(turned) * parts).sum((1, 2))
            torch.testing.assert_close(slopes, norm, rtol=ERROR[geometry] + 1e-12, atol=0)


@EVERY_ATOM
def test_directions_of_vectors_are_the_same_in_every_geometry(layer):
    for tensor, atom in tensors(layer()):
        if atom.fan_in == 1 or atom.fan_out == 1:
            exact = unit_direction(tensor, atom, "frobenius")
            assert all(torch.equal(unit_direction(tensor, atom, name), exact) for name in GEOMETRIES)


@EVERY_ATOM
def test_no_direction_of_the_same_operator_norm_has_a_larger_slope_than_the_spectral_one(layer):
    generator = torch.Generator().manual_seed(1)
    for tensor, atom in tensors(layer()):
        parts = atom.matrices(tensor)

        def slopes(directions, parts=parts):
            sizes = torch.linalg.matrix_norm(directions, 2)
            return (directions * parts).sum((-2, -1)) / sizes

        best = slopes(atom.matrices(unit_direction(tensor, atom, "spectral")))
        u, _, vh = torch.linalg.svd(parts, full_matrices=False)
        # around the gradient itself and around the polar factor, which is found to within 14.5% of each singular value
        for centre, share in ((torch.zeros_like(parts), 1.0), (parts, 0.855 / 1.145), (u @ vh, 0.855 / 1.145)):
            for spread in (0.0, 0.3, 1.0, 3.0) if centre.any() else (1.0,):
                noise = torch.randn(200, *parts.shape, generator=generator, dtype=torch.float64)
                assert (slopes(centre + spread * noise) * share <= best * (1 + 1e-9)).all()


def test_a_zero_part_stays_zero_and_takes_no_other_with_it():
    layer = nn.Conv1d(4, 6, 3)
    (role,) = (r for r in read_roles(layer) if r.atom.kind == "kernel")
    tensor = torch.randn(6, 4, 3)
    tensor[:, :, 1] = 0
    for geometry in GEOMETRIES:
        turned = unit_direction(tensor, role.atom, geometry)
        assert torch.equal(turned[:, :, 1], torch.zeros(6, 4))
        assert turned[:, :, [0, 2]].any()


def test_a_geometry_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="geometry: 'nuclear' is not known; use one of 'frobenius', 'spectral'"):
        check_geometry("nuclear")
