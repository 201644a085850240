"""Lightning: `configure_optimizers` returns the optimiser; a callback averages and logs η."""

import lightning as L
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import autogd
from autogd import StochasticAGD
from autogd.integrations.lightning import AveragedWeights
from digits import test_samples, train_samples

L.seed_everything(0, verbose=False)
train, test = DataLoader(train_samples, 64, shuffle=True), DataLoader(test_samples, 360)


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
        autogd.initialise_(self.layers)

    def training_step(self, batch, index):
        images, targets = batch
        return cross_entropy(self.layers(images), targets)

    def validation_step(self, batch, index):
        images, targets = batch
        self.log("accuracy", (self.layers(images).argmax(1) == targets).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return StochasticAGD(self)  # no scheduler, nothing to set


trainer = L.Trainer(
    max_epochs=5,
    accelerator="cpu",
    callbacks=[AveragedWeights()],  # validates, checkpoints and leaves behind the averaged weights
    log_every_n_steps=10,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Digits(), train, test)
metrics = trainer.callback_metrics
print(f"η {metrics['learning_rate']:.4f}, test accuracy {metrics['accuracy']:.1%}")
