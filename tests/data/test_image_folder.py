import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from autogd.data import ahead, load
from autogd.data import imagefolder as module
from autogd.data.imagefolder import ImageFolderSplit, centre_box, load_image_folder, random_box


def paint(path: Path, width: int = 40, height: int = 30, mode: str = "RGB", seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = random.Random(seed).randbytes(width * height * 3)
    Image.frombytes("RGB", (width, height), noise).convert(mode).save(path)


@pytest.fixture
def folder(tmp_path) -> Path:
    for i in range(3):
        paint(tmp_path / "train" / "n01" / f"{i}.JPEG", 40 + i, 30, seed=i)
        paint(tmp_path / "train" / "n02" / f"{i}.JPEG", 30, 50 + i, seed=9 + i)
    paint(tmp_path / "val" / "n02" / "a.JPEG")
    paint(tmp_path / "val" / "n01" / "b.png")
    (tmp_path / "train" / "n01" / "readme.txt").write_text("not an image")
    return tmp_path


def test_classes_are_the_folders_in_the_order_of_their_names(folder):
    task = load_image_folder(folder, size=16)
    assert (task.classes, task.input_shape, len(task.train), len(task.test)) == (2, (3, 16, 16), 6, 2)
    inputs, labels = task.train.batch(torch.tensor([5, 0]))
    assert labels.tolist() == [1, 0]
    assert inputs.shape == (2, 3, 16, 16)
    lengths = task.prepare(inputs).flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((2,), 768.0).sqrt())


def test_imagenet_is_the_folder_itself_or_one_of_its_name(folder):
    assert load("imagenet", folder).input_shape == (3, 224, 224)
    (folder / "imagenet").mkdir()
    for name in ("train", "val"):
        (folder / name).rename(folder / "imagenet" / name)
    assert load("imagenet", folder).classes == 2


def test_crops_depend_on_the_image_and_the_epoch_alone(folder):
    one, two = (load_image_folder(folder, size=16) for _ in range(2))
    together, _ = one.train.batch(torch.arange(6))
    apart = torch.cat([two.train.batch(torch.tensor([i]))[0] for i in (3, 1, 0, 2, 5, 4)])
    assert torch.equal(together[[3, 1, 0, 2, 5, 4]], apart)
    one.set_epoch(1)
    later, _ = one.train.batch(torch.arange(6))
    assert not any(torch.equal(a, b) for a, b in zip(together, later, strict=True))
    one.set_epoch(0)
    assert torch.equal(one.train.batch(torch.arange(6))[0], together)
    for (found, _), indices in zip(ahead(one.train, torch.arange(6).split(2)), torch.arange(6).split(2), strict=True):
        assert torch.equal(found, together[indices])


def test_tests_see_the_centre_and_never_change(folder):
    task = load_image_folder(folder, size=16)
    before = task.test.batch(torch.tensor([0, 1]))[0]
    task.set_epoch(3)
    assert torch.equal(task.test.batch(torch.tensor([0, 1]))[0], before)


def test_the_centre_box_is_resizing_to_256_and_cutting_out_224(tmp_path):
    ramp = Image.linear_gradient("L").resize((500, 400)).convert("RGB")
    resized = ramp.resize((320, 256), Image.Resampling.BILINEAR)
    expected = resized.crop((48, 16, 272, 240))
    found = ramp.resize((224, 224), Image.Resampling.BILINEAR, box=centre_box(500, 400))
    pairs = zip(expected.tobytes(), found.tobytes(), strict=True)
    assert max(abs(a - b) for a, b in pairs) <= 1


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 10**6))
def test_a_random_box_lies_within_the_image(width, height, seed):
    left, top, right, bottom = random_box(width, height, random.Random(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


def test_random_boxes_have_the_areas_and_proportions_that_are_usual():
    boxes = [random_box(500, 400, random.Random(seed)) for seed in range(2000)]
    areas = torch.tensor([(r - x) * (b - t) / 200_000 for x, t, r, b in boxes])
    proportions = torch.tensor([(r - x) / (b - t) for x, t, r, b in boxes])
    assert 0.079 < areas.min() < 0.1
    assert areas.max() > 0.9
    assert 0.74 < proportions.min() < 0.77
    assert 1.30 < proportions.max() < 1.35


@pytest.mark.parametrize(
    ("mode", "suffix"), [("L", "png"), ("CMYK", "jpg"), ("P", "png"), ("RGBA", "png"), ("1", "bmp")]
)
def test_images_of_any_colour_mode_become_three_channels(tmp_path, mode, suffix):
    paint(tmp_path / "a" / f"x.{suffix}", mode=mode)
    assert ImageFolderSplit(tmp_path, ["a"], size=8).batch(torch.tensor([0]))[0].shape == (1, 3, 8, 8)


def test_a_damaged_image_is_named(tmp_path):
    paint(tmp_path / "a" / "x.JPEG")
    path = tmp_path / "a" / "x.JPEG"
    whole = path.read_bytes()
    for content in (b"", b"junk", whole[:200], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.JPEG: not an image that can be read .* replace it or take it out"):
            ImageFolderSplit(tmp_path, ["a"], size=8).batch(torch.tensor([0]))


def test_formats_that_start_programs_are_not_opened(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    with pytest.raises(ValueError, match="cannot identify image"):
        ImageFolderSplit(tmp_path, ["a"], size=8).batch(torch.tensor([0]))


def test_an_image_of_absurd_size_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_PIXELS", 1000)
    paint(tmp_path / "a" / "x.png")
    with pytest.raises(ValueError, match="40 × 30 pixels are more than the 1000 allowed"):
        ImageFolderSplit(tmp_path, ["a"], size=8).batch(torch.tensor([0]))


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected the folders train and val"):
        load("imagenet", tmp_path)
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / "val" / "b").mkdir(parents=True)
    with pytest.raises(ValueError, match="a class with no folder in"):
        load("imagenet", tmp_path)
    (tmp_path / "val" / "b").rename(tmp_path / "val" / "a")
    with pytest.raises(FileNotFoundError, match="no image in any class"):
        load("imagenet", tmp_path)
