"""skorch's nets give AGD the module, evaluate the averaged weights, and remain scikit-learn estimators."""

import pickle

import numpy
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch import nn

from averaging_optimiser import MeanAGD

pytest.importorskip("skorch")
from autogd import AGD, StochasticAGD
from autogd.integrations.skorch import AGDClassifier, AGDRegressor


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        torch.manual_seed(1)
        self.norm = nn.LayerNorm(4)
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x):
        return self.layers(self.norm(x))


@pytest.fixture
def task():
    x = numpy.random.default_rng(0).normal(size=(60, 4)).astype("float32")
    return x, (x[:, 0] > x[:, 1]).astype("int64")


def classifier(**settings):
    settings = {"criterion": nn.CrossEntropyLoss, "max_epochs": 3, "batch_size": 8, "verbose": 0, **settings}
    return AGDClassifier(Net, **settings)


def test_the_optimiser_reads_the_module_and_the_history_has_its_rate(task):
    net = classifier(optimizer__weight_decay=0.1).fit(*task)
    assert type(net.optimizer_) is StochasticAGD
    # known only from the module: by its shape this would be a bias
    assert net.optimizer_._architecture.atoms[net.module_.norm.weight].kind == "gain"
    assert net.optimizer_.param_groups[0]["weight_decay"] == 0.1
    assert net.optimizer_.param_groups[0]["lr"] == net.lr == 1
    assert net.history[-1, "learning_rate"] == pytest.approx(net.optimizer_.learning_rate.item())
    net.set_params(lr=0.5)
    net.partial_fit(*task)
    assert net.history[-1, "learning_rate"] == pytest.approx(net.optimizer_.learning_rate.item() / 2)


def test_averaged_weights_predict_and_training_goes_on_from_its_own(task):
    twice = classifier(optimizer=MeanAGD, max_epochs=2, train_split=None).fit(*task)
    assert all(torch.equal(p, twice.optimizer_.state[p]["mean"]) for p in twice.module_.parameters())
    twice.predict(task[0])
    twice.partial_fit(*task)
    whole = classifier(optimizer=MeanAGD, max_epochs=4, train_split=None).fit(*task)
    assert numpy.array_equal(twice.predict_proba(task[0]), whole.predict_proba(task[0]))


def test_validation_has_the_averaged_weights(task):
    seen = []

    class Watched(AGDClassifier):
        def infer(self, *args, **kwargs):
            if not self.module_.training:
                seen.append(all(torch.equal(p, self.optimizer_.state[p]["mean"]) for p in self.module_.parameters()))
            return super().infer(*args, **kwargs)

    Watched(Net, criterion=nn.CrossEntropyLoss, optimizer=MeanAGD, max_epochs=2, verbose=0).fit(*task)
    assert seen
    assert all(seen)


def test_it_is_an_estimator_like_any_other(task):
    assert clone(classifier(optimizer=AGD)).get_params()["optimizer"] is AGD
    search = GridSearchCV(classifier(), {"module__width": [2, 16]}, cv=2).fit(*task)
    assert search.best_score_ > 0.6
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert numpy.array_equal(again.predict(task[0]), search.predict(task[0]))
    again.partial_fit(*task)
    assert again.score(*task) > 0.6


def test_regression(task):
    x, _ = task
    net = AGDRegressor(nn.Linear(4, 1), max_epochs=80, verbose=0).fit(x, x[:, :1] - x[:, 1:2])
    assert net.score(x, x[:, :1] - x[:, 1:2]) > 0.9
