import gzip
import hashlib
import pickle
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autogd.data import load
from autogd.data.cifar import CIFAR10, CIFAR100, load_cifar
from data.conftest import TINY_FILES, Python2Pickle, tar_gz, tiny_batch, tiny_images, tiny_source

ARCHIVE = tar_gz(TINY_FILES)
SOURCE = tiny_source(ARCHIVE)


def put(folder: Path, archive: bytes) -> Path:
    path = folder / "tiny.tar.gz"
    path.write_bytes(archive)
    return path


def put_unpacked(folder: Path, **changed: bytes) -> None:
    (folder / "tiny-py").mkdir()
    for name, content in TINY_FILES.items():
        (folder / name).write_bytes(changed.get(Path(name).name, content))


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_an_archive_is_unpacked_once_and_read_from_the_folder_afterwards(tmp_path):
    archive = put(tmp_path, ARCHIVE)
    first = load_cifar(SOURCE, tmp_path, download=False)
    assert listing(tmp_path) == [
        "tiny-py",
        "tiny-py/data_batch_1",
        "tiny-py/data_batch_2",
        "tiny-py/test_batch",
        "tiny.tar.gz",
    ]
    archive.unlink()
    second = load_cifar(SOURCE, tmp_path, download=False)
    assert torch.equal(first.train.inputs, second.train.inputs)
    assert torch.equal(first.train.inputs, torch.cat([tiny_images(3, 1), tiny_images(3, 2)]))
    assert first.test.labels.tolist() == [0, 1]
    assert (first.classes, first.input_shape) == (3, (3, 32, 32))


def test_the_folder_itself_may_be_named(tmp_path):
    put_unpacked(tmp_path)
    assert len(load_cifar(SOURCE, tmp_path / "tiny-py", download=False).train) == 6


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("keys", [bytes, str])
def test_files_that_python_3_pickled_are_read_too(tmp_path, protocol, keys):
    images = tiny_images(3, 1)
    content = {"labels": [0, 1, 2], "data": images.flatten(1).numpy(), "filenames": [b"a.png"], "weight": 1.5}
    if keys is bytes:
        content = {key.encode(): value for key, value in content.items()}
    put_unpacked(tmp_path, data_batch_1=pickle.dumps(content, protocol=protocol))
    assert torch.equal(load_cifar(SOURCE, tmp_path).train.inputs[:3], images)


def test_fine_labels_are_those_of_cifar100(tmp_path):
    source = replace(SOURCE, train=("train",), test=("test",), samples=(3, 2), classes=100, label_key="fine_labels")
    (tmp_path / "tiny-py").mkdir()
    for name, count in (("train", 3), ("test", 2)):
        content = {
            b"coarse_labels": [1] * count,
            b"fine_labels": [99] * count,
            b"data": np.zeros((count, 3072), np.uint8),
        }
        (tmp_path / "tiny-py" / name).write_bytes(pickle.dumps(content, protocol=2))
    assert load_cifar(source, tmp_path).train.labels.tolist() == [99, 99, 99]


def test_the_official_sources_say_what_is_published():
    assert CIFAR10.samples == CIFAR100.samples == (50_000, 10_000)
    assert (CIFAR10.classes, CIFAR100.classes) == (10, 100)
    assert CIFAR10.archive.addresses[0].startswith("https://www.cs.toronto.edu/")


def test_without_a_network_the_error_says_which_file_to_put_where(tmp_path):
    for download in (False, True):
        with pytest.raises(FileNotFoundError) as caught:
            load_cifar(SOURCE, tmp_path / "data", download=download)
        assert str(tmp_path / "data" / "tiny.tar.gz") in str(caught.value)
        assert "put it there yourself; it is published at http://127.0.0.1:9/tiny.tar.gz" in str(caught.value)
    assert listing(tmp_path) == []
    with pytest.raises(FileNotFoundError, match=r"cifar-10-python\.tar\.gz: .* and downloads are off"):
        load("cifar10", tmp_path, download=False)


def test_an_archive_of_another_checksum_is_refused_before_it_is_opened(tmp_path):
    path = put(tmp_path, tar_gz({**TINY_FILES, "tiny-py/more": b""}))
    with pytest.raises(ValueError, match=r"its md5 is .*Delete it and fetch it again") as caught:
        load_cifar(SOURCE, tmp_path)
    assert str(path) in str(caught.value)
    assert listing(tmp_path) == ["tiny.tar.gz"]


