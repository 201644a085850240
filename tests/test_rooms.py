"""Imports go one way between rooms, and every public name is in `__all__`."""

import ast
import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import autogd
from patience import run_child

SOURCE = Path(autogd.__file__).parent
# a room imports from itself and from rooms to its left
ROOMS = [
    "losses", "geometry", "reading", "engine", "optim", "jax", "integrations", "diagnosis", "theory", "models", "data",
    "rivals", "baselines", "training", "experiments", "report", "cli",
]  # fmt: skip
# the entry points: `import autogd` has the public names, `python -m autogd` is the command
DOORS = {"__init__", "__main__"}
MODULES = sorted(module.name for module in pkgutil.walk_packages(autogd.__path__, "autogd."))


def imported_rooms(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "autogd":
                names |= {f"autogd.{alias.name}" for alias in node.names}
            else:
                names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("autogd.") and name != "autogd.__version__"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_between_rooms_go_one_way(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in DOORS:
        return
    assert room in ROOMS, f"{room}: which rooms may it import from? Give it a place in ROOMS"
    for other in imported_rooms(path):
        assert ROOMS.index(other) <= ROOMS.index(room), f"{room} imports {other}, a room to its right"


@pytest.mark.parametrize("name", ["geometry", "reading", "optim/rule.py", "optim/bound.py", "optim/rate.py"])
def test_the_mathematics_imports_no_machinery(name):
    place = SOURCE / name
    for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
        assert "engine" not in imported_rooms(path), f"{path} imports the engine"
        assert "torch.distributed" not in path.read_text(), f"{path} knows of processes"


@pytest.mark.parametrize("name", ["autogd", *MODULES])
def test_all_is_complete(name):
    if name.endswith("__main__"):
        return
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if "pip install 'autogd[integrations]'" not in str(error):
            raise
        pytest.skip(str(error))
    tree = ast.parse(Path(module.__file__).read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    announced = set(getattr(module, "__all__", ()))
    assert {n for n in defined if not n.startswith("_")} <= announced, f"{name}: public but not in __all__"
    assert all(hasattr(module, n) for n in announced), f"{name}: in __all__ but not there"


def test_the_core_imports_torch_and_nothing_else():
    script = (
        "import sys, torch; before = set(sys.modules); import autogd;"
        "print(sorted({m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    out = run_child([sys.executable, "-W", "error", "-c", script])
    assert out.stdout.strip() == "['autogd']", out.stderr
