"""The wheel, in an environment with torch and nothing else."""

import os
import re
import shutil
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

import autogd
from autogd.engine.library import LIBRARY, SOURCES
from patience import run_child

COMPILER = shutil.which((os.environ.get("CC") or "cc").split()[0])
ROOT = Path(__file__).parents[1]
TEN_STEPS = """
import warnings
warnings.simplefilter("error")
# torch's own, on its import: it would like to have NumPy
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch
from autogd import AGD
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimiser = AGD(model)
x = torch.randn(32, 8)
losses = []
for _ in range(10):
    optimiser.zero_grad()
    loss = (model(x) - x[:, :1]).square().mean()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
"""


def with_its_dependencies(name: str, known: set[str]) -> set[str]:
    """The names of a distribution and of all its dependencies."""
    if name not in known:
        known.add(name)
        for requirement in map(Requirement, distribution(name).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                with_its_dependencies(requirement.name, known)
    return known


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the source tree: no other test sees a half-written file."""
    copy = tmp_path_factory.mktemp("source") / "autogd"
    ignored = shutil.ignore_patterns(
        ".git", ".venv", ".*_cache", "__pycache__", "_build", "dist", "runs", ".hypothesis"
    )
    shutil.copytree(ROOT, copy, ignore=ignored)
    return copy


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    """The wheel and the source archive."""
    out = tmp_path_factory.mktemp("dist")
    # from the source archive, as users do; without isolation, which needs a network
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source]
    done = run_child(command, env={**os.environ, "AUTOGD_NATIVE": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.suffix: path for path in out.iterdir()}


@pytest.fixture(scope="module")
def python(built, tmp_path_factory):
    """The interpreter of an environment with the wheel, and links to torch and its dependencies."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=True)
    packages = next(place.glob("lib/python*/site-packages"))
    for name in with_its_dependencies("torch", set()):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / top).exists():
                (packages / top).symlink_to(found.locate_file(top))
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(built[".whl"])]
    done = run_child([sys.executable, "-m", "pip", "--python", place, *install])
    assert done.returncode == 0, done.stderr
    return place / "bin" / "python"


def run(python, *words):
    dropped = ("PYTHON", "AUTOGD")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return run_child([python, *words], cwd=python.parent, env=environment)


def test_the_wheel_takes_ten_steps_beside_torch_alone_and_without_a_warning(python):
    for absent in ("numpy", "scipy", "rich", "tyro", "sklearn", "matplotlib"):
        assert run(python, "-c", f"import {absent}").returncode != 0
    out = run(python, "-c", TEN_STEPS)
    assert (out.returncode, out.stderr) == (0, "")


def test_the_examples_of_the_readme_run_beside_torch_alone(python, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "readme.py"
    script.write_text(f"import os\nos.chdir({str(tmp_path)!r})\n" + "\n".join(blocks))
    out = run(python, script)
    assert out.returncode == 0, out.stderr
    assert (tmp_path / "model.pt").exists()


@pytest.fixture(scope="module")
def version(python):
    """The lines of `autogd --version`."""
    return run(python, python.parent / "autogd", "--version").stdout.splitlines()


def test_the_command_says_its_version_and_what_it_lacks(python, version):
    assert version[0] == f"autogd {autogd.__version__}"
    out = run(python, "-m", "autogd", "train")
    assert out.returncode == 1
    assert "pip install 'autogd[cli]'" in out.stderr


def names_in(wheel):
    return zipfile.ZipFile(wheel).namelist()


def in_wheel(path):
    return path.relative_to(Path(autogd.__file__).parents[1]).as_posix()


def test_the_archives_hold_what_they_should(built):
    names = names_in(built[".whl"])
    assert "autogd/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {"autogd", f"autogd-{autogd.__version__}.dist-info"}
    assert built[".gz"].stat().st_size < 5_000_000
    with tarfile.open(built[".gz"]) as archive:
        packed = archive.getnames()
    for source in SOURCES.iterdir():
        assert f"autogd-{autogd.__version__}/src/{in_wheel(source)}" in packed
        assert in_wheel(source) in names
    assert not any(name.endswith(LIBRARY.name) for name in packed)  # every machine compiles its own


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
def test_a_normal_install_has_the_compiled_passes_for_any_python_of_this_platform(built, version):
    assert in_wheel(LIBRARY) in names_in(built[".whl"])
    (tag,) = parse_wheel_filename(built[".whl"].name)[3]
    assert (tag.interpreter, tag.abi) == ("py3", "none")
    assert tag in set(sys_tags())
    assert tag.platform != "any"
    assert version[1] == "backend: compiled passes"


def test_without_a_compiler_the_wheel_is_pure_and_says_so(source, tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    lacking = {**os.environ, "CC": "/absent/cc"}
    done = run_child(command, cwd=source, env={**lacking, "AUTOGD_NATIVE": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without the C passes: /absent/cc: there is no such compiler" in done.stdout + done.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert in_wheel(LIBRARY) not in names_in(wheel)
    done = run_child(command, cwd=source, env={**lacking, "AUTOGD_NATIVE": "1"})
    assert done.returncode != 0
    assert "AUTOGD_NATIVE=1: the C passes were not compiled" in done.stdout + done.stderr


def test_the_version_is_semantic_and_stands_in_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", autogd.__version__)
    places = [ROOT / "pyproject.toml", ROOT / "CITATION.cff", ROOT / "docs" / "conf.py", *(ROOT / "src").rglob("*.py")]
    holders = [path for path in places if f'"{autogd.__version__}"' in path.read_text()]
    assert holders == [ROOT / "src" / "autogd" / "__init__.py"]
    assert re.search(r"^## (Unreleased|\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_wheel_has_no_records(built):
    names = zipfile.ZipFile(built[".whl"]).namelist()
    assert not [name for name in names if name.endswith((".jsonl", ".gz", ".png"))]
