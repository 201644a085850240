"""Checkpoints: the complete state of a run at one step, loadable on any number of processes.

`torch.distributed.checkpoint` writes the tensors, sharded or not. state.json has all other values. manifest.json has
the checksum of every file and the position of every tensor. A checkpoint is written under a temporary name and renamed
when everything is on the disk, so a visible checkpoint is complete. The previous one is kept.

A checkpoint may be damaged, or come from a stranger. So its files are compared with their checksums first, and nothing
in them is unpickled.
"""

import json
import re
import shlex
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from autogd.baselines import Optimiser
from autogd.training import manifest, skeleton
from autogd.training.distributed import Place
from autogd.training.manifest import Damaged, Saved
from autogd.training.records import sync_folder, write_whole
from autogd.training.storage import Reader, locate

__all__ = ["export", "latest", "load", "save"]

KEPT = 2  # the newest checkpoint, and one to fall back on if it is damaged


def save(
    folder: Path,
    step: int,
    model: nn.Module,
    optimiser: Optimiser,
    rest: dict[str, Any],
    place: Place | None = None,
    keep: int = KEPT,
) -> Path:
    """Write the state at a step as folder/step-…, then remove all but the `keep` newest; `rest` is a tree of values.

    >>> import tempfile
    >>> model = nn.Linear(2, 2)
    >>> optimiser = torch.optim.SGD(model.parameters(), momentum=0.9)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     written = save(Path(place), 3, model, optimiser, {"epoch": 1})
    ...     load(written, model, optimiser)
    {'epoch': 1}
    """
    place = place or Place()
    final = folder / f"step-{step:09d}"
    draft = folder / f"draft-{step:09d}"
    tensors = _model_tensors(model)
    state = {
        "optimiser": skeleton.pack(optimiser.state_dict(), "optimiser", tensors),
        "rest": skeleton.pack(rest, "rest", tensors),
    }
    # contiguous, as the reader expects
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        if place.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
        place.wait()
        with _no_process_group(place) as no_dist:
            index = state_dict_saver.save(tensors, storage_writer=FileSystemWriter(draft), no_dist=no_dist)
        if place.rank == 0:  # now every process has written its files
            write_whole(draft / skeleton.STATE, json.dumps(state))
            manifest.write(draft, locate(draft, index), skeleton.state_names(state))
            draft.rename(final)
            sync_folder(folder)
            for old in [*_older(final)[keep - 1 :], *folder.glob("draft-*")]:
                shutil.rmtree(old, ignore_errors=True)
    except (OSError, CheckpointException) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise OSError(
            f"{final}: the checkpoint could not be written ({_reason(error)}; {shutil.disk_usage(folder).free:,} "
            "bytes are free there); the one before it is untouched. Make room, then resume"
        ) from error
    place.wait()
    return final


def load(path: Path, model: nn.Module, optimiser: Optimiser, place: Place | None = None) -> dict[str, Any]:
    """Load a saved state into a model and its optimiser, and return the rest."""
    place = place or Place()
    # the first process checks the files for all
    wrong = place.tell(_damage(path) if place.rank == 0 else "")
    if wrong:
        raise Damaged(wrong)
    try:
        listed = manifest.read(path)
        state = skeleton.read(path, listed.names)
        tensors = _model_tensors(model)
        _check_fit(tensors, listed.tensors)
        parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        for name, saved in listed.tensors.items():
            if name not in tensors:
                tensors[name] = _blank(name, saved, parameters)
        with _no_process_group(place) as no_dist:
            state_dict_loader.load(tensors, storage_reader=Reader(path, listed.tensors), no_dist=no_dist)
        optimiser.load_state_dict(skeleton.unpack(state["optimiser"], tensors))
    except (Exception, CheckpointException) as error:  # an optimiser may raise anything for a foreign state
        raise ValueError(f"{path}: the checkpoint does not fit this run ({_reason(error)})") from error
    return skeleton.unpack(state["rest"], tensors)


