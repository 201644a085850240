"""skorch: scikit-learn's estimators with AGD inside: `AGDClassifier(module)`."""

from typing import Any

from torch import Tensor

from autogd.integrations.shipping import averaged, rates_taken, recall, ship
from autogd.optim import StochasticAGD

try:
    from skorch import NeuralNet, NeuralNetClassifier, NeuralNetRegressor
except ImportError as error:
    raise ImportError("skorch is not installed: pip install 'autogd[integrations]'") from error

__all__ = ["AGDClassifier", "AGDNet", "AGDRegressor"]


class AGDNet(NeuralNet):
    """A mixin for any skorch net: gives the optimiser the whole module, and evaluates the averaged weights.

    skorch gives its optimisers parameters and a learning rate of 0.01. Here the optimiser gets the module and reads its
    architecture, and `lr` is 1, a multiplier of the derived rate. The history has the rate as `learning_rate`. After
    `fit` the module holds the averaged weights; `partial_fit` resumes from the weights in training.

    >>> from skorch import NeuralNetBinaryClassifier
    >>> from torch import nn
    >>> class BinaryClassifier(AGDNet, NeuralNetBinaryClassifier):
    ...     pass
    >>> BinaryClassifier(nn.Linear).optimizer.__name__
    'StochasticAGD'
    """

    training_: list[Tensor] | None = None  # the weights in training, while the module holds the averaged ones

    def __init__(self, module: Any, *args: Any, optimizer: Any = StochasticAGD, lr: float = 1.0, **kwargs: Any) -> None:
        super().__init__(module, *args, optimizer=optimizer, lr=lr, **kwargs)

    def initialize_optimizer(self, triggered_directly: Any = None) -> Any:
        """Give the optimiser the module and all `optimizer__…` arguments."""
        _, settings = self.get_params_for_optimizer("optimizer", self.get_all_learnable_params())
        rate = settings.pop("lr", self.lr)
        self.optimizer_ = self.optimizer(self.module_, **settings)
        for group in self.optimizer_.param_groups:
            group["lr"] = rate
        self.training_ = None
        return self

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate the averaged weights."""
        with self._averaged():
            return super().validation_step(*args, **kwargs)

    def evaluation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Predict with the averaged weights."""
        with self._averaged():
            return super().evaluation_step(*args, **kwargs)

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Resume from the weights in training."""
        if self.training_ is not None:
            recall([self.optimizer_], self.training_)
        self.training_ = None
        super().on_train_begin(*args, **kwargs)

    def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        """Record the rate of the epoch's last step in the history."""
        self.history.record("learning_rate", float(rates_taken(self.optimizer_)[0]))
        super().on_epoch_end(*args, **kwargs)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Leave the averaged weights in the module."""
        self.training_ = ship([self.optimizer_])
        super().on_train_end(*args, **kwargs)

    def _averaged(self) -> Any:
        return averaged([self.optimizer_] if self.training_ is None else [])


class AGDClassifier(AGDNet, NeuralNetClassifier):
    """skorch's classifier, with AGD.

    >>> AGDClassifier.__mro__[1].__name__
    'AGDNet'
    """


class AGDRegressor(AGDNet, NeuralNetRegressor):
    """skorch's regressor, with AGD.

    >>> AGDRegressor.__mro__[1].__name__
    'AGDNet'
    """
