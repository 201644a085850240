"""Get the files of a published data set: find or download them, check them, unpack them."""

import contextlib
import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

__all__ = ["RemoteFile", "check_md5", "data_folder", "needs_extra", "obtain", "unpack"]

LIMIT = 1 << 28  # bytes when unpacked; the official archives have 187 million
MEMBERS = 1000  # the official archives have ten
CHUNK = 1 << 20

T = TypeVar("T")


@contextmanager
def needs_extra(what: str) -> Iterator[None]:
    """If an import inside the block fails, raise an error that names the extra to install.

    >>> with needs_extra("moon"):
    ...     import moonpictures
    Traceback (most recent call last):
    ImportError: moon: moonpictures is not installed; pip install 'autogd[cli]' brings it
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{what}: {error.name} is not installed; pip install 'autogd[cli]' brings it") from error


@dataclass(frozen=True)
class RemoteFile:
    """A file as its makers publish it.

    Args:
        name: what it is called on disk.
        addresses: tried in this order.
        md5: its checksum.

    >>> RemoteFile("notes.txt", ("https://example.org/notes.txt",), "d41d8cd98f00b204e9800998ecf8427e").name
    'notes.txt'
    """

    name: str
    addresses: tuple[str, ...]
    md5: str


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The folder of the data sets: `data_dir`, else the one that AUTOGD_DATA names, else ~/.cache/autogd.

    >>> data_folder("here")
    PosixPath('here')
    """
    if data_dir is not None:
        return Path(data_dir).expanduser()
    return Path(os.environ.get("AUTOGD_DATA") or "~/.cache/autogd").expanduser()


def check_md5(path: Path, md5: str) -> None:
    """Refuse a file if its checksum is not the published one.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as empty:
    ...     check_md5(Path(empty.name), "d41d8cd98f00b204e9800998ecf8427e")
    """
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != md5:
        raise ValueError(
            f"{path}: its md5 is {digest.hexdigest()}, the published file's is {md5}; it is damaged, or another file. "
            "Delete it and fetch it again"
        )


def obtain(file: RemoteFile, folder: Path, *, download: bool) -> Path:
    """The file in `folder`; downloaded and checked if missing. A failed download leaves nothing behind.

    >>> obtain(RemoteFile("a.gz", ("https://example.org/a.gz",), "0f"), Path("data"), download=False)
    Traceback (most recent call last):
    FileNotFoundError: data/a.gz: there is no such file, and downloads are off; put it there yourself; ...
    """
    path = folder / file.name
    if path.is_file():
        return path
    way_out = f"put it there yourself; it is published at {' and '.join(file.addresses)} (md5 {file.md5})"
    if not download:
        raise FileNotFoundError(f"{path}: there is no such file, and downloads are off; {way_out}")
    with needs_extra("downloads"):
        import pooch
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    reasons = []
    for address in file.addresses:
        try:
            # pooch writes to a temporary sibling, checks it, then renames
            pooch.retrieve(address, f"md5:{file.md5}", file.name, folder, downloader=pooch.HTTPDownloader(timeout=30))
            return path
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {_briefly(error)}")
    for place in made:
        with contextlib.suppress(OSError):
            place.rmdir()  # only if it is empty
    raise FileNotFoundError(
        f"{path}: there is no such file, and it could not be downloaded; {way_out}. "
        f"What was tried: {'; '.join(reasons)}"
    )


def _briefly(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"


def unpack(archive: Path, folder: Path, members: Sequence[str], read: Callable[[Path], T]) -> T:
    """Unpack `members` of `archive` into `folder`, and return what `read` makes of them: all members, or none.

    They are unpacked into a temporary folder beside it, which is renamed if `read` succeeds. Nothing else is written.
    An archive with links, devices, sparse files or paths that lead outside is refused.

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
        # another process may have been faster: its files are the same
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
            while stream.read(CHUNK):  # gzip compares its checksum at the end of the file
                pass
    except OSError as error:
        if error.errno is not None:
            raise  # an error of the disk, not of the archive
        raise ValueError(f"not a complete .tar.gz file ({error})") from error
    except Exception as error:  # a damaged archive can raise anything
        raise ValueError(f"not a complete .tar.gz file ({type(error).__name__}: {error})") from error
    missing = sorted(name for name in wanted if not (fresh / name).is_file())
    if missing:
        raise ValueError(f"{', '.join(missing)} not in it")


def _refuse_hostile(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise ValueError(f"{member.name!r} is a link or a device, which no data set needs")
    if member.issparse():  # its holes take no room in the archive, but may fill the disk
        raise ValueError(f"{member.name!r} is a sparse file, which no data set needs")
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{member.name!r} leads outside the archive's folder")


class _Bounded:
    """A stream of at most `limit` bytes: a small file may unpack to more than the disk holds."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self._stream, self._left, self._limit = stream, limit, limit

    def read(self, size: int) -> bytes:
        chunk = self._stream.read(size)
        self._left -= len(chunk)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {self._limit} bytes")
        return chunk
