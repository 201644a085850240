"""A limited data set has its first samples, and nothing else changes."""

import pytest
import torch

from autogd.data import Task, TensorSplit, first_samples, load
from autogd.training import Config
from autogd.training.setup import Setup


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
