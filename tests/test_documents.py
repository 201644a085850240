"""Every python block of the README and of the documents runs, in order, file by file."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
DOCUMENTS = sorted([*PAGES, *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "howto").glob("*.md")])


def blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", [p for p in DOCUMENTS if blocks(p)], ids=lambda path: path.name)
def test_the_python_blocks_of_a_document_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path):
        exec(compile(block, str(path), "exec"), scope)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_project_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
    missing = [t for t in targets if "://" not in t and not t.startswith("mailto:") and not (path.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_of_the_project_that_a_document_names_exist(path):
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`(?:python )?([\w./-]+/[\w.-]+\.(?:py|md|yml|yaml|jsonl))", prose)
    places = (ROOT, ROOT / "src" / "autogd", path.parent)
    own = [name for name in named if not name.startswith(("path/to/", "runs/"))]
    assert [name for name in own if not any((place / name).exists() for place in places)] == []
