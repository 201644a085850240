"""Matrices that travel, and are multiplied, in bfloat16, as on an accelerator: compared with one process."""

import pytest

import many_ranks

pytestmark = pytest.mark.distributed


def test_directions_in_bfloat16_are_near_the_polar_factor_and_those_of_one_process():
    wrong = many_ranks.run(4, "accelerator_cases", ["directions", "steps"])
    assert not any(wrong.values()), many_ranks.told(wrong)
