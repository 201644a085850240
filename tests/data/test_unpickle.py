"""A pickle is a program: its result must be only arrays and plain containers."""

import os
import pickle
import pickletools
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autogd.data import unpickle
from autogd.data.unpickle import PickledArray, read_pickle
from data.conftest import tiny_batch, tiny_images

BATCH = tiny_batch(2)
PLAIN = PickledArray | bytes | str | int | float | list | tuple | dict | None


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pickles")


def read(folder: Path, content: bytes):
    path = folder / "batch"
    path.write_bytes(content)
    return read_pickle(path)


class Exploit:
    """Pickles to a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def hostile(canary: Path) -> dict[str, bytes]:
    """Pickles that would each create `canary`, in different ways."""
    command = f"touch {canary}".encode()
    touch = f"open({str(canary)!r}, 'w')"
    return {
        "a call of os.system": pickle.dumps({"data": Exploit(os.system, command.decode())}),
        "a call of eval": pickle.dumps({"data": Exploit(eval, touch)}, protocol=2),
        "a call of open": pickle.dumps({b"data": Exploit(open, str(canary), "w")}, protocol=4),
        "the text protocol": b"cos\nsystem\n(S'" + command + b"'\ntR.",
        "an instance of old": b"(S'" + command + b"'\nios\nsystem\n.",
        "an object of old": b"(cos\nsystem\nS'" + command + b"'\no.",
        "a new object": b"\x80\x02cbuiltins\neval\n(X" + struct.pack("<I", len(touch)) + touch.encode() + b"t\x81.",
        "a name in parts": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(command)]) + command + b"\x85R.",
        "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.tofile\x93.",
        "numpy's own loader": b"\x80\x02cnumpy\nload\nX"
        + struct.pack("<I", len(str(canary)))
        + str(canary).encode()
        + b"\x85R.",
        "an attribute by name": b"\x80\x02cbuiltins\ngetattr\ncnumpy\nndarray\nU\x07__new__\x86R.",
        "a codec that runs code": b"\x80\x02c_codecs\ndecode\nU\x02hiU\x03hex\x86R.",
        "another codec": b"\x80\x02c_codecs\nencode\nX\x02\x00\x00\x00hiX\x03\x00\x00\x00hex\x86R.",
        "an array of objects": pickle.dumps({"data": np.array([Exploit(eval, touch)], dtype=object)}, protocol=2),
        "an array of named fields": pickle.dumps({"data": np.zeros(2, dtype=[("a", "u1")])}, protocol=2),
        "numbers the wrong way round": pickle.dumps({"data": np.zeros(2, dtype=">i4")}, protocol=2),
        "an array in columns": pickle.dumps({"data": np.asfortranarray(np.zeros((2, 3)))}, protocol=2),
        "a name given a new meaning": b"\x80\x02cnumpy\ndtype\n}U\x05_callcnumpy\nndarray\nsb.",
        "a call of a name that is none": b"\x80\x02cnumpy\nndarray\nK\x01\x85R.",
        "an array of a made-up type": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nK\x00K\x00\x85U\x01b\x87R.",
        "an extension code": b"\x80\x02\x82\x01.",
        "a persistent name": b"\x80\x02U\x01aQ.",
        "bytes of any length": b"\x80\x02c__builtin__\nbytes\nJ\xff\xff\xff\x7f\x85R.",
        "a set": pickle.dumps({"data": {1, 2}}, protocol=4),
        "a buffer from outside": b"\x80\x05\x97.",
    }


@pytest.mark.parametrize("way", hostile(Path("canary")))
def test_a_hostile_pickle_is_refused_and_runs_nothing(tmp_path, way):
    canary = tmp_path / "canary"
    with pytest.raises(ValueError, match="batch: not a pickle of plain arrays"):
        read(tmp_path, hostile(canary)[way])
    assert not canary.exists()


def test_the_refusal_names_what_was_asked_for(tmp_path):
    with pytest.raises(ValueError, match=r"it asks for (posix|nt)\.system, which no array needs; nothing was run"):
        read(tmp_path, pickle.dumps({"data": Exploit(os.system, "true")}, protocol=2))


@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", "<i4", "<i8", "<f4", "<f8"])
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_come_back_as_numpy_wrote_them(tmp_path, dtype, protocol):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    found = read(tmp_path, pickle.dumps({b"data": array, b"empty": array[:0]}, protocol=protocol))
    assert torch.equal(found["data"].tensor(), torch.from_numpy(array))
    assert found["empty"].tensor().shape == (0, 3)


def test_the_instructions_of_python_2_are_understood(tmp_path):
    found = read(tmp_path, BATCH)
    assert found["labels"] == [0, 1]
    assert found["batch_label"] == b"training batch 1 of 2"
    assert torch.equal(found["data"].tensor().view(2, 3, 32, 32), tiny_images(2))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02Nr\xff\xff\xff\xff.",  # a memo entry at index 2³² − 1
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\x00\x00.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.",
        b"\x80\x02\x8b\xff\xff\xff\x7f.",
        b"\x80\x02T\xff\xff\xff\x7f.",
    ],
)
def test_a_promise_of_more_than_the_file_holds_costs_no_memory(tmp_path, content):
    tracemalloc.start()
    with pytest.raises(ValueError, match="not a pickle of plain arrays"):
        read(tmp_path, content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_file_larger_than_any_batch_is_not_even_read(tmp_path, monkeypatch):
    monkeypatch.setattr(unpickle, "LIMIT", 100)
    with pytest.raises(ValueError, match=r"batch: \d+ bytes are more than any batch of images has"):
        read(tmp_path, BATCH)


def folded(levels: int) -> bytes:
    """A dictionary whose key is a tuple of the same tuple twice, and so on: 8 bytes a level, and twice the work."""
    return b"\x80\x02}N\x85" + b"q\x010h\x01h\x01\x86" * levels + b"Ns."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (folded(24), "a container in two places"),
        (folded(200), "a container in two places"),
        (b"\x80\x02}N\x85Ns.", "a key that is not text"),
        (b"\x80\x02}K\x01Ns.", "a key that is not text"),  # numbers can be made to collide
        (b"\x80\x02}N" + b"\x85" * 200_000 + b"Ns.", "nested deeper than 16"),
        (b"\x80\x02}U\x01a" + b"]" * 20_000 + b"a" * 19_999 + b"s.", "nested deeper than 16"),
        (b"\x80\x02}U\x01a" + b"}U\x01a" * 20_000 + b"N" + b"s" * 20_001 + b".", "nested deeper than 16"),
        (b"\x80\x02" + b"(" * 20_000 + b"t" * 20_000 + b".", "nested deeper than 16"),
        (b"\x80\x02]q\x01h\x01a.", "a container in two places"),  # a list that holds itself
        (b"\x80\x02}q\x01U\x01ah\x01s.", "a container in two places"),
    ],
    ids=range(10),
)
def test_nesting_and_repetition_are_refused_before_they_cost_anything(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, content)


def test_more_instructions_than_any_file_of_images_has_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("autogd.data.pickle_machine.COUNT", 1000)
    assert read(tmp_path, b"\x80\x02" + b"N0" * 499 + b"}.") == {}
    with pytest.raises(ValueError, match="more than 1000 instructions"):
        read(tmp_path, b"\x80\x02" + b"N0" * 500 + b"}.")


def test_copies_cannot_add_up_to_more_than_the_file_holds(tmp_path):
    text = b"X" + struct.pack("<I", 1000) + b"a" * 1000
    again = b"c_codecs\nencode\nh\x01X\x06\x00\x00\x00latin1\x86R"
    once = b"\x80\x02}X\x01\x00\x00\x00a" + text + b"q\x010" + again + b"s."
    assert read(tmp_path, once) == {"a": b"a" * 1000}
    with pytest.raises(ValueError, match="more bytes than the file has"):
        read(tmp_path, b"\x80\x02}X\x01\x00\x00\x00a](" + text + b"q\x010" + again * 100 + b"es.")


def test_a_shape_of_huge_numbers_is_refused_before_it_is_multiplied_out(tmp_path):
    sides = b"\x8a\xff" + b"\x7f" * 255
    shape = b"(" + sides * 9 + b"t"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    state = b"(K\x01" + shape + dtype + b"\x89U\x00tb"
    with pytest.raises(ValueError, match="without a proper shape"):
        read(tmp_path, b"\x80\x02}U\x01a" + array + state + b"s.")


def survives(folder: Path, content: bytes) -> None:
    """The result is a plain dictionary, or a ValueError that names the file."""
    try:
        found = read(folder, content)
    except ValueError as error:
        said = str(error)
    else:
        assert isinstance(found, dict)
        assert all(
            isinstance(v, PickledArray | bytes | str | int | float | list | tuple | dict | None) for v in found.values()
        )
        return
    assert str(folder / "batch") in said


@settings(max_examples=150, deadline=None, derandomize=True)
@given(length=st.integers(0, len(BATCH) - 1))
def test_a_truncated_pickle_is_refused(folder, length):
    with pytest.raises(ValueError, match="not a pickle of plain arrays"):
        read(folder, BATCH[:length])


# most of the file is pixels, where a flipped bit is harmless: flip bits of the instructions around them
PROGRAM = [i for i in range(len(BATCH)) if i < 400 or i > len(BATCH) - 40]


@settings(max_examples=600, deadline=None, derandomize=True)
@given(place=st.sampled_from(PROGRAM), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_harmless(folder, place, bit):
    damaged = bytearray(BATCH)
    damaged[place] ^= 1 << bit
    survives(folder, bytes(damaged))


NAMES = ("numpy ndarray", "numpy dtype", "numpy.core.multiarray _reconstruct", "_codecs encode", "builtins eval")
PIECES = st.one_of(
    st.sampled_from([op.code.encode("latin1") for op in pickletools.opcodes if op.arg is None]),
    st.sampled_from([b"c" + name.replace(" ", "\n").encode() + b"\n" for name in NAMES]),
    st.sampled_from([b"K\x01", b"K\x00", b"U\x02u1", b"U\x01|", b"U\x01b", b"X\x02\x00\x00\x00u1", b"q\x01", b"h\x01"]),
)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(pieces=st.lists(PIECES, max_size=25))
def test_no_program_of_instructions_gets_through(folder, pieces):
    survives(folder, b"\x80\x02" + b"".join(pieces) + b".")
