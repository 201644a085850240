import gzip
import struct
import tempfile
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autogd.data import load
from autogd.data.idx import FASHION_MNIST, MNIST, load_idx, read_idx
from data.conftest import idx_bytes

IMAGES = torch.randint(0, 256, (12, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12, dtype=torch.uint8) % 10
TINY = replace(MNIST, samples=(12, 12), side=5, first_labels=("0123456789", "0123456789"))


@pytest.fixture
def write_set(write_idx):
    def write(folder: str = "mnist", suffix: str = ".gz") -> None:
        for file in TINY.files:
            array = IMAGES if "images" in file.name else LABELS
            write_idx(array, file.name.removesuffix(".gz") + suffix, folder)

    return write


@pytest.mark.parametrize("name", ["array", "array.gz"])
@pytest.mark.parametrize("shape", [(7,), (4, 3), (2, 3, 4), (2, 3, 2, 2)])
def test_what_is_written_is_read(write_idx, name, shape):
    array = torch.randint(0, 256, shape, dtype=torch.uint8)
    assert torch.equal(read_idx(write_idx(array, name)), array)


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_a_set_is_found_where_it_usually_lies(tmp_path, write_set, folder, suffix):
    write_set(folder, suffix)
    task = load_idx(TINY, tmp_path, download=False)
    assert torch.equal(task.train.inputs, IMAGES.unsqueeze(1))
    assert task.test.labels.tolist() == LABELS.tolist()
    assert (task.input_shape, task.classes, task.augment) == ((1, 5, 5), 10, None)


def test_a_missing_file_is_named_with_its_place_and_its_addresses(tmp_path, write_set):
    write_set()
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        load_idx(TINY, tmp_path, download=False)
    assert str(tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz") in str(caught.value)
    assert "cvdf-datasets/mnist/t10k-labels-idx1-ubyte.gz" in str(caught.value)


def test_only_what_is_missing_is_downloaded(tmp_path, write_set, serve):
    import hashlib

    write_set()
    packed = gzip.compress(idx_bytes(LABELS))
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    address = serve("labels", packed)
    last = replace(TINY.files[3], addresses=(address,), md5=hashlib.md5(packed).hexdigest())
    task = load_idx(replace(TINY, files=(*TINY.files[:3], last)), tmp_path)
    assert task.test.labels.tolist() == LABELS.tolist()


def test_one_set_is_not_taken_for_the_other(tmp_path, write_set):
    write_set(".")
    other = replace(TINY, name="fashion-mnist", folders=FASHION_MNIST.folders, first_labels=("9" * 10, "9" * 10))
    with pytest.raises(ValueError, match="not the labels of fashion-mnist: they begin with 0123456789"):
        load_idx(other, tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_sets_of_another_size_are_refused(tmp_path, write_set, name):
    write_set(name)
    with pytest.raises(ValueError, match=r"expected an array of shape \(60000, 28, 28\), found \(12, 5, 5\)"):
        load(name, tmp_path)


def damaged(content: bytes, packed: bool) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "array.gz" if packed else "array")
        path.write_bytes(content)
        try:
            found = read_idx(path)
        except ValueError as error:
            said = str(error)
        else:
            return "read" if torch.equal(found, IMAGES) else "changed"
        assert str(path) in said
        assert "Delete it and fetch it again" in said
        return "refused"


PLAIN = idx_bytes(IMAGES)
PACKED = gzip.compress(PLAIN)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data())
@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_file_is_refused_wherever_it_ends(packed, data):
    content = PACKED if packed else PLAIN
    assert damaged(content[: data.draw(st.integers(0, len(content) - 1))], packed) == "refused"


@settings(max_examples=150, deadline=None, derandomize=True)
@given(place=st.integers(0, len(PACKED) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_in_a_gzipped_file_never_changes_a_pixel(place, bit):
    content = bytearray(PACKED)
    content[place] ^= 1 << bit
    assert damaged(bytes(content), True) in ("refused", "read")


@settings(max_examples=100, deadline=None, derandomize=True)
@given(place=st.integers(0, 15), bit=st.integers(0, 7))
def test_a_flipped_bit_in_a_plain_header_is_refused(place, bit):
    content = bytearray(PLAIN)
    content[place] ^= 1 << bit
    assert damaged(bytes(content), False) == "refused"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PLAIN + b"x", "more follows after the 300 bytes"),
        (struct.pack(">HBB3I", 0, 8, 3, *[2**32 - 1] * 3), "its header gives 4294967295 × 4294967295 × 4294967295"),
        (struct.pack(">HBB1I", 0, 8, 1, 2**30), "it ends after 0 of 1073741824 bytes"),
        (struct.pack(">HBB2I", 0, 8, 2, 0, 5), "its header gives 0 × 5"),
        (struct.pack(">HBB1I", 0, 13, 1, 1) + b"abcd", "it begins with 00000d01"),
        (struct.pack(">HBB", 0, 8, 255), "it begins with 000008ff"),
        (b"", "it ends after 0 of 4 bytes"),
    ],
)
def test_a_header_that_cannot_be_true_is_refused_without_reserving_memory(tmp_path, packed, content, message):
    path = tmp_path / "array"
    path.write_bytes(gzip.compress(content) if packed else content)
    tracemalloc.start()
    with pytest.raises(ValueError, match=message):
        read_idx(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_small_file_that_unpacks_without_end_is_refused_early(tmp_path, monkeypatch):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(PLAIN + bytes(1 << 26)))
    tracemalloc.start()
    with pytest.raises(ValueError, match="more follows"):
        read_idx(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
