"""The rule alone, on plain numbers: sums of many parts, and the noise floor over several tensors."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from autogd.optim.rule import ROW, above_noise_floor, summarise, theorem_2


def parts_of(tensors, noise_floor=0.0, own_weight=None, own_weight_floor=0.0):
    """Tensors as (scale, depth share, parts), as `Parts` has them."""
    sizes = [parts for *_, parts in tensors]
    owner = torch.tensor([i for i, size in enumerate(sizes) for _ in range(size)])
    scale, share = (torch.tensor([t[i] for t in tensors], dtype=torch.float64) for i in (0, 1))
    count = torch.tensor(sizes, dtype=torch.float64)

    def totals(values):
        return values.new_zeros(len(sizes)).index_add_(0, owner, values)

    return SimpleNamespace(
        depth=float((share * count).sum()), depth_shares=share, reach=(scale * share)[owner],
        part_to_tensor=(count / share)[owner], noise_floor=noise_floor, own_weight=own_weight,
        own_weight_floor=own_weight_floor, others=None, totals=None if max(sizes) == 1 else totals,
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, ROW - 1, ROW, ROW + 1, 5 * ROW + 3])
def test_every_part_counts_in_the_summary_however_many_there_are(count):
    norms = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    summary = summarise(norms, parts_of([(1.0, 1.0, count)]))
    assert float(summary.G) == pytest.approx(np.mean(norms.numpy()), rel=1e-12)


@pytest.mark.parametrize("share", [1.0, 1 / 32])
def test_the_noise_floor_compares_whole_tensors_whatever_their_share_of_the_depth(share):
    # a table of two rows, each of scale × norm 1: the tensor has 2, and a tenth of that is 0.2
    tensors = parts_of([(1.0, share, 2), (1.0, 1.0, 1)], noise_floor=0.1)
    for lone, above in ((0.19, False), (0.21, True)):
        norms = torch.tensor([1.0, 1.0, lone], dtype=torch.float64)
        assert above_noise_floor(tensors.reach * norms, tensors).tolist() == [True, True, above]


def test_a_part_below_the_noise_floor_neither_moves_nor_counts():
    # a bias, and the weight of its layer, at three and at half times the floor
    layer = parts_of([(2.0, 1.0, 1), (1.0, 0.5, 1)], own_weight=torch.tensor([0, 0]), own_weight_floor=1e-3)
    for size, moves in ((6e-3, True), (1e-3, False)):
        norms = torch.tensor([1.0, size], dtype=torch.float64)
        eta, coefficients, summary = theorem_2(norms, layer, lambda G: G)
        assert float(summary.G) == pytest.approx((2 + moves * 0.5 * size) / 1.5, rel=1e-12)
        # −(η/L) × scale × depth share / norm
        expected = [-float(eta) / 1.5 * 2, -moves * float(eta) / 1.5 * 0.5 / size]
        assert coefficients.tolist() == pytest.approx(expected, rel=1e-12)
