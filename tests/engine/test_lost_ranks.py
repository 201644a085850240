"""A rank that dies or hangs: the others end with torch's own error, and fewer ranks go on from the last checkpoint."""

import pytest

import checkpoint_cases
import lost_rank_cases
import many_ranks
import meshes

pytestmark = pytest.mark.distributed


def test_the_others_end_with_torchs_error_and_fewer_ranks_go_on(tmp_path):
    given = {"folder": str(tmp_path), "alone": checkpoint_cases.alone([(meshes.Block, "StochasticAGD")])}
    wrong = many_ranks.run(4, "lost_rank_cases", list(lost_rank_cases.WAYS), given, lost=1)
    wrong |= many_ranks.run(2, "lost_rank_cases", ["go_on"], given)
    assert not any(wrong.values()), many_ranks.told(wrong)
