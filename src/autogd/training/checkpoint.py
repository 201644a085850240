"""Checkpoints: the complete state of a run at one step, loadable on any number of processes.

`torch.distributed.checkpoint` writes the tensors, sharded or not. All other values go to state.json, and manifest.json
has the checksum of every file and the position of every tensor. A checkpoint is written under a temporary name and
renamed when everything is on the disk, so a visible checkpoint is complete. The previous one is kept.

A checkpoint may be damaged, or come from a stranger. So its files are compared with their checksums first, and
nothing in them is unpickled.
"""

import json
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
from autogd.training.kept import KEPT, damage, latest, older
from autogd.training.manifest import Damaged, Saved
from autogd.training.records import sync_folder, write_whole
from autogd.training.storage import Reader, locate

__all__ = ["export", "latest", "load", "save"]


def save(
    folder: Path,
    step: int,
    model: nn.Module,
    optimiser: Optimiser,
    rest: dict[str, Any],
    place: Place | None = None,
    keep: int = KEPT,
) -> Path:
    """Write the state at a step as folder/step-…, and then remove all but the newest; `rest` is a tree of values.

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
        with _alone_or_not(place) as no_dist:
            index = state_dict_saver.save(tensors, storage_writer=FileSystemWriter(draft), no_dist=no_dist)
        if place.rank == 0:  # now every process has written its files
            write_whole(draft / skeleton.STATE, json.dumps(state))
            manifest.write(draft, locate(draft, index), skeleton.state_names(state))
            draft.rename(final)
            sync_folder(folder)
            for old in [*older(final)[keep - 1 :], *folder.glob("draft-*")]:
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
    # the first process checks every file, for all processes
    wrong = place.tell(damage(path) if place.rank == 0 else "")
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
        with _alone_or_not(place) as no_dist:
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
def _alone_or_not(place: Place) -> Iterator[bool]:
    """Whether to write without a process group; torch's warning about it is suppressed."""
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
    """The first line of the original error, inside the one that torch's checkpointing raises."""
    if isinstance(error, CheckpointException) and error.failures:
        failure = next(iter(error.failures.values()))
        error = failure[0] if isinstance(failure, tuple) else failure
    said = (str(error).splitlines() or [""])[0]
    return (
        said if said and isinstance(error, ValueError | OSError | RuntimeError) else f"{type(error).__name__}: {said}"
    )
