"""Checkpoints: all of a run's state at one step, whole or not at all, loadable on any number of processes.

`torch.distributed.checkpoint` writes the tensors, spread or not; whatever is not a tensor goes to a JSON beside them.
A checkpoint takes shape under another name and is renamed when everything is on the disk, so that a name that can be
seen can be loaded. Nothing is unpickled but the index that torch's format has, and that by a reader which admits the
index's own classes and nothing else.
"""

import json
import pickle
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

from autogd.baselines import Optimiser
from autogd.training.distributed import Place
from autogd.training.records import sync_folder, write_whole

__all__ = ["SafeReader", "export", "latest", "load", "save"]


def save(
    folder: Path, step: int, model: nn.Module, optimiser: Optimiser, rest: dict[str, Any], place: Place | None = None
) -> Path:
    """Write the state at a step as folder/step-…, and then remove the older ones; `rest` is any tree of values.

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
    tensors: dict[str, Tensor] = dict(_model_tensors(model))
    skeleton = {
        "optimiser": _pack(optimiser.state_dict(), "optimiser", tensors),
        "rest": _pack(rest, "rest", tensors),
    }
    try:
        if place.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
        place.wait()
        with _alone_or_not(place) as no_dist:
            state_dict_saver.save(tensors, storage_writer=FileSystemWriter(draft), no_dist=no_dist)
        if place.rank == 0:
            write_whole(draft / "state.json", json.dumps(skeleton))
            draft.rename(final)
            sync_folder(folder)
            for old in [*folder.glob("step-*"), *folder.glob("draft-*")]:
                if old != final:
                    shutil.rmtree(old, ignore_errors=True)
    except (OSError, CheckpointException) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise OSError(
            f"{final}: the checkpoint could not be written ({_reason(error)}; {shutil.disk_usage(folder).free:,} "
            "bytes are free there); the one before it is untouched. Make room, then resume"
        ) from error
    place.wait()
    return final


def latest(folder: Path) -> Path | None:
    """The newest checkpoint that is whole.

    >>> latest(Path("/nowhere")) is None
    True
    """
    return max(folder.glob("step-*"), default=None)


def load(path: Path, model: nn.Module, optimiser: Optimiser, place: Place | None = None) -> dict[str, Any]:
    """Put a saved state into a model and its optimiser, and return the rest."""
    place = place or Place()
    try:
        skeleton = json.loads((path / "state.json").read_text())
        reader = SafeReader(path)
        index = reader.read_metadata().state_dict_metadata
        tensors = dict(_model_tensors(model))
        parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        for name, found in index.items():
            if name not in tensors and not name.startswith("model/"):
                tensors[name] = _blank(name, found, parameters)
        with _alone_or_not(place) as no_dist:
            state_dict_loader.load(tensors, storage_reader=reader, no_dist=no_dist)
        optimiser.load_state_dict(_unpack(skeleton["optimiser"], tensors))
    except (OSError, CheckpointException, ValueError, KeyError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path}: the checkpoint does not fit this run, or is damaged ({_reason(error)})") from error
    return _unpack(skeleton["rest"], tensors)


def export(path: Path, model: nn.Module, place: Place | None = None) -> None:
    """Write the weights and buffers as one safetensors file, gathered if they are spread.

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
        if id(tensor) in seen:  # tied: load_state_dict(strict=False) ties it again
            continue
        seen[id(tensor)] = name
        full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        whole[name] = full.detach().cpu().contiguous()
    if place is None or place.rank == 0:
        write_whole(path, serialise(whole))


class SafeReader(FileSystemReader):
    """torch's reader, but for its index: a pickle, read here by an unpickler that admits what an index is made of."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The index of a checkpoint."""
        with open(Path(self.path) / ".metadata", "rb") as file:
            try:
                metadata = _IndexUnpickler(file).load()
            except Exception as error:  # a damaged pickle can fail in any way
                raise ValueError(f"its index cannot be read: {error}") from error
        if not isinstance(metadata, Metadata):
            raise ValueError(f"{self.path}: its index is a {type(metadata).__name__}")
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _IndexUnpickler(pickle.Unpickler):
    _ADMITTED = frozenset(
        {
            ("torch", "Size"),
            ("torch.serialization", "_get_layout"),
            ("pathlib", "PosixPath"),
            ("pathlib", "WindowsPath"),
            *(
                ("torch.distributed.checkpoint.metadata", name)
                for name in (
                    "Metadata",
                    "MetadataIndex",
                    "TensorStorageMetadata",
                    "TensorProperties",
                    "ChunkStorageMetadata",
                    "_MEM_FORMAT_ENCODING",
                    "StorageMeta",
                )
            ),
            ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        found = getattr(torch, name, None) if module == "torch" else None
        if (module, name) in self._ADMITTED or isinstance(found, torch.dtype):
            return super().find_class(module, name)
        raise ValueError(f"its index asks for {module}.{name}, which no index needs: nothing was read")


@contextmanager
def _alone_or_not(place: Place) -> Iterator[bool]:
    """Whether to write without a process group, and no warning that there is none: it is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield place.world == 1


def _model_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {f"model/{name}": tensor for name, tensor in model.state_dict().items()}


def _blank(name: str, found: Any, parameters: list[Tensor]) -> Tensor:
    """Room for a saved tensor: spread as its parameter is, where it is an optimiser's state of that parameter."""
    match name.split("/"):
        case ["optimiser", "state", index, *_] if index.isdigit() and found.size == parameters[int(index)].shape:
            return torch.empty_like(parameters[int(index)], dtype=found.properties.dtype, requires_grad=False)
    return torch.empty(found.size, dtype=found.properties.dtype)


def _pack(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The tree as JSON; its tensors go to `tensors`, each under its path."""
    if isinstance(tree, Tensor):
        tensors[path] = tree.detach()
        return {"tensor": path}
    if isinstance(tree, dict):
        return {"dict": [[key, _pack(value, f"{path}/{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        items = [_pack(value, f"{path}/{i}", tensors) for i, value in enumerate(tree)]
        return {"tuple" if isinstance(tree, tuple) else "list": items}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"{path}: a checkpoint holds tensors and plain values, not a {type(tree).__name__}")


def _unpack(skeleton: Any, tensors: dict[str, Tensor]) -> Any:
    match skeleton:
        case {"tensor": path}:
            return tensors[path]
        case {"dict": items}:
            return {key: _unpack(value, tensors) for key, value in items}
        case {"list": items}:
            return [_unpack(value, tensors) for value in items]
        case {"tuple": items}:
            return tuple(_unpack(value, tensors) for value in items)
    return skeleton


def _reason(error: BaseException) -> str:
    """The first line of what went wrong, from within the wrapping of torch's checkpointing."""
    if isinstance(error, CheckpointException) and error.failures:
        failure = next(iter(error.failures.values()))
        error = failure[0] if isinstance(failure, tuple) else failure
    return (str(error).splitlines() or [type(error).__name__])[0]
