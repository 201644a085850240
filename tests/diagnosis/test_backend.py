"""What `autogd --version` and the doctor say of the compiled passes."""

import sys

import pytest

from autogd.diagnosis import backend as module
from autogd.diagnosis.backend import backend
from autogd.engine.library import LIBRARY, library

PLACE = module.__name__


@pytest.fixture
def without_library(monkeypatch):
    monkeypatch.delenv("AUTOGD_NATIVE", raising=False)
    monkeypatch.setattr("autogd.engine.library.library", lambda: None)


@pytest.fixture
def anew():
    """The library is looked for again, and once more after the test."""
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.mark.usefixtures("anew")
def test_the_environment_turns_the_compiled_passes_off(monkeypatch):
    monkeypatch.setenv("AUTOGD_NATIVE", "0")
    assert library() is None
    assert backend() == "torch's operations: AUTOGD_NATIVE=0 turns the compiled passes off"


@pytest.mark.usefixtures("anew")
def test_without_a_word_in_the_environment_the_passes_are_in_use_if_they_are_there(monkeypatch):
    monkeypatch.delenv("AUTOGD_NATIVE", raising=False)
    compiled = library() is not None
    assert compiled == LIBRARY.exists()
    assert backend().startswith("compiled passes" if compiled else "torch's operations: not compiled")


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
