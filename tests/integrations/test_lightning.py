"""Lightning validates and saves the averaged weights, resumes bit for bit, and logs η."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from averaging_optimiser import MeanAGD

L = pytest.importorskip("lightning")
from autogd.integrations.lightning import AveragedWeights, RateMonitor  # noqa: E402

# Lightning's own warnings: torch's new names, advice on workers, resuming in the same folder
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*{words}")
    for words in ("LeafSpec", "does not have many workers", "Checkpoint directory", "The dirpath has changed")
]


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.judged = []

    def training_step(self, batch, index):
        return (self.layers(batch[0]) - batch[1]).square().mean()

    def validation_step(self, batch, index):
        if not self.trainer.sanity_checking:
            means = self.optimizers().optimizer.means()
            self.judged.append(
                all(torch.equal(p, mean) for p, mean in zip(self.layers.parameters(), means, strict=True))
            )

    def configure_optimizers(self):
        return MeanAGD(self)


@pytest.fixture
def loader():
    x = torch.randn(24, 4)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 8)


def fit(folder, epochs, loader, resume=None):
    model = Model()
    trainer = L.Trainer(
        max_epochs=epochs, accelerator="cpu", callbacks=[AveragedWeights()], default_root_dir=folder, logger=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, loader, loader, ckpt_path=resume)
    return trainer, model


def test_the_averaged_weights_are_judged_and_left_in_the_model(tmp_path, loader):
    trainer, model = fit(tmp_path, 2, loader)
    assert model.judged == [True] * 6
    (optimiser,) = trainer.optimizers
    assert all(torch.equal(p, m) for p, m in zip(model.parameters(), optimiser.means(), strict=True))
    assert trainer.callback_metrics["learning_rate"] == optimiser.learning_rate > 0


@pytest.mark.parametrize("when", ["while training", "after training"])
def test_a_checkpoint_has_what_to_ship_and_what_to_go_on_from(when, tmp_path, loader):
    trainer, model = fit(tmp_path, 2, loader)
    path = trainer.checkpoint_callback.best_model_path
    if when == "after training":
        path = tmp_path / "after.ckpt"
        trainer.save_checkpoint(path)
        assert torch.equal(model.layers[0].weight, trainer.optimizers[0].means()[0])  # saving changes nothing
    saved = torch.load(path, weights_only=True)
    for name, weight in model.state_dict().items():
        assert torch.equal(saved["state_dict"][name], weight)
    _, resumed = fit(tmp_path / "resumed", 4, loader, resume=path)
    _, whole = fit(tmp_path / "whole", 4, loader)
    for name, weight in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], weight), name


@pytest.mark.parametrize("own", [False, True])
def test_lightnings_monitor_shows_the_multiplier_and_ours_eta(own, tmp_path, loader):
    monitor = (RateMonitor if own else L.pytorch.callbacks.LearningRateMonitor)()
    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[monitor], logger=L.pytorch.loggers.CSVLogger(tmp_path),
        log_every_n_steps=1, enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0,
        enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Model(), loader, loader)
    rates = monitor.lrs["lr-MeanAGD"]
    # it looks before each step: the last one that it sees is the last but one
    assert (0 < rates[-1] < 1) if own else set(rates) == {1.0}
