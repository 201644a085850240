"""Plain tensors that differ by rank: one η with `process_group=`, an error on every rank without it."""

import pytest

import many_ranks

pytestmark = pytest.mark.distributed
CASES = {
    2: ["pipeline", "experts", "no_gradient_on_one_rank", "refusals", "refused_by_name", "copies_that_part_later"],
    4: ["pipeline", "pipeline_of_two_copies", "experts", "refusals"],
}


@pytest.mark.parametrize("world", CASES)
def test_ranks_with_parts_of_one_model(world):
    found = many_ranks.run(world, "group_cases", CASES[world])
    wrong = {case: lines for case, lines in found.items() if lines}
    assert not wrong, many_ranks.told(wrong)
