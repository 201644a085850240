import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autogd.data import load

ALPHABET = "abc déf\n☃😀"


def decode(task, codes):
    return "".join(task.vocabulary[code] for code in codes.tolist())


def test_windows_are_the_text_and_labels_the_text_a_character_on(tmp_path):
    text = "".join(ALPHABET[i * i % len(ALPHABET)] for i in range(1000))
    path = tmp_path / "a.txt"
    path.write_text(text, encoding="utf-8")
    task = load("text", path, context=16)
    assert task.vocabulary == "".join(sorted(set(text)))
    assert (task.classes, task.input_shape) == (len(set(text)), (16,))
    inputs, labels = task.train.batch(torch.tensor([0, 5, len(task.train) - 1]))
    assert inputs.dtype == labels.dtype == torch.int64
    assert decode(task, inputs[1]) == text[5:21]
    assert decode(task, labels[1]) == text[6:22]
    assert decode(task, labels[2]) == text[884:900]
    assert decode(task, task.test.batch(torch.tensor([0]))[0][0]) == text[900:916]
    assert torch.equal(task.prepare(inputs), inputs)
    assert len(task.train) + len(task.test) == 1000 - 2 * 16


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    (tmp_path / "b.txt").write_text("b" * 500)
    (tmp_path / "a.txt").write_text("a" * 500)
    (tmp_path / "notes.md").write_text("z")
    task = load("text", tmp_path, context=8)
    assert task.vocabulary == "ab"
    assert decode(task, task.train.batch(torch.tensor([496]))[0][0]) == "aaaabbbb"


def test_a_byte_order_mark_is_no_character(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + b"ab" * 500)
    assert load("text", path).vocabulary == "ab"


def test_a_large_vocabulary_is_kept_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(chr(0x4E00 + i) for i in range(1000)), encoding="utf-8")
    task = load("text", path, context=4)
    assert task.classes == 1000
    assert task.train.batch(torch.tensor([899 - 4]))[1][0].tolist() == [896, 897, 898, 899]


@pytest.mark.parametrize(
    ("content", "context", "message"),
    [
        (b"ab\xff" + b"x" * 1000, 64, r"a\.txt: not UTF-8: invalid start byte at byte 2"),
        (b"x" * 640, 64, r"a\.txt: 640 characters are too few"),
        (b"", 64, r"a\.txt: 0 characters are too few"),
        (b"x" * 1000, 0, "context: a sample has at least one character, found 0"),
    ],
)
def test_a_text_that_cannot_serve_is_refused_by_name(tmp_path, content, context, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load("text", tmp_path / "a.txt", context=context)


def test_no_text_is_an_error_that_says_what_to_name(tmp_path):
    for place in (tmp_path, tmp_path / "absent.txt"):
        with pytest.raises(FileNotFoundError, match="name a UTF-8 file"):
            load("text", place)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(content=st.binary(min_size=200, max_size=400))
def test_bytes_of_any_kind_are_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(content)
    try:
        task = load("text", path, context=4)
    except ValueError as error:
        said = str(error)
    else:
        assert task.classes == len(task.vocabulary)
        return
    assert str(path) in said
