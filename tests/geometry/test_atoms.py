"""Every atom: its direction has unit norm and attains its dual norm, and activations keep their size at the start."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from autogd import AGD, atoms, explain, initialise_, register_atom
from autogd.engine.distributed.pieces import Piece
from autogd.geometry.norms import frobenius
from autogd.reading.catalogue import read_roles
from autogd.reading.others import experts, lora_in, lora_out

sizes = st.integers(1, 5)


@st.composite
def tensors_with_atoms(draw):
    """A random tensor and an atom that covers it, of every kind in the catalogue."""
    a, b, c, k, g = (draw(sizes) for _ in range(5))
    conv = nn.Conv2d(g * a, g * b, (k, c), groups=g)
    up = nn.ConvTranspose1d(g * a, g * b, k, groups=g)
    choices = {
        "matrix": ((a, b), atoms.matrix, None),
        "stacked": ((g * a, b), lambda w, m: atoms.matrix(w, stack=g), None),
        "transposed stack": ((a, g * b), lambda w, m: atoms.matrix(w, stack=g, transposed=True), None),
        "kernel": (conv.weight.shape, atoms.kernel, conv),
        "transposed kernel": (up.weight.shape, atoms.kernel, up),
        "bilinear": ((a, b, c), atoms.bilinear, None),
        "embedding": ((a, b), atoms.embedding, None),
        "token": ((1, a, b), atoms.token, None),
        "bias": ((a,), atoms.bias, None),
        "stacked bias": ((g * a,), lambda w, m: atoms.bias(w, stack=g), None),
        "gain": ((a, b), atoms.gain, None),
        "scalars": ((), atoms.scalars, None),
        "experts": ((a, g * b, c), lambda w, m: experts(w, stack=g), None),
        "lora in": ((a, b), lora_in, None),
        "lora out": ((a, b), lora_out, None),
    }
    shape, rule, module = choices[draw(st.sampled_from(sorted(choices)))]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    tensor = torch.randn(shape, generator=generator, dtype=torch.float64)
    return tensor, rule(tensor, module)


def parts_one_by_one(tensor, atom):
    """The parts as a list of matrices, by explicit indexing: an oracle for every reshaping in the package."""
    view = tensor.reshape(atom.shape)
    found = []
    for place in itertools.product(*[range(atom.shape[d]) for d in atom.grid]):
        index = [slice(None)] * len(atom.shape)
        for d, i in zip(atom.grid, place, strict=True):
            index[d] = i
        found.append(view[tuple(index)])
    return found


@given(case=tensors_with_atoms())
def test_the_direction_has_unit_norm_and_attains_the_dual_norm(case):
    grad, atom = case
    parameter = nn.Parameter(torch.zeros_like(grad))
    parameter.grad = grad
    optimiser = AGD(nn.ParameterList([parameter]), atoms={"0": lambda w, m: atom})
    optimiser.step()
    eta, G = float(optimiser.learning_rate), float(optimiser.gradient_summary)
    # undo η and the share of the depth, and see what is left: one unit in each part's own norm
    direction = -parameter.detach() / (eta * atom.depth_share / atom.depth)
    norms = torch.stack([part.norm() / atom.scale for part in parts_one_by_one(direction, atom)])
    assert torch.allclose(norms, torch.ones_like(norms), rtol=1e-9)
    dual = atom.scale * sum(float(part.norm()) for part in parts_one_by_one(grad, atom))
    assert float((direction * grad).sum()) == pytest.approx(dual, rel=1e-9)
    assert atom.depth_share / atom.depth * dual == pytest.approx(G, rel=1e-9)


@given(case=tensors_with_atoms())
def test_parts_cover_the_tensor_once(case):
    tensor, atom = case
    assert sum(part.numel() for part in parts_one_by_one(tensor, atom)) == tensor.numel()
    norms = torch.stack([part.norm() for part in parts_one_by_one(tensor, atom)])
    assert torch.allclose(frobenius(tensor, atom), norms)
    assert atom.cut(tensor).data_ptr() == tensor.data_ptr()
    batch = atom.matrices(tensor)
    assert batch.shape == (atom.parts, atom.fan_out, atom.fan_in)
    assert torch.allclose(batch.flatten(1).norm(dim=1), norms)


@given(case=tensors_with_atoms(), data=st.data())
def test_slices_of_a_tensor_add_up_to_the_whole(case, data):
    tensor, atom = case
    if tensor.dim() == 0:
        return
    dim = data.draw(st.integers(0, tensor.dim() - 1))
    cut = data.draw(st.integers(0, tensor.shape[dim]))
    shape = tuple(tensor.shape)
    pieces = [tensor.narrow(dim, 0, cut), tensor.narrow(dim, cut, shape[dim] - cut)]
    runs = [(range(cut),), (range(cut, shape[dim]),)]
    places = [Piece(shape, tuple(run if d == dim else (range(n),) for d, n in enumerate(shape))) for run in runs]
    squares = sum(place.sums(piece.square(), atom) for place, piece in zip(places, pieces, strict=True))
    assert torch.allclose(squares.sqrt(), frobenius(tensor, atom))
    # one number a part, multiplied onto the slices, is the same as onto the whole
    values = torch.arange(1.0, atom.parts + 1, dtype=tensor.dtype)
    scaled = tensor.clone()
    for part, value in zip(parts_one_by_one(scaled, atom), values, strict=True):
        part.mul_(value)
    for place, piece, offset in zip(places, pieces, (0, cut), strict=True):
        got = place.cut(piece.contiguous(), atom) * place.spread(values, atom)
        assert torch.allclose(got.reshape(piece.shape), scaled.narrow(dim, offset, piece.shape[dim]))


ROOT_MEAN_SQUARE = {
    "linear": (nn.Linear(300, 200), (64, 300)),
    "wide": (nn.Linear(100, 400), (64, 100)),
    "conv": (nn.Conv2d(32, 64, 3, padding=1, padding_mode="circular"), (8, 32, 16, 16)),
    "grouped": (nn.Conv2d(32, 64, 3, padding=1, padding_mode="circular", groups=4), (8, 32, 16, 16)),
    "depthwise": (nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular", groups=64), (8, 64, 16, 16)),
    "transposed": (nn.ConvTranspose1d(64, 64, 1), (8, 64, 32)),
    "norm": (nn.LayerNorm(128), (64, 128)),
}


@pytest.mark.parametrize("name", ROOT_MEAN_SQUARE)
def test_activations_keep_unit_root_mean_square_at_the_start(name):
    module, shape = ROOT_MEAN_SQUARE[name]
    initialise_(module)
    out = module(torch.randn(shape)).detach()
    # a wide layer keeps the size exactly, a narrow one loses what falls outside its rows
    assert 0.8 < float(out.square().mean().sqrt()) < 1.1


def test_an_embedding_and_a_bilinear_form_give_unit_root_mean_square():
    rows = initialise_(nn.Embedding(10, 64, padding_idx=3)).weight.detach()
    assert torch.allclose(rows.norm(dim=1)[[0, 1, 2, 4]], torch.full((4,), 8.0), rtol=1e-5)
    assert not rows[3].any(), "the padding row must stay zero"
    form = initialise_(nn.Bilinear(16, 16, 32, bias=False))
    out = form(torch.randn(500, 16), torch.randn(500, 16)).detach()
    assert 0.25 < float(out.square().mean().sqrt()) < 1.1


def names_and_kinds(model):
    return {row.parameter: row.atom for row in explain(model).rows}


def test_rows_without_gradient_do_not_move_and_sparse_gradients_stay_sparse():
    steps = {}
    for sparse in (False, True):
        torch.manual_seed(0)
        table = nn.Embedding(50, 8, sparse=sparse)
        before = table.weight.detach().clone()
        table(torch.tensor([[1, 4, 4], [7, 1, 9]])).square().sum().backward()
        assert table.weight.grad.is_sparse == sparse
        optimiser = AGD(table)
        optimiser.step()
        moved = table.weight.detach() - before
        steps[sparse] = moved
        assert set(moved.abs().sum(1).nonzero().flatten().tolist()) == {1, 4, 7, 9}
        assert table.weight.grad.is_sparse == sparse
    assert torch.allclose(steps[False], steps[True], atol=1e-7)


def test_a_sparse_gradient_that_is_not_finite_is_refused_too():
    bag = nn.EmbeddingBag(5, 3, mode="sum", sparse=True)
    (bag(torch.tensor([[0, 1]])).sum() * float("nan")).backward()
    with pytest.raises(ValueError, match="weight: its gradient is not finite"):
        AGD(bag).step()


def test_a_tied_embedding_is_read_as_the_matrix_whose_bound_is_the_tighter():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20, 8)
            self.head = nn.Linear(8, 20, bias=False)
            self.head.weight = self.table.weight

    (role,) = read_roles(Tied())
    assert role.name == "table.weight"
    assert role.atom.kind == "matrix"
    assert role.tied == ("head.weight",)
    assert role.atom.scale == pytest.approx(math.sqrt(20 / 8))
    # a user's word on either name is the last
    (role,) = read_roles(Tied(), {"table.weight": atoms.embedding})
    assert role.atom.kind == "embedding"


@pytest.mark.parametrize("wrap", ["weight_norm", "spectral_norm", "orthogonal"])
@pytest.mark.parametrize("layer", [nn.Linear(6, 4), nn.Conv2d(3, 5, 2)], ids=["linear", "conv"])
def test_parametrised_layers_train(wrap, layer):
    import copy

    if wrap == "orthogonal" and isinstance(layer, nn.Conv2d):
        pytest.skip("torch's orthogonal takes matrices, a kernel would be flattened")
    options = {"orthogonal_map": "matrix_exp"} if wrap == "orthogonal" else {}
    model = getattr(nn.utils.parametrizations, wrap)(copy.deepcopy(layer), **options)
    x = torch.randn(16, 6) if isinstance(layer, nn.Linear) else torch.randn(16, 3, 2, 2)
    optimiser = AGD(model)
    losses = []
    for _ in range(10):
        optimiser.zero_grad()
        loss = (model(x).flatten(1).mean(1) - 1).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_a_parametrisation_that_no_atom_covers_is_read_from_the_forward_pass():
    class Double(nn.Module):
        def forward(self, w):
            return 2 * w

    model = nn.Linear(4, 6)
    nn.utils.parametrize.register_parametrization(model, "weight", Double())
    original = "parametrizations.weight.original"
    assert {row.parameter: row.source for row in explain(model).rows}[original] == "shape"
    rows = {row.parameter: row for row in explain(model, torch.ones(1, 4)).rows}
    assert (rows[original].source, rows[original].matrices) == ("graph", "1 of 6 × 4")
    AGD(nn.utils.parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map="householder"))


def test_a_registered_layer_and_an_override_by_name():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Parameter(torch.eye(6))

    model = nn.Sequential(Mixer(), nn.Linear(6, 6))
    assert {row.parameter: row.source for row in explain(model).rows}["0.mix"] == "shape"
    optimiser = AGD(model, atoms={"0.mix": lambda w, m: atoms.matrix(w, stack=3)})
    assert optimiser._architecture.atoms[model[0].mix].parts == 3
    register_atom(Mixer, "mix", atoms.matrix)
    assert names_and_kinds(model)["0.mix"] == "matrix"
    assert {row.parameter: row.source for row in explain(model).rows}["0.mix"] == "you"
    with pytest.raises(ValueError, match=r"1\.scale: there is no parameter of that name"):
        AGD(model, atoms={"1.scale": atoms.gain})


def test_overrides_reach_every_group_and_a_wrong_name_is_refused():
    first, second = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(5, 3))
    groups = [{"params": [("a", first)]}, {"params": [("b", second)]}]
    optimiser = AGD(groups, atoms={"a": atoms.matrix, "b": atoms.embedding})
    assert optimiser._architecture.atoms[second].kind == "embedding"
    with pytest.raises(ValueError, match="typo: there is no parameter of that name"):
        AGD([("a", first)], atoms={"a": atoms.matrix, "typo": atoms.matrix})


def test_weight_normed_layers_start_at_prescription_1():
    layer = initialise_(nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)))
    assert float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) == pytest.approx(1.0, rel=1e-4)


def test_the_padding_row_of_a_tied_table_stays_zero():
    model = nn.ModuleDict({"table": nn.Embedding(20, 8, padding_idx=2), "head": nn.Linear(8, 20, bias=False)})
    model["head"].weight = model["table"].weight
    initialise_(model)
    assert not model["table"].weight[2].any()
    assert model["table"].weight[3].any()


def test_a_lazy_layer_asks_for_a_batch_first():
    model = nn.LazyLinear(3)
    with pytest.raises(ValueError, match="send one batch through the model first"):
        AGD(model)


def test_a_frozen_parameter_of_unknown_kind_is_told_from_its_shape():
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(3, 3), requires_grad=False)

    model = nn.Sequential(nn.Linear(3, 3), Fixed())
    (row,) = [row for row in explain(model).rows if row.parameter == "1.table"]
    assert (row.source, row.trained, row.share) == ("shape", False, 0.0)


def test_shape_alone_warns_once(monkeypatch):
    monkeypatch.setattr("autogd.reading.catalogue._warned", False)
    with pytest.warns(UserWarning, match="told from shape alone"):
        AGD(nn.Linear(2, 2).parameters())
    AGD(nn.Linear(2, 2).parameters())  # warnings are errors here: a second one would raise
