"""The loaders on real data, if it is on disk."""

import hashlib
import os
from pathlib import Path

import pytest
import torch

from autogd.data import load

pytestmark = pytest.mark.data


def real(name: str):
    if not os.environ.get("AUTOGD_DATA"):
        pytest.skip("AUTOGD_DATA names no folder")
    try:
        return load(name, download=False)
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cifar10():
    return real("cifar10")


def test_cifar10_is_whole(cifar10):
    assert (len(cifar10.train), len(cifar10.test), cifar10.input_shape) == (50_000, 10_000, (3, 32, 32))
    assert cifar10.train.labels.bincount().tolist() == [5000] * 10
    assert cifar10.test.labels.bincount().tolist() == [1000] * 10
    assert cifar10.train.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]


def test_cifar10_has_the_pixels_of_the_original(cifar10):
    # of all 60,000 images, training set first, as the official files store them
    digest = hashlib.sha256()
    for split in (cifar10.train, cifar10.test):
        digest.update(split.inputs.numpy().tobytes())
    assert digest.hexdigest() == "2ae5d6db0453753867541f0ccce0b648fcd0aaf596c0ca67c33dc03b3deaf283"


def test_cifar10_has_the_statistics_that_everyone_quotes(cifar10):
    mean, deviation = cifar10.train.mean.flatten() / 255, cifar10.train.deviation.flatten() / 255
    assert [round(x, 4) for x in mean.tolist()] == [0.4914, 0.4822, 0.4465]
    assert [round(x, 4) for x in deviation.tolist()] == [0.2470, 0.2435, 0.2616]


def test_cifar10_batches_are_augmented_and_scaled(cifar10):
    inputs, labels = cifar10.train.batch(torch.randperm(50_000)[:128])
    changed = cifar10.prepare(cifar10.augment(inputs, torch.Generator().manual_seed(0)))
    lengths = changed.flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((128,), 3072.0).sqrt())
    assert labels.shape == (128,)


def test_a_truncated_copy_of_a_real_batch_is_refused(cifar10, tmp_path):
    source = Path(os.environ["AUTOGD_DATA"], "cifar-10-batches-py")
    if not source.is_dir():
        pytest.skip("not unpacked in a folder of its own")
    for path in source.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "data_batch_3").unlink()
    (tmp_path / "data_batch_3").write_bytes((source / "data_batch_3").read_bytes()[:-1000])
    with pytest.raises(ValueError, match="data_batch_3: not a pickle of plain arrays"):
        load("cifar10", tmp_path)


def test_fashion_mnist_is_whole():
    task = real("fashion-mnist")
    assert (len(task.train), len(task.test), task.input_shape) == (60_000, 10_000, (1, 28, 28))
    assert task.train.labels.bincount().tolist() == [6000] * 10
    assert round(float(task.train.mean) / 255, 4) == 0.2860
    assert round(float(task.train.deviation) / 255, 4) == 0.3530


def test_mnist_is_whole():
    task = real("mnist")
    assert (len(task.train), len(task.test), task.input_shape) == (60_000, 10_000, (1, 28, 28))
    assert round(float(task.train.mean) / 255, 4) == 0.1307


def test_cifar100_is_whole():
    task = real("cifar100")
    assert (len(task.train), len(task.test), task.classes) == (50_000, 10_000, 100)
    assert task.train.labels.bincount().tolist() == [500] * 100
