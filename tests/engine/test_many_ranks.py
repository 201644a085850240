"""Many ranks take the steps of one: on every mesh, with groups, from checkpoints, after a loss; costs as counted."""

import pytest

import checkpoint_cases
import many_ranks
import rank_cases

pytestmark = pytest.mark.distributed

ON_MESHES = {
    2: ["fsdp", "ddp", "tensor_parallel", "expert_parallel", "in_float32", "complex_weights"],
    4: ["fsdp", "hsdp", "fsdp_and_tensor_parallel", "expert_parallel"],
}


@pytest.fixture(scope="module")
def alone():
    return rank_cases.alone()


@pytest.mark.parametrize("world", ON_MESHES)
def test_steps_of_many_ranks_are_those_of_one(world, alone):
    found = many_ranks.run(world, "rank_cases", ON_MESHES[world], alone)
    wrong = {case: lines for case, lines in found.items() if lines}
    assert not wrong, many_ranks.told(wrong)


WITH_GROUPS = {
    2: ["pipeline", "experts", "no_gradient_on_one_rank", "refusals", "refused_by_name", "copies_that_part_later"],
    4: ["pipeline", "pipeline_of_two_copies", "experts", "refusals"],
}


@pytest.mark.parametrize("world", WITH_GROUPS)
def test_ranks_with_parts_of_one_model(world):
    found = many_ranks.run(world, "group_cases", WITH_GROUPS[world])
    wrong = {case: lines for case, lines in found.items() if lines}
    assert not wrong, many_ranks.told(wrong)


def test_four_ranks_save_and_two_and_one_go_on(tmp_path):
    given = {"folder": str(tmp_path), "alone": checkpoint_cases.alone(checkpoint_cases.trained("fsdp"))}
    for world, case in ((4, "save"), (2, "load"), (1, "load")):
        wrong = many_ranks.run(world, "checkpoint_cases", [case], given)
        assert not any(wrong.values()), many_ranks.told(wrong)


def test_the_others_end_with_torchs_error_and_fewer_ranks_go_on(tmp_path):
    given = {"folder": str(tmp_path), "alone": checkpoint_cases.alone([(rank_cases.Block, "StochasticAGD")])}
    wrong = many_ranks.run(4, "checkpoint_cases", list(checkpoint_cases.WAYS), given, lost=1)
    wrong |= many_ranks.run(2, "checkpoint_cases", ["go_on"], given)
    assert not any(wrong.values()), many_ranks.told(wrong)


COUNTED = ["counts", "experts_stay"]


def test_what_is_counted_is_what_the_model_says():
    wrong = {case: lines for case, lines in many_ranks.run(4, "count_cases", COUNTED).items() if lines}
    assert not wrong, many_ranks.told(wrong)


def test_directions_in_half_precision_are_near_the_polar_factor_and_those_of_one_process():
    wrong = many_ranks.run(4, "accelerator_cases", ["directions", "steps"])
    assert not any(wrong.values()), many_ranks.told(wrong)
