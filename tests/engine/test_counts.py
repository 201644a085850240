"""Bytes and FLOPs that are counted on gloo processes agree with the cost model."""

import pytest

import many_ranks

pytestmark = pytest.mark.distributed
CASES = ["counts", "experts_stay"]


def test_what_is_counted_is_what_the_model_says():
    wrong = {case: lines for case, lines in many_ranks.run(4, "count_cases", CASES).items() if lines}
    assert not wrong, many_ranks.told(wrong)