def outcome_of(archive: bytes, *, trusted: bool) -> str:
    """The result of loading a damaged archive; `trusted` if its checksum matches."""
    source = tiny_source(archive) if trusted else SOURCE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = put(folder, archive)
        try:
            task = load_cifar(source, folder, download=False)
        except ValueError as error:
            said = str(error)
        else:
            assert torch.equal(task.train.inputs, torch.cat([tiny_images(3, 1), tiny_images(3, 2)]))
            return "read"
        assert str(path) in said
        assert "Delete it and fetch it again" in said
        assert listing(folder) == ["tiny.tar.gz"]
        return "refused"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(length=st.integers(0, len(ARCHIVE) - 1), trusted=st.booleans())
def test_a_truncated_archive_is_refused_wherever_it_ends(length, trusted):
    assert outcome_of(ARCHIVE[:length], trusted=trusted) == "refused"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(place=st.integers(0, len(ARCHIVE) - 1), bit=st.integers(0, 7))
def test_an_archive_with_a_flipped_bit_is_refused(place, bit):
    damaged = bytearray(ARCHIVE)
    damaged[place] ^= 1 << bit
    assert outcome_of(bytes(damaged), trusted=False) == "refused"
    # even with a matching checksum, what is accepted is complete (for example, a bit of gzip's time stamp)
    assert outcome_of(bytes(damaged), trusted=True) in ("refused", "read")


@settings(max_examples=30, deadline=None, derandomize=True)
@given(junk=st.binary(max_size=600))
def test_junk_is_refused(junk):
    assert outcome_of(junk, trusted=True) == "refused"


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


@pytest.mark.parametrize(
    ("special", "message"),
    [
        (entry("../escaped", size=3), "'../escaped' leads outside"),
        (entry("/autogd-escaped", size=3), "leads outside"),
        (entry("tiny-py/../../escaped", size=3), "leads outside"),
        (entry("tiny-py/data_batch_1", tarfile.SYMTYPE, "/etc/passwd"), "is a link or a device"),
        (entry("tiny-py/data_batch_1", tarfile.LNKTYPE, "/etc/passwd"), "is a link or a device"),
        (entry("tiny-py", tarfile.SYMTYPE, "/etc"), "is a link or a device"),
        (entry("tiny-py/pipe", tarfile.FIFOTYPE), "is a link or a device"),
        (entry("tiny-py/disk", tarfile.BLKTYPE), "is a link or a device"),
    ],
)
def test_an_archive_that_reaches_outside_is_refused_and_writes_nothing(tmp_path, special, message):
    folder = tmp_path / "inner"
    folder.mkdir()
    archive = tar_gz(TINY_FILES, (special,))
    put(folder, archive)
    with pytest.raises(ValueError, match=message):
        load_cifar(tiny_source(archive), folder)
    assert listing(tmp_path) == ["inner", "inner/tiny.tar.gz"]
    assert not Path("/autogd-escaped").exists()


def test_an_archive_that_unpacks_to_far_more_than_the_set_holds_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("autogd.data.fetch.LIMIT", 1 << 22)
    archive = tar_gz(TINY_FILES, (entry("tiny-py/bomb", size=1 << 23),))
    assert len(archive) < 100_000
    put(tmp_path, archive)
    with pytest.raises(ValueError, match="unpacks to more than 4194304 bytes"):
        load_cifar(tiny_source(archive), tmp_path)
    assert listing(tmp_path) == ["tiny.tar.gz"]


def old_sparse(name: str, real: int) -> bytes:
    """A member as GNU tar once wrote sparse files: 512 bytes of data behind a hole."""
    info = entry(name, tarfile.GNUTYPE_SPARSE, size=512)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"%011o\0%011o\0" % (real - 512, 512)
    header[483:495] = b"%011o\0" % real
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + b"x" * 512


def new_sparse(name: str, real: int) -> bytes:
    """The same as it writes them now: a plain member whose data begin with a map."""
    info = entry(name, size=1024)
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": name}
    info.pax_headers["GNU.sparse.realsize"] = str(real)
    content = b"1\n%d\n512\n" % (real - 512)
    return info.tobuf(tarfile.PAX_FORMAT) + content.ljust(512, b"\0") + b"x" * 512


