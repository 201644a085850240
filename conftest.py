"""What all tests share: a seed, and hypothesis with the same examples on every machine."""

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
    """Plans say that they are not on the CPU: a step must not read a number there."""
    from autogd.engine import steps

    class Elsewhere(steps.Plan):
        def __init__(self, *given):
            super().__init__(*given)
            self.on_cpu = False

    monkeypatch.setattr(steps, "Plan", Elsewhere)


@pytest.fixture
def looks(monkeypatch) -> list[str]:
    """The names of the methods by which a number left a tensor."""
    seen: list[str] = []

    def watch(name):
        original = getattr(torch.Tensor, name)

        def wrapper(self, *args, **kwargs):
            seen.append(name)
            return original(self, *args, **kwargs)

        return wrapper

    for name in ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__", "__contains__"):
        monkeypatch.setattr(torch.Tensor, name, watch(name))
    return seen
