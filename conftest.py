"""What all tests share: a seed, and hypothesis with the same examples on every machine."""

import dataclasses
import os
from importlib.util import find_spec

import hypothesis
import pytest
import torch

# the same examples on every machine, and no time limit on one: other processes may be busy
hypothesis.settings.register_profile("seeded", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("seeded")
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
# an integration's doctests need its framework
FRAMEWORKS = ("lightning", "skorch", "transformers")
collect_ignore = [f"src/autogd/integrations/{name}.py" for name in FRAMEWORKS if find_spec(name) is None]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def as_on_an_accelerator(monkeypatch):
    """Plans are told that they are not on the CPU: a step must not look at a number there."""
    from autogd.engine import steps

    make = steps.make_plan
    monkeypatch.setattr(steps, "make_plan", lambda *given: dataclasses.replace(make(*given), on_cpu=False))