@pytest.mark.parametrize("sparse", [old_sparse, new_sparse])
def test_a_sparse_member_is_refused_before_its_holes_are_written(tmp_path, monkeypatch, sparse):
    monkeypatch.setattr("shutil.copyfileobj", lambda *_: pytest.fail("it wrote"))
    archive = gzip.compress(sparse("tiny-py/data_batch_1", 1 << 40) + bytes(1024))
    assert len(archive) < 1000
    put(tmp_path, archive)
    with pytest.raises(ValueError, match="'tiny-py/data_batch_1' is a sparse file"):
        load_cifar(tiny_source(archive), tmp_path)
    assert listing(tmp_path) == ["tiny.tar.gz"]


def test_an_archive_of_endless_members_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("autogd.data.fetch.MEMBERS", 10)
    archive = tar_gz(TINY_FILES, tuple(entry(f"tiny-py/{i}") for i in range(7)))
    put(tmp_path, archive)
    with pytest.raises(ValueError, match="more than 10 members"):
        load_cifar(tiny_source(archive), tmp_path)


def test_an_archive_without_one_of_its_files_is_refused(tmp_path):
    archive = tar_gz({name: content for name, content in TINY_FILES.items() if "test" not in name})
    put(tmp_path, archive)
    with pytest.raises(ValueError, match="test_batch not in it"):
        load_cifar(tiny_source(archive), tmp_path)


def test_what_another_process_unpacked_meanwhile_is_left_alone(tmp_path, monkeypatch):
    put(tmp_path, ARCHIVE)
    rename = Path.rename

    def late(self, target):
        put_unpacked(tmp_path)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    assert len(load_cifar(SOURCE, tmp_path).train) == 6
    assert not [name for name in listing(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (tiny_batch(2), r"expected 3 images .* found \(2, 3072\)"),
        (Python2Pickle().batch(tiny_images(3), [0, 1, 3], "labels"), "labels must be integers from 0 to 2"),
        (Python2Pickle().batch(tiny_images(3), [0, -1, 2], "labels"), "labels must be integers"),
        (Python2Pickle().batch(tiny_images(3), [0, 1, 2], "names"), "expected 'data' and 'labels', found"),
        (pickle.dumps([1], protocol=2), "expected a dictionary, found a list"),
        (pickle.dumps({}, protocol=2), "found nothing"),
        (pickle.dumps({"data": np.zeros((3, 3072)), "labels": [0, 1, 2]}, protocol=2), "torch.float64"),
        (pickle.dumps({"data": [1], "labels": [0, 1, 2]}, protocol=2), "expected 'data'"),
    ],
)
def test_a_file_with_other_content_is_refused_by_name(tmp_path, batch, message):
    put_unpacked(tmp_path, data_batch_2=batch)
    with pytest.raises(ValueError, match=message) as caught:
        load_cifar(SOURCE, tmp_path)
    assert str(tmp_path / "tiny-py" / "data_batch_2") in str(caught.value)
    assert "put tiny.tar.gz beside it" in str(caught.value)


def test_a_download_is_checked_unpacked_and_kept(tmp_path, serve):
    source = tiny_source(ARCHIVE, serve("tiny.tar.gz", ARCHIVE))
    assert len(load_cifar(source, tmp_path / "new").train) == 6
    kept = (tmp_path / "new" / "tiny.tar.gz").read_bytes()
    assert hashlib.md5(kept).hexdigest() == source.archive.md5


@pytest.mark.parametrize("served", ["another file", "half of it", "nothing"])
def test_a_download_that_goes_wrong_leaves_nothing_behind(tmp_path, serve, served):
    address = serve("elsewhere", b"").replace("elsewhere", "tiny.tar.gz")
    if served == "another file":
        serve("tiny.tar.gz", ARCHIVE[:-1] + b"?")
    if served == "half of it":
        serve("tiny.tar.gz", ARCHIVE[: len(ARCHIVE) // 2], promise=len(ARCHIVE))
    with pytest.raises(FileNotFoundError, match="could not be downloaded; put it there yourself"):
        load_cifar(tiny_source(ARCHIVE, address), tmp_path / "deep" / "new")
    assert listing(tmp_path) == []


def test_the_second_address_serves_where_the_first_does_not(tmp_path, serve):
    source = tiny_source(ARCHIVE, serve("tiny.tar.gz", ARCHIVE))
    first = source.archive.addresses[0].replace("tiny.tar.gz", "gone")
    archive = replace(source.archive, addresses=(first, *source.archive.addresses))
    assert len(load_cifar(replace(source, archive=archive), tmp_path).test) == 2
