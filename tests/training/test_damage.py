"""Files may change on the disk: every file of a checkpoint, every line of the records."""

import json
import random
import shlex
import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from autogd.training import Config, Run, checkpoint, train
from patience import run_child
from training.conftest import Crash, contents, reseal

FILES = {".metadata", "__0_0.distcp", "manifest.json", "state.json"}


def stepped(seed=0):
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimiser.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimiser.step()
    return model, optimiser


@pytest.fixture
def saved(tmp_path):
    return checkpoint.save(tmp_path, 1, *stepped(), {"epoch": 1})


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    config = Config(depth=2, width=8, epochs=3, batch_size=320)
    run = Run.create(config, tmp_path_factory.mktemp("crashed") / "run")
    with pytest.raises(InterruptedError):
        train(run, [Crash(10)])
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-000000004", "step-000000008"]
    return run


@pytest.fixture
def half(crashed, tmp_path):
    """A run that crashed in its third epoch, with two checkpoints and two lines of records."""
    return Run(shutil.copytree(crashed.path, tmp_path / "half"))


@pytest.fixture(scope="module")
def whole(crashed, tmp_path_factory):
    """The weights of the run that did not crash."""
    run = Run.create(crashed.config(), tmp_path_factory.mktemp("whole") / "run")
    train(run)
    return load_file(run.path / "weights.safetensors")


def flip(path, place, bit):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def test_each_of_three_hundred_flipped_bits_is_found_its_file_is_named_and_no_weight_is_changed(saved):
    assert {path.name for path in saved.iterdir()} == FILES
    model, optimiser = stepped(seed=1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    draws = random.Random(0)
    for name in sorted(FILES) * 75:
        path = saved / name
        good = path.read_bytes()
        flip(path, draws.randrange(len(good)), draws.randrange(8))
        with pytest.raises(ValueError, match=r"manifest\.json|is damaged") as caught:
            checkpoint.load(saved, model, optimiser)
        assert name in str(caught.value)
        path.write_bytes(good)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert checkpoint.load(saved, model, optimiser) == {"epoch": 1}
    assert torch.equal(model.weight, stepped()[0].weight)


@pytest.mark.parametrize("name", sorted(FILES - {"manifest.json"}))
@pytest.mark.parametrize("how", ["cut", "gone", "longer", "a link"])
def test_a_file_that_is_not_as_it_was_written_is_named(name, how, saved, tmp_path):
    path = saved / name
    if how == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "gone":
        path.unlink()
    elif how == "longer":
        path.write_bytes(path.read_bytes() + b"\0")
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    said = {"gone": "cannot be read", "a link": "is not a plain file"}.get(how, "is damaged")
    with pytest.raises(ValueError, match=f"{saved}: {name} {said}"):
        checkpoint.load(saved, *stepped())


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_damaged_checkpoint_leaves_everything_as_it_is_and_offers_the_one_before(name, half, whole):
    path = half.checkpoints / "step-000000008" / name
    flip(path, path.stat().st_size // 2, 3)
    before = contents(half.path)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"Nothing was changed\. step-000000004, the one before it") as caught:
            train(half)
        assert name in str(caught.value)
    assert contents(half.path) == before
    command = str(caught.value).partition("to continue from there: ")[2].removesuffix(", and resume")
    assert run_child(shlex.split(command)).returncode == 0
    assert train(half)["epochs"] == 3
    assert [line["epoch"] for line in half.metrics()] == [1, 2, 3]
    resumed = load_file(half.path / "weights.safetensors")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    aside = half.checkpoints / "damaged-step-000000008"
    assert contents(aside) == {aside / p.name: c for p, c in before.items() if p.parent.name == "step-000000008"}


def test_if_no_checkpoint_is_whole_the_error_says_so(half):
    for folder in half.checkpoints.iterdir():
        flip(folder / "__0_0.distcp", 100, 0)
    before = contents(half.path)
    with pytest.raises(ValueError, match="There is no undamaged checkpoint before it: start the run again"):
        train(half)
    assert contents(half.path) == before


def test_a_checkpoint_without_a_manifest_is_refused_with_the_reason(half):
    for folder in half.checkpoints.iterdir():
        (folder / "manifest.json").unlink()
    with pytest.raises(
        ValueError, match=r"without a manifest is from an older version.*finish the run with the version"
    ):
        train(half)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("momentum_buffer", "momentum_bufger", "no key 'optimiser/state/0/momentum_bufger' .perhaps 'opt.*_buffer'"),
        ('"param_groups"', '"param_grovps"', "no key 'optimiser/param_grovps' .perhaps 'optimiser/param_groups'"),
        ('"rest":', '"test":', "there is no key 'test' .perhaps 'rest'"),
        ('["momentum", 0.9]', '["momentum", "0.9"]', "'optimiser/param_groups/0/momentum': expected float, found str"),
        ('["epoch", 1]', '["epoch", null]', "'rest/epoch': expected int, found NoneType"),
        ('["epoch", 1]', '["epoch", {"list": []}]', "'rest/epoch': expected int, found list"),
        ('["epoch", 1]', '["epoch", [1]]', "'rest/epoch': expected a value or an object of one key, found a list"),
        ('["epoch", 1]', '["epoch", {}]', "'rest/epoch': expected one of dict, list, tuple, tensor"),
        ('["epoch", 1]', '["epoch", 1], ["epoch", 1]', "'rest/epoch': appears twice"),
        ('["epoch", 1]', '["epoch"]', "'rest': expected pairs of key and value"),
        ('["epoch", 1]', '["epoch", 1], ["more", 1]', "there is no key 'rest/more'"),
        ('["epoch", 1]', "", "the key 'rest/epoch' is missing"),
        ('["epoch", 1]', '["epoch", ' + '{"list": [' * 40 + "]}" * 40 + "]", "more levels, characters or values"),
        ('["epoch", 1]', '["epoch", ' + "[" * 90_000 + "]" * 90_000 + "]", "not JSON"),
        ('{"tensor": "optimiser/state/0/', '{"tensor": "optimiser/state/1/', "expected the tensor of this name"),
        ('{"tensor": "optimiser/state/0/momentum_buffer"}', "null", "expected tensor, found NoneType"),
    ],
)  # fmt: skip
def test_a_state_with_other_names_or_kinds_is_refused_by_key_and_file(old, new, message, saved):
    path = saved / "state.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    for sealed in (False, True):  # damage, with and without matching checksums
        if sealed:
            reseal(saved)
        with pytest.raises(ValueError, match=message) as caught:
            checkpoint.load(saved, *stepped())
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["epoch", 3]', '["epoch", 0]', "'epoch': expected at least 1, found 0"),
        ('["epoch", 3]', '["epoch", 5]', "'epoch': expected at most 4, found 5"),
        ('["done", 0]', '["done", -1]', "'done': expected at least 0, found -1"),
        ('["seconds", 0.0]', '["seconds", NaN]', "'seconds': expected at least 0, found nan"),
        ('["seconds", 0.0]', '["seconds", Infinity]', "'seconds': expected a finite number"),
    ],
)
def test_a_run_does_not_go_on_from_a_place_that_it_has_not(old, new, message, half):
    path = half.checkpoints / "step-000000008" / "state.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    reseal(path.parent)
    before = contents(half.path)
    with pytest.raises(ValueError, match=f"{path}: rest: {message}"):
        train(half)
    assert contents(half.path) == before


