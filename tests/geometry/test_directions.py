"""Directions of unit size, on every kind of atom, beside exact singular values."""

import pytest
import torch
from torch import nn

from autogd.engine.groups import check_geometry
from autogd.geometry.direction import GEOMETRIES, unit_direction
from autogd.reading.catalogue import read_roles

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
