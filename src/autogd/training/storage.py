"""Find the tensors of a checkpoint, and read them back as plain numbers; nothing is unpickled.

`torch.distributed.checkpoint` writes every tensor as `torch.save` does: an uncompressed zip archive whose record
`data/0` has the numbers. After a save, the manifest records the position of `data/0`. Loading uses only the manifest;
torch's index and the pickles in the archives are there for torch's own tools.
"""

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from autogd.training.manifest import Chunk, Saved

__all__ = ["Reader", "locate"]

_LOCAL_HEADER = struct.Struct("<26xHH")  # of a record in a zip archive; the last two fields are lengths


def locate(folder: Path, index: dcp.Metadata) -> dict[str, Saved]:
    """The position of each saved tensor's numbers; every tensor must have been contiguous."""
    found = {}
    for name, saved in index.state_dict_metadata.items():
        assert isinstance(saved, dcp.TensorStorageMetadata), f"{name}: only tensors are handed to torch"
        dtype, chunks = saved.properties.dtype, []
        for part in saved.chunks:
            place = index.storage_data[dcp.MetadataIndex(name, part.offsets)]
            start, length = _numbers(folder / place.relative_path, place.offset, place.length)
            if length != part.sizes.numel() * dtype.itemsize:
                raise OSError(f"{name}: torch {torch.__version__} wrote {length} bytes for {dtype}, {part.sizes}")
            chunks.append(Chunk(tuple(part.offsets), tuple(part.sizes), place.relative_path, start, length))
        found[name] = Saved(dtype, tuple(saved.size), tuple(chunks))
    return found


class Reader(StorageReader):
    """Reads a checkpoint's tensors by its manifest, for `torch.distributed.checkpoint.load`.

    >>> Reader(Path("checkpoint"), {}).read_metadata().state_dict_metadata
    {}
    """

    def __init__(self, folder: Path, tensors: Mapping[str, Saved]) -> None:
        self._folder = folder
        self._index = dcp.Metadata(state_dict_metadata={}, planner_data={}, storage_data={})
        self._places: dict[dcp.MetadataIndex, tuple[Chunk, torch.dtype]] = {}
        for name, saved in tensors.items():
            chunks = [
                dcp.ChunkStorageMetadata(torch.Size(each.offsets), torch.Size(each.sizes)) for each in saved.chunks
            ]
            self._index.state_dict_metadata[name] = dcp.TensorStorageMetadata(
                dcp.TensorProperties(saved.dtype), torch.Size(saved.size), chunks
            )
            for each in saved.chunks:
                self._places[dcp.MetadataIndex(name, each.offsets)] = (each, saved.dtype)

    def read_metadata(self, *args: Any, **kwargs: Any) -> dcp.Metadata:
        """The index, built from the manifest."""
        return self._index

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy the tensors of the plan."""
        for item in plan.items:
            part = self._read(*self._places[item.storage_index])
            for dimension, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                part = part.narrow(dimension, offset, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(part)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read(self, chunk: Chunk, dtype: torch.dtype) -> Tensor:
        if chunk.bytes == 0:
            return torch.empty(chunk.sizes, dtype=dtype)
        with open(self._folder / chunk.file, "rb") as file:
            file.seek(chunk.start)
            content = bytearray(file.read(chunk.bytes))
        numbers = torch.frombuffer(content, dtype=torch.uint8)
        if dtype == torch.bool:  # a bool must be the byte 0 or 1: any other byte becomes 1
            return (numbers != 0).view(chunk.sizes)
        return numbers.view(dtype).view(chunk.sizes)

    def reset(self, checkpoint_id: Any = None) -> None:
        """Do nothing: a reader is for one checkpoint."""

    def set_up_storage_reader(self, metadata: dcp.Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the reader has the positions."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans, unchanged."""
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """A checkpoint is a folder."""
        return Path(checkpoint_id).is_dir()


def _numbers(path: Path, offset: int, length: int) -> tuple[int, int]:
    """The position and length, in bytes, of a saved tensor's numbers in a file."""
    with open(path, "rb") as file, zipfile.ZipFile(_Window(file, offset, length)) as archive:
        (record,) = (each for each in archive.infolist() if each.filename.endswith("/data/0"))
        assert record.compress_type == zipfile.ZIP_STORED
        file.seek(offset + record.header_offset)
        name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        return offset + record.header_offset + _LOCAL_HEADER.size + name + extra, record.file_size


class _Window(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, file: io.BufferedReader, offset: int, length: int) -> None:
        self._file, self._offset, self._length, self._at = file, offset, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._offset + self._at)
        content = self._file.read(max(0, min(len(buffer), self._length - self._at)))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