def test_emptied_records_are_a_warning_and_training_goes_on(half):
    (half.path / "metrics.jsonl").write_text("")
    with pytest.warns(UserWarning, match=r"metrics\.jsonl: has no line for epoch 1, 2, though the checkpoint is later"):
        summary = train(half)
    assert summary["epochs"] == 3
    assert [line["epoch"] for line in half.metrics()] == [3]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"seconds"', '"sfconds"', r"there is no key 'sfconds' \(perhaps 'seconds'\)"),
        ('"epoch": 2', '"epoch": 0', "'epoch': expected at least 1, found 0"),
        ('"epoch": 2', '"epoch": 1', "epoch 1 comes after epoch 1"),
        ('"epoch": 2', '"epoch": "2"', "'epoch': expected int, found '2'"),
        ('"epoch": 2, ', "", "the key 'epoch' is missing"),
        ('"step": 8, ', "", "the key 'step' is missing"),
        ("{", "[", "not JSON"),
        ("}", "\r}", None),  # white space
        ("}", "\r", "not JSON"),
        ('"seconds": ', '"seconds": -', "'seconds': expected at least 0"),
    ],
)
def test_a_damaged_line_of_records_is_an_error_with_the_way_out(old, new, message, half):
    path = half.path / "metrics.jsonl"
    first, second = path.read_text().splitlines(keepends=True)
    assert old in second
    path.write_bytes((first + second.replace(old, new)).encode())
    if message is None:
        assert train(half)["epochs"] == 3
        return
    before = contents(half.path)
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"{path}, line 2: {message}.*Mend the line, or remove it") as caught:
            train(half)
    assert contents(half.path) == before
    command = shlex.split(str(caught.value).partition("numbers: ")[2])
    assert command[:2] == ["sed", "-i"]
    path.write_text(first)  # the effect of that sed command
    with pytest.warns(UserWarning, match="no line for epoch 2,"):
        train(half)
    assert [line["epoch"] for line in half.metrics()] == [1, 3]


def test_a_damaged_summary_is_an_error_with_the_way_out(small, trained):
    run = trained(small(epochs=1))
    path = run.path / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(path.read_text().replace('"status"', '"stbtus"'))
    with pytest.raises(ValueError, match=rf"{path}: 'status': expected finished or diverged.*rm {path}, and resume"):
        train(run)
    path.unlink()
    assert train(run) == summary


def test_a_full_disk_while_the_manifest_is_written_leaves_the_checkpoint_before(saved, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("autogd.training.manifest.write", full)
    with pytest.raises(OSError, match=r"could not be written .*the one before it is untouched"):
        checkpoint.save(tmp_path, 2, *stepped(), {})
    assert [path.name for path in tmp_path.iterdir()] == [saved.name]
    shutil.copytree(saved, tmp_path / "draft-000000003")  # a crash leaves one, and it is not taken for a checkpoint
    assert checkpoint.latest(tmp_path) == saved
