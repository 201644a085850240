"""Find a file of a data set on disk, or download it and check that it is the right one."""

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from autogd.data.extra import needs_extra

__all__ = ["RemoteFile", "check_md5", "data_folder", "obtain"]


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
    """The folder of the data sets: the one given, else the one that AUTOGD_DATA names, else ~/.cache/autogd.

    >>> data_folder("here")
    PosixPath('here')
    """
    if data_dir is not None:
        return Path(data_dir).expanduser()
    return Path(os.environ.get("AUTOGD_DATA") or "~/.cache/autogd").expanduser()


def check_md5(path: Path, md5: str) -> None:
    """Refuse a file whose checksum is not the published one.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as empty:
    ...     check_md5(Path(empty.name), "d41d8cd98f00b204e9800998ecf8427e")
    """
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != md5:
        raise ValueError(
            f"{path}: its md5 is {digest.hexdigest()}, the published file's is {md5}; it is damaged or another file. "
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
