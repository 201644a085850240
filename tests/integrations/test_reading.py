"""Whoever calls the model, its first forward pass is read."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from autogd import StochasticAGD


class Gated(nn.Module):
    """Gate and up in one matrix, input × output, which no catalogue knows."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Parameter(torch.randn(4, 12) / 2)

    def forward(self, x):
        gate, up = (x @ self.hidden).chunk(2, -1)
        return F.silu(gate) * up


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.block, self.head = Gated(), nn.Linear(6, 3)

    def forward(self, x, labels=None):
        output = self.head(self.block(x))
        return output if labels is None else {"loss": F.mse_loss(output, labels), "logits": output}


X, Y = torch.randn(16, 4), torch.randn(16, 3)


def assert_read(optimiser, hidden, model):
    atom = optimiser._architecture.atoms[hidden]
    assert (atom.parts, atom.columns, optimiser._architecture.sources[hidden]) == (2, (0,), "graph")
    assert not any(
        type(hook).__name__ == "WeakHook" for part in model.modules() for hook in part._forward_hooks.values()
    )


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_under_lightning(tmp_path):
    lightning = pytest.importorskip("lightning")

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Model()

        def training_step(self, batch, index):
            return F.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return StochasticAGD(self)

    model = Lit()
    trainer = lightning.Trainer(
        max_steps=2, accelerator="cpu", default_root_dir=tmp_path, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(model, DataLoader(TensorDataset(X, Y), 8))
    assert_read(trainer.optimizers[0], model.net.block.hidden, model)


@pytest.mark.filterwarnings("ignore")  # Trainer's own
def test_under_trainer(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = Model()
    optimiser = StochasticAGD(model)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, max_grad_norm=0, report_to="none", disable_tqdm=True, use_cpu=True,
        dataloader_pin_memory=False, save_strategy="no",
    )  # fmt: skip
    samples = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    transformers.Trainer(model, arguments, train_dataset=samples, optimizers=(optimiser, None)).train()
    assert_read(optimiser, model.block.hidden, model)


def test_under_peft():
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(target_modules=["head"], modules_to_save=["block"], r=2)
    model = peft.get_peft_model(Model(), settings)
    optimiser = StochasticAGD(model)
    F.mse_loss(model(X), Y).backward()
    optimiser.step()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    (hidden,) = (p for name, p in trained.items() if name.endswith("hidden"))
    assert_read(optimiser, hidden, model)
    known = optimiser._architecture
    assert {(known.atoms[p].kind, known.sources[p]) for name, p in trained.items() if "lora" in name} == {
        ("lora", "catalogue")
    }
