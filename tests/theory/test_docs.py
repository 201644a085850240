"""The names on the theory pages exist, and their blocks of code run."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import autogd.theory

DOCS = Path(__file__).parents[2] / "docs"
THEORY = [module.name for module in pkgutil.walk_packages(autogd.theory.__path__, "autogd.theory.")]
OTHERS = (
    "autogd", "autogd.optim", "autogd.optim.rate", "autogd.geometry", "autogd.geometry.atom",
    "autogd.reading.chain", "autogd.geometry.direction",
)  # fmt: skip
MODULES = [importlib.import_module(name) for name in (*THEORY, *OTHERS)]


def exists(dotted):
    """Whether it is a module, or some module has the name; written with its owner, whether that owner has it."""
    if dotted in OTHERS:
        return True
    *owners, name = dotted.split(".")
    holders = [module for module in MODULES if hasattr(module, name)]
    names = [re.sub(r"^s\d_", "", module.__name__.split(".")[-1]) for module in holders]
    return bool(holders) if not owners else owners[-1] in names


@pytest.mark.parametrize("page", ["derivation.md", "errata.md", "tutorial_huber.md"])
def test_every_function_that_a_page_names_exists(page):
    text = re.sub(r"^```.*?^```", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    names = set(re.findall(r"`((?:[a-z_]+\.)*[a-zA-Z_]+)(?:\([^`]*\))?`", text))
    # not functions: rooms, parts of a result, and what a page itself defines
    names -= {"autogd.theory", "autogd.theory.check", "autogd.models.FCN", "model_terms", "loss_terms", "as_dict"}
    names -= {"losses", "s4_bound", "train"}
    assert "perturbation_bound" in names
    assert not [name for name in sorted(names) if not exists(name)]


def test_the_files_have_the_numbers_of_the_sections():
    sections = re.findall(r"^## (\d)\. ", (DOCS / "derivation.md").read_text(encoding="utf-8"), re.M)
    numbers = {match[1] for name in THEORY if (match := re.fullmatch(r"autogd\.theory\.s(\d)_\w+", name))}
    assert sorted(numbers) == sections[: len(numbers)]


def test_the_watch_for_names_sees_one_that_is_not_there():
    assert exists("losses.huber")
    assert not exists("losses.bregman")
    assert not exists("perturbation_bond")


def test_the_block_of_the_errata_prints_what_it_says(capsys):
    (block,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "errata.md").read_text(encoding="utf-8"), re.M | re.S)
    exec(compile(block, "errata.md", "exec"), {})
    share, largest = capsys.readouterr().out.split()
    assert share == "0.0545"
    assert largest.startswith("1.92")
