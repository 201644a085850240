"""Tasks: splits, batches, the first samples of a part, augmentation and scale."""

import sys
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autogd import data
from autogd.data import Split, Task, TensorSplit, ahead, first_samples, load
from autogd.data.fetch import data_folder
from autogd.data.prepare import channel_statistics, crop_and_flip, unit_scale
from autogd.data.task import image_task
from autogd.training import Config
from autogd.training.setup import Setup
from patience import run_child


@pytest.fixture(scope="module")
def digits() -> Task:
    return load("digits")


def test_digits_are_split_the_same_way_every_time(digits):
    again = load("digits")
    assert (len(digits.train), len(digits.test), digits.classes) == (1437, 360, 10)
    assert torch.equal(digits.train.inputs, again.train.inputs)
    assert torch.equal(digits.test.labels, again.test.labels)
    assert digits.augment is None


def test_the_two_splits_share_no_sample_and_leave_none_out(digits):
    from sklearn.datasets import load_digits

    everything = torch.from_numpy(load_digits().images).flatten(1)
    both = torch.cat([digits.train.inputs, digits.test.inputs]).flatten(1).double()
    assert sorted(map(tuple, both.tolist())) == sorted(map(tuple, everything.tolist()))


def test_inputs_are_as_long_as_prescription_1_asks(digits):
    inputs, labels = digits.test.batch(torch.arange(len(digits.test)))
    lengths = digits.prepare(inputs).flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 8.0))
    assert labels.dtype == torch.int64
    assert inputs.dtype == torch.float32


def test_a_batch_before_scaling_has_the_training_sets_mean_and_spread(digits):
    inputs, _ = digits.train.batch(torch.arange(len(digits.train)))
    assert abs(float(inputs.mean())) < 1e-5
    assert abs(float(inputs.std(correction=0)) - 1) < 1e-5


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 8), st.integers(0, 2**31))
def test_channel_statistics_are_those_of_the_numbers(samples, channels, side, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (samples, channels, side, side), dtype=torch.uint8, generator=generator)
    mean, deviation = channel_statistics(images)
    numbers = images.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(mean.flatten().double(), numbers.mean(1), rtol=1e-6, atol=1e-6)
    spread = numbers.std(1, correction=0)
    expected = torch.where(spread > 0, spread, 1.0)
    torch.testing.assert_close(deviation.flatten().double(), expected, rtol=1e-5, atol=1e-6)


def test_a_blank_image_stays_blank():
    images = torch.full((4, 1, 3, 3), 7, dtype=torch.uint8)
    task = image_task("blank", (images, torch.zeros(4)), (images, torch.zeros(4)), classes=1)
    assert torch.equal(task.prepare(task.train.batch(torch.arange(4))[0]), torch.zeros(4, 1, 3, 3))


def test_batches_are_copies_that_a_loop_may_change(digits):
    kept = digits.train.inputs.clone()
    floats = TensorSplit(torch.ones(3, 2), torch.arange(3))
    for split in (digits.train, floats):
        split.batch(torch.tensor([0, 1]))[0].zero_()
    assert torch.equal(digits.train.inputs, kept)
    assert torch.equal(floats.inputs, torch.ones(3, 2))


def test_double_precision_inputs_stay_double():
    inputs = torch.randn(4, 6, dtype=torch.float64)
    batch, _ = TensorSplit(inputs, torch.arange(4)).batch(torch.tensor([2]))
    assert torch.equal(batch, inputs[2:3])
    assert unit_scale(batch).dtype == torch.float64


def test_a_task_moves_with_its_splits(digits):
    moved = digits.to("meta")
    assert moved.train.inputs.is_meta
    assert moved.test.labels.is_meta
    assert not digits.train.inputs.is_meta


def test_every_sample_needs_a_label():
    with pytest.raises(ValueError, match="found 2 for 3"):
        TensorSplit(torch.zeros(3, 1), torch.zeros(2))


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="'minst': there is no such data set; choose from digits, mnist"):
        load("minst")


def test_the_folder_is_the_one_given_then_the_environments_then_the_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOGD_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert data_folder("elsewhere").name == "elsewhere"
    assert data_folder() == tmp_path
    monkeypatch.delenv("AUTOGD_DATA")
    assert data_folder() == tmp_path / "home" / ".cache" / "autogd"