def export(path: Path, model: nn.Module, place: Place | None = None) -> None:
    """Write the weights and buffers as one safetensors file; sharded tensors are all-gathered.

    >>> import tempfile
    >>> from safetensors.torch import load_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(Path(folder) / "weights.safetensors", nn.Linear(2, 1, bias=False))
    ...     load_file(Path(folder) / "weights.safetensors")["weight"].shape
    torch.Size([1, 2])
    """
    try:
        from safetensors.torch import save as serialise
    except ImportError as error:
        raise ValueError("weights are exported with safetensors: pip install 'autogd[cli]'") from error

    whole: dict[str, Tensor] = {}
    seen: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in seen:  # tied weights: load_state_dict(strict=False) ties them again
            continue
        seen[id(tensor)] = name
        full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        whole[name] = full.detach().cpu().contiguous()
    if place is None or place.rank == 0:
        write_whole(path, serialise(whole))


def latest(folder: Path) -> Path | None:
    """The newest checkpoint.

    >>> latest(Path("/nowhere")) is None
    True
    """
    return max(_all(folder), key=_step, default=None)


def _older(path: Path) -> list[Path]:
    """The checkpoints before one, newest first."""
    before = [each for each in _all(path.parent) if _is_one(path) and _step(each) < _step(path)]
    return sorted(before, key=_step, reverse=True)


def _damage(path: Path) -> str:
    """What is wrong with a checkpoint's files, and the remedy; empty if nothing is wrong."""
    try:
        manifest.verify(path)
        return ""
    except ValueError as error:
        what = str(error)
    if not (path / manifest.NAME).exists():
        what += (
            "; a checkpoint without a manifest is from an older version and is not read, since its index is a pickle: "
            "finish the run with the version that wrote it"
        )
    elif f"{skeleton.STATE} is damaged" in what:
        what += _in_detail(path)
    return f"{what}. Nothing was changed. {_way_out(path)}"


def _check_fit(tensors: Mapping[str, Tensor], listed: Mapping[str, Saved]) -> None:
    """Refuse a checkpoint of another network before any weight changes."""
    theirs = {name: (saved.dtype, saved.size) for name, saved in listed.items() if name.startswith("model/")}
    ours = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    for name in sorted(theirs.keys() | ours.keys()):
        if theirs.get(name) != ours.get(name):
            found, expected = (
                "nothing" if each is None else f"{each[0]} of size {list(each[1])}"
                for each in (theirs.get(name), ours.get(name))
            )
            raise ValueError(f"{name.removeprefix('model/')}: it has {found}, the network {expected}")


@contextmanager
def _no_process_group(place: Place) -> Iterator[bool]:
    """Whether to save without a process group; suppresses torch's warning about that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield place.world == 1


def _model_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {f"model/{name}": tensor for name, tensor in model.state_dict().items()}


def _blank(name: str, saved: Saved, parameters: list[Tensor]) -> Tensor:
    """An empty tensor to load into: sharded like its parameter, if it is optimiser state of that parameter."""
    match name.split("/"):
        case ["optimiser", "state", index, *_] if index.isdecimal() and int(index) < len(parameters):
            parameter = parameters[int(index)]
            if tuple(parameter.shape) == saved.size:
                return torch.zeros_like(parameter, dtype=saved.dtype, requires_grad=False)
    return torch.zeros(saved.size, dtype=saved.dtype)


def _reason(error: BaseException) -> str:
    """The first line of the original error, which torch's checkpointing wraps in its own."""
    if isinstance(error, CheckpointException) and error.failures:
        failure = next(iter(error.failures.values()))
        error = failure[0] if isinstance(failure, tuple) else failure
    said = (str(error).splitlines() or [""])[0]
    return (
        said if said and isinstance(error, ValueError | OSError | RuntimeError) else f"{type(error).__name__}: {said}"
    )


def _in_detail(path: Path) -> str:
    """The key of state.json that has changed, if one has."""
    try:
        skeleton.read(path, manifest.read(path).names)
    except ValueError as error:
        return f": {error}"
    return ""


def _way_out(path: Path) -> str:
    for other in _older(path):
        try:
            manifest.verify(other)
        except ValueError:
            continue
        aside = path.with_name(f"damaged-{path.name}")
        move = f"mv {shlex.quote(str(path))} {shlex.quote(str(aside))}"
        return f"{other.name}, the one before it, is not damaged; to continue from there: {move}, and resume"
    return (
        "There is no undamaged checkpoint before it: start the run again in another folder; the same settings give "
        "the same numbers"
    )


def _all(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step-*") if _is_one(path) and path.is_dir()]


def _is_one(path: Path) -> bool:
    return re.fullmatch(r"step-[0-9]+", path.name) is not None


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))
