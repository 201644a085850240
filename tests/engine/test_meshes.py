"""On every mesh a step is that of one process: the same weights, averages and η after ten steps."""

import pytest

import many_ranks
import rank_cases

pytestmark = pytest.mark.distributed
CASES = {
    2: ["fsdp", "ddp", "tensor_parallel", "expert_parallel", "in_float32", "complex_weights"],
    4: ["fsdp", "hsdp", "fsdp_and_tensor_parallel", "expert_parallel"],
}


@pytest.fixture(scope="module")
def alone():
    return rank_cases.alone()


@pytest.mark.parametrize("world", CASES)
def test_steps_of_many_ranks_are_those_of_one(world, alone):
    found = many_ranks.run(world, "rank_cases", CASES[world], alone)
    wrong = {case: lines for case, lines in found.items() if lines}
    assert not wrong, many_ranks.told(wrong)
