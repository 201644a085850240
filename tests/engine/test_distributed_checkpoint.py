"""torch.distributed.checkpoint: what four ranks saved on any mesh, two ranks and one go on with, on any other."""

import pytest

import checkpoint_cases
import many_ranks

pytestmark = pytest.mark.distributed


def test_four_ranks_save_and_two_and_one_go_on(tmp_path):
    given = {"folder": str(tmp_path), "alone": checkpoint_cases.alone(checkpoint_cases.trained("fsdp"))}
    for world, case in ((4, "save"), (2, "load"), (1, "load")):
        wrong = many_ranks.run(world, "checkpoint_cases", [case], given)
        assert not any(wrong.values()), many_ranks.told(wrong)
