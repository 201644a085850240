"""Matrices that travel in bfloat16 and are multiplied in float16, as on an accelerator: compared with one process."""

import pytest

import many_ranks

pytestmark = pytest.mark.distributed


def test_directions_in_half_precision_are_near_the_polar_factor_and_those_of_one_process():
    wrong = many_ranks.run(4, "accelerator_cases", ["directions", "steps"])
    assert not any(wrong.values()), many_ranks.told(wrong)
