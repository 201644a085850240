"""What `autogd --version` and the doctor say of the compiled passes."""

import os
import sys

import pytest

from autogd.diagnosis import backend as module
from autogd.diagnosis.backend import backend
from patience import run_child

PLACE = module.__name__


@pytest.fixture
def without_library(monkeypatch):
    monkeypatch.delenv("AUTOGD_NATIVE", raising=False)
    monkeypatch.setattr("autogd.engine.library.library", lambda: None)


@pytest.mark.parametrize("settings", [{"AUTOGD_NATIVE": "0"}, {}])
def test_the_environment_turns_the_compiled_passes_off(settings):
    environment = {name: value for name, value in os.environ.items() if name != "AUTOGD_NATIVE"}
    code = (
        "from autogd.diagnosis.backend import backend; from autogd.engine.library import library;"
        "print(library() is None, backend())"
    )
    done = run_child([sys.executable, "-c", code], env={**environment, **settings})
    if settings:
        assert done.stdout == "True torch's operations: AUTOGD_NATIVE=0 turns the compiled passes off\n"
    else:
        assert done.stdout.startswith(("False compiled passes", "True torch's operations: not compiled"))


@pytest.mark.usefixtures("without_library")
def test_it_says_why_the_passes_are_not_in_use_and_what_to_run(monkeypatch, tmp_path):
    monkeypatch.setattr("autogd.engine.library.LIBRARY", tmp_path / "passes.library")
    monkeypatch.setenv("CC", "/absent/cc -m32")
    assert "no C compiler (/absent/cc)" in backend()
    monkeypatch.setenv("CC", sys.executable)  # any program that is there
    assert backend().endswith(f"not compiled; run {module.COMPILE}")
    (tmp_path / "passes.library").write_text("not a library")
    assert str(tmp_path) in backend()
    monkeypatch.setattr(f"{PLACE}.ctypes.CDLL", lambda name: None)
    assert "compiled from other sources" in backend()
