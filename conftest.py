"""What all tests share: a seed, and hypothesis with the same examples on every machine."""

import os

import hypothesis
import pytest
import torch

# the same examples on every machine, and no time limit on one: other processes may be busy
hypothesis.settings.register_profile("seeded", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("seeded")
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
