"""A release without its code: the site by version, the conda recipe, the citation."""

import re
import runpy
import tomllib
from pathlib import Path

import autogd

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_entrance_of_the_site_goes_to_the_stable_version_and_lists_all(tmp_path):
    entrance = runpy.run_path(str(ROOT / "docs" / "versions.py"))["entrance"]
    for name in ("1.2.0", "1.10.0", "main"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    page = entrance(tmp_path)
    assert "url=1.10.0/index.html" in page
    assert re.findall(r'href="([^/]*)/', page) == ["1.10.0", "1.2.0", "main"]
    (tmp_path / "stable").mkdir()
    (tmp_path / "stable" / "index.html").touch()
    assert "url=stable/index.html" in entrance(tmp_path)


def test_the_conda_recipe_needs_what_the_package_needs():
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    (torch,) = PROJECT["dependencies"]
    assert torch.replace("torch", "pytorch ") in recipe
    assert f"python {PROJECT['requires-python']}" in recipe
    names = {"matplotlib": "matplotlib-base"}
    for requirement in PROJECT["optional-dependencies"]["cli"]:
        name, bound = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        assert f"- {names.get(name, name)} {bound}" in recipe


def test_the_citation_has_the_version():
    version = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version[1] == autogd.__version__


def test_the_changelog_has_the_version_first():
    first = re.search(r"^## (?!Unreleased)(\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first[1] == autogd.__version__
