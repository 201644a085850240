"""Unpack a few known files of a tar archive: all of them, or none."""

import contextlib
import gzip
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar

__all__ = ["unpack"]

LIMIT = 1 << 28  # bytes when unpacked; the official archives have 187 million
MEMBERS = 1000  # the official archives have ten
CHUNK = 1 << 20

T = TypeVar("T")


def unpack(archive: Path, folder: Path, members: Sequence[str], read: Callable[[Path], T]) -> T:
    """Unpack `members` of `archive` into `folder`, and return what `read` makes of them.

    Everything happens in a temporary sibling that is renamed once `read` has succeeded. Nothing but the members is
    written. An archive with links, devices, sparse files or paths that lead outside is refused.

    Args:
        archive: a .tar.gz file.
        folder: created here; the archive has the members under this folder's name.
        members: names of files within the folder.
        read: reads the unpacked folder, and raises if something is wrong with it.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     notes, packed = Path(place, "notes"), Path(place, "notes.tar.gz")
    ...     notes.mkdir()
    ...     _ = (notes / "a").write_text("read me")
    ...     with tarfile.open(packed, "w:gz") as tar:
    ...         tar.add(notes, "notes")
    ...     unpack(packed, notes, ["a"], lambda folder: (folder / "a").read_text())
    'read me'
    """
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        fresh = Path(scratch, folder.name)
        fresh.mkdir()
        try:
            _write_members(archive, fresh, set(members))
            result = read(fresh)
        except ValueError as error:
            raise ValueError(f"{archive}: {error}. Delete it and fetch it again") from error
        # another process may have been faster: use its files, they are the same
        with contextlib.suppress(OSError):
            fresh.rename(folder)
        return result


def _write_members(archive: Path, fresh: Path, wanted: set[str]) -> None:
    try:
        with gzip.open(archive) as packed:
            stream = _Bounded(packed, LIMIT)
            with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload]
                for count, member in enumerate(tar, start=1):
                    if count > MEMBERS:
                        raise ValueError(f"it has more than {MEMBERS} members")
                    _refuse_hostile(member)
                    name = PurePosixPath(member.name)
                    source = tar.extractfile(member)
                    if source is not None and str(name.parent) == fresh.name and name.name in wanted:
                        with (fresh / name.name).open("wb") as target:
                            shutil.copyfileobj(source, target, CHUNK)
            while stream.read(CHUNK):  # gzip compares its checksum at the very end
                pass
    except OSError as error:
        if error.errno is not None:
            raise  # an error of the disk, not of the archive
        raise ValueError(f"not a whole .tar.gz file ({error})") from error
    except Exception as error:  # a damaged archive can raise anything
        raise ValueError(f"not a whole .tar.gz file ({type(error).__name__}: {error})") from error
    missing = sorted(name for name in wanted if not (fresh / name).is_file())
    if missing:
        raise ValueError(f"{', '.join(missing)} not in it")


def _refuse_hostile(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise ValueError(f"{member.name!r} is a link or a device, which no data set needs")
    if member.issparse():  # holes take no room in the archive, but may fill the disk
        raise ValueError(f"{member.name!r} is a sparse file, which no data set needs")
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{member.name!r} leads outside the archive's folder")


class _Bounded:
    """A stream that refuses to give more than `limit` bytes: a small file may unpack to more than the disk holds."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self._stream, self._left, self._limit = stream, limit, limit

    def read(self, size: int) -> bytes:
        chunk = self._stream.read(size)
        self._left -= len(chunk)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {self._limit} bytes")
        return chunk
