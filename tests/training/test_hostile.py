"""A checkpoint may come from an attacker who has updated its checksums."""

import json
import math
import pathlib
import pickle

import pytest
import torch
from torch import nn

from autogd.training import checkpoint
from training.conftest import reseal

WEIGHT = "model/weight"


def stepped():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimiser = torch.optim.SGD(model.parameters(), momentum=0.9)
    model(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    return model, optimiser


@pytest.fixture
def saved(tmp_path):
    return checkpoint.save(tmp_path / "run", 1, *stepped(), {"epoch": 1})


def chunk(body, name=WEIGHT):
    return body["tensors"][name]["chunks"][0]


CHANGES = {
    "a path upwards": (
        lambda body: body["files"].update({"../../x": body["files"]["state.json"]}),
        r"files: '\.\./\.\./x': expected the plain name of a file",
    ),
    "a path from the root": (
        lambda body: body["files"].update({"/etc/passwd": body["files"]["state.json"]}),
        "files: '/etc/passwd': expected the plain name",
    ),
    "the folder above": (
        lambda body: body["files"].update({"..": body["files"]["state.json"]}),
        "expected the plain name",
    ),
    "a tensor upwards": (lambda body: chunk(body).update(file="../../x"), "lies outside of the checkpoint's files"),
    "a file that is not listed": (lambda body: chunk(body).update(file="y"), "lies outside of the checkpoint's files"),
    "past the end of a file": (
        lambda body: chunk(body).update(start=1 << 40),
        "lies outside of the checkpoint's files",
    ),
    "before a file": (lambda body: chunk(body).update(start=-8), "'start': expected at least 0, found -8"),
    "a place that is no number": (lambda body: chunk(body).update(start=True), "'start': expected int, found 'True'"),
    "other lengths": (lambda body: chunk(body).update(bytes=4), "4 bytes are not a float32"),
    "a part outside": (lambda body: chunk(body).update(offsets=[1, 1]), "chunk 0: lies outside of a tensor"),
    "fewer dimensions": (lambda body: chunk(body).update(offsets=[0]), "chunk 0: lies outside of a tensor"),
    "a huge tensor": (
        lambda body: body["tensors"][WEIGHT].update(size=[1 << 40, 3]),
        "its chunks do not make up a tensor",
    ),
    "a tensor without parts": (
        lambda body: body["tensors"][WEIGHT].update(chunks=[]),
        "its chunks do not make up a tensor",
    ),
    "the same part twice": (
        lambda body: body["tensors"][WEIGHT].update(chunks=2 * body["tensors"][WEIGHT]["chunks"]),
        "two chunks begin at the same place",
    ),
    "the same bytes a thousand times": (
        lambda body: body["tensors"].update({f"model/{i}": body["tensors"][WEIGHT] for i in range(1000)}),
        "they have more bytes than the files hold",
    ),
    "no list of lengths": (
        lambda body: body["tensors"][WEIGHT].update(size=[-1]),
        "'size': expected a list of at most 64",
    ),
    "dimensions without end": (
        lambda body: body["tensors"][WEIGHT].update(size=[1] * 65),
        "expected a list of at most",
    ),
    "an unknown type": (
        lambda body: body["tensors"][WEIGHT].update(dtype="load"),
        "'load' is not a dtype of torch",
    ),
    "another type": (lambda body: body["tensors"][WEIGHT].update(dtype="float64"), "bytes are not a float64"),
    "a key too many": (lambda body: chunk(body).update(transform="zip"), "chunk 0: there is no key 'transform'"),
    "a key too few": (lambda body: body.pop("names"), "the key 'names' is missing"),
    "an unknown kind": (lambda body: body["names"].update({"rest/epoch": "call"}), "expected one of dict, list"),
    "a kind that is none": (lambda body: body["names"].update({"rest/epoch": ["int"]}), "expected one of dict, list"),
    "a tensor that is not there": (lambda body: body["names"].update({"a": "tensor"}), "names: 'a': there is no such"),
    "another format": (lambda body: body.update(format=2), "'format': expected at most 1, found 2"),
    "another byte order": (lambda body: body.update(byteorder="big"), "other byte order"),
    "a checksum that is none": (
        lambda body: body["files"]["state.json"].update(sha256="A" * 64),
        "expected 64 hexadecimal digits",
    ),
    "lists within lists": (
        lambda body: body["tensors"].update(a=eval("[" * 90 + "]" * 90)),
        "tensors: 'a': expected an object, found a list",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_manifest_that_says_anything_else_is_refused_before_a_weight_is_changed(what, saved):
    change, message = CHANGES[what]
    reseal(saved, change)
    model, optimiser = stepped()
    nn.init.zeros_(model.weight)
    with pytest.raises(ValueError, match=message) as caught:
        checkpoint.load(saved, model, optimiser)
    assert str(saved / "manifest.json") in str(caught.value)
    assert not model.weight.any()


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 90_000, '{"a": ' * 90_000, "9" * 10_000, "\0"])
def test_a_manifest_that_is_something_else_is_refused(text, saved):
    (saved / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=r"manifest\.json: (not JSON|expected an object)"):
        checkpoint.load(saved, *stepped())


def test_a_manifest_nested_too_deep_to_write_again_is_refused(saved):
    path = saved / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"names": {', '"names": {"a": ' + "[" * 900 + "]" * 900 + ", "))
    with pytest.raises(ValueError, match=r"manifest\.json"):
        checkpoint.load(saved, *stepped())


def test_a_manifest_larger_than_any_is_not_even_read(saved, monkeypatch):
    monkeypatch.setattr("autogd.training.schema.LIMIT", 100)
    with pytest.raises(ValueError, match=r"manifest\.json: \d+ bytes are more than such a file has"):
        checkpoint.load(saved, *stepped())


def test_a_hostile_index_of_torch_is_not_unpickled(saved, monkeypatch):
    """It would set `_str` on PosixPath with BUILD, and then act as a valid index."""
    index = saved / ".metadata"
    hostile = b"\x80\x02cpathlib\nPosixPath\n(N}X\x04\x00\x00\x00_strX\x07\x00\x00\x00/victimstb0"
    index.write_bytes(hostile + index.read_bytes()[2:])
    with pytest.raises(ValueError, match=r"\.metadata is damaged"):
        checkpoint.load(saved, *stepped())
    reseal(saved)
    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("it unpickled"))
    assert checkpoint.load(saved, *stepped()) == {"epoch": 1}
    assert str(pathlib.Path("scratch")) == "scratch"


def test_a_path_of_torch_s_index_leads_nowhere(saved, tmp_path):
    found = pickle.loads((saved / ".metadata").read_bytes())
    for place in found.storage_data.values():
        place.relative_path = "../../secret"
    (tmp_path / "secret").write_bytes((saved / "__0_0.distcp").read_bytes())
    (saved / ".metadata").write_bytes(pickle.dumps(found))
    (saved / "__0_0.distcp").unlink()
    with pytest.raises(ValueError, match=r"__0_0\.distcp cannot be read"):
        checkpoint.load(saved, *stepped())


def test_the_pickles_in_torch_s_archives_are_not_read(saved):
    """Every byte outside the tensors is overwritten; the weights still load."""
    path = saved / "__0_0.distcp"
    body = json.loads((saved / "manifest.json").read_text())
    content = path.read_bytes()
    kept = bytearray(b"\x80\x02cposix\nsystem\n." * math.ceil(len(content) / 18))[: len(content)]
    for name in body["tensors"]:
        part = slice(chunk(body, name)["start"], chunk(body, name)["start"] + chunk(body, name)["bytes"])
        kept[part] = content[part]
    path.write_bytes(kept)
    reseal(saved)
    model, optimiser = stepped()
    weight = model.weight.detach().clone()
    nn.init.zeros_(model.weight)
    assert checkpoint.load(saved, model, optimiser) == {"epoch": 1}
    assert torch.equal(model.weight, weight)