def test_ahead_gives_the_batches_in_order_and_passes_errors_on(digits):
    batches = torch.arange(30).split(4)
    for found, indices in zip(ahead(digits.train, batches), batches, strict=True):
        expected = digits.train.batch(indices)
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])
    with pytest.raises(IndexError):
        list(ahead(digits.train, [torch.tensor([10**6])]))


def test_ahead_can_be_left_early(digits):
    before = threading.active_count()
    batches = ahead(digits.train, torch.arange(100).split(5))
    next(batches)
    batches.close()
    assert threading.active_count() == before, "a thread goes on making batches that nobody takes"


def test_splits_of_every_kind_keep_the_protocol(digits):
    assert isinstance(digits.train, Split)
    assert set(data.__all__) <= set(dir(data))


def test_importing_the_data_sets_needs_torch_alone():
    code = (
        "import sys\n"
        "for name in ('numpy', 'sklearn', 'pooch', 'PIL'): sys.modules[name] = None\n"
        "import autogd.data, autogd.models\n"
        "try: autogd.data.load('digits')\n"
        "except ImportError as error: print(error)\n"
    )
    done = run_child([sys.executable, "-W", "ignore", "-c", code])
    assert "digits: sklearn is not installed; pip install 'autogd[cli]' brings it" in done.stdout


def slow_crop_and_flip(images, generator, padding=4):
    """The same, one sample at a time."""
    count, _, height, width = images.shape
    offsets = torch.randint(2 * padding + 1, (2, count, 1), generator=generator)
    mirror = torch.rand(count, 1, generator=generator) < 0.5
    out = []
    for i, image in enumerate(torch.nn.functional.pad(images, (padding,) * 4)):
        top, left = int(offsets[0, i]), int(offsets[1, i])
        window = image[:, top : top + height, left : left + width]
        out.append(window.flip(2) if mirror[i] else window)
    return torch.stack(out)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(0, 4))
def test_cropping_a_batch_is_cropping_each_sample(samples, channels, height, width, padding):
    images = torch.randn(samples, channels, height, width)
    found = crop_and_flip(images, torch.Generator().manual_seed(1), padding)
    assert torch.equal(found, slow_crop_and_flip(images, torch.Generator().manual_seed(1), padding))


def test_all_offsets_and_both_sides_are_drawn_about_equally():
    image = torch.arange(1.0, 26.0).view(1, 1, 5, 5).expand(8100, 1, 5, 5)
    found = crop_and_flip(image, torch.Generator().manual_seed(0), padding=1)
    kinds, counts = found.flatten(1).unique(dim=0, return_counts=True)
    assert len(kinds) == 3 * 3 * 2
    assert counts.min() > 350
    assert counts.max() < 550


def test_scaling_after_cropping_is_right_whatever_was_cut_away():
    images = torch.randn(32, 3, 8, 8)
    changed = unit_scale(crop_and_flip(images, torch.Generator().manual_seed(0)))
    torch.testing.assert_close(changed.flatten(1).norm(dim=1), torch.full((32,), 192.0).sqrt())


def test_the_first_samples_are_those_of_the_whole():
    whole = load("digits")
    part = first_samples(whole, 300)
    indices = torch.tensor([0, 299, 17])
    assert torch.equal(part.train.batch(indices)[0], whole.train.batch(indices)[0])
    assert torch.equal(part.test.batch(indices)[1], whole.test.batch(indices)[1])
    assert (len(part.train), len(part.test)) == (300, 300)


def test_a_limit_beyond_the_end_changes_nothing():
    assert len(first_samples(load("digits"), 10_000).train) == 1437


def test_a_run_with_a_limit_draws_from_the_first_samples_alone():
    setup = Setup.build(Config(depth=2, width=8, limit=256, batch_size=64))
    assert setup.steps_per_epoch == 4
    assert setup.order(1).max() < 256
    assert len(setup.test_indices()) == 256


def test_a_split_that_draws_its_own_crops_is_told_the_epoch():
    class Crops(TensorSplit):
        def set_epoch(self, epoch):
            self.epoch = epoch

    split = Crops(torch.zeros(4, 1), torch.zeros(4))
    first_samples(Task("crops", split, split, 1, (1,)), 2).set_epoch(3)
    assert split.epoch == 3


def test_a_text_has_no_samples_to_cut():
    split = TensorSplit(torch.zeros(4, 1), torch.zeros(4))
    with pytest.raises(ValueError, match="give a shorter file"):
        first_samples(Task("text", split, split, 2, (1,), vocabulary="ab"), 2)
