"""Which checkpoints a folder keeps, and what to do if one of them is damaged."""

import re
import shlex
from pathlib import Path

from autogd.training import manifest, skeleton

__all__ = ["KEPT", "damage", "latest", "older"]

KEPT = 2  # the newest checkpoint, and one to fall back on if it is damaged


def latest(folder: Path) -> Path | None:
    """The newest checkpoint.

    >>> latest(Path("/nowhere")) is None
    True
    """
    return max(_all(folder), key=_step, default=None)


def older(path: Path) -> list[Path]:
    """The checkpoints before one, newest first.

    >>> older(Path("/nowhere/step-000000008"))
    []
    """
    before = [each for each in _all(path.parent) if _is_one(path) and _step(each) < _step(path)]
    return sorted(before, key=_step, reverse=True)


def damage(path: Path) -> str:
    """What is wrong with a checkpoint's files, and the remedy; empty if nothing is.

    >>> damage(Path("/nowhere"))
    '/nowhere/manifest.json: cannot be read (No such file or directory)...'
    """
    try:
        manifest.verify(path)
        return ""
    except ValueError as error:
        what = str(error)
    if not (path / manifest.NAME).exists():
        what += (
            "; checkpoints of versions without a manifest are not read, since their index is a pickle: finish such a "
            "run with the version that wrote it"
        )
    elif f"{skeleton.STATE} is damaged" in what:
        what += _in_detail(path)
    return f"{what}. Nothing was changed. {_way_out(path)}"


def _in_detail(path: Path) -> str:
    """Which key of state.json has changed, if the damage is there."""
    try:
        skeleton.read(path, manifest.read(path).names)
    except ValueError as error:
        return f": {error}"
    return ""


def _way_out(path: Path) -> str:
    for other in older(path):
        try:
            manifest.verify(other)
        except ValueError:
            continue
        aside = path.with_name(f"damaged-{path.name}")
        move = f"mv {shlex.quote(str(path))} {shlex.quote(str(aside))}"
        return f"{other.name}, the one before it, is whole; to go on from there: {move}, and resume"
    return (
        "There is no whole checkpoint before it: start the run again in another folder; the same settings give the "
        "same numbers"
    )


def _all(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step-*") if _is_one(path) and path.is_dir()]


def _is_one(path: Path) -> bool:
    return re.fullmatch(r"step-[0-9]+", path.name) is not None


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))
