"""Evaluate the network on the test set, with the weights to ship."""

import math

import torch
from torch import nn

from autogd import baselines
from autogd.training.objective import accuracy
from autogd.training.setup import Setup

__all__ = ["evaluate", "refresh_batch_norm"]

REFRESH_BATCHES = 32  # training batches for batch norm's statistics of averaged weights


@torch.no_grad()
def evaluate(setup: Setup) -> dict[str, float | None]:
    """Objective and accuracy on the test set, with the weights to ship; a regression has no accuracy."""
    place = setup.place
    with baselines.averaged(setup.optimiser):
        refresh_batch_norm(setup)
        setup.forward.eval()
        totals = torch.zeros(3, dtype=torch.float64, device=place.device)
        for indices in setup.test_indices().split(setup.config.batch_size):
            # every process runs equally often: a short slice is padded with its last sample
            share = -(-len(indices) // place.world)
            mine = torch.arange(place.rank * share, (place.rank + 1) * share)
            real = int((mine < len(indices)).sum())
            inputs, labels = setup.test_batch(indices[mine.clamp(max=len(indices) - 1)])
            output = setup.output(inputs)
            if real:
                output, labels = output[:real], labels[:real]
                totals += torch.stack(
                    [setup.loss(output, labels) * real, accuracy(output, labels) * real, torch.tensor(real)]
                )
        setup.forward.train()
    objective, hits, samples = place.sum(totals).tolist()
    return {"test_objective": objective / samples, "test_accuracy": None if math.isnan(hits) else hits / samples}


@torch.no_grad()
def refresh_batch_norm(setup: Setup) -> None:
    """Recompute batch norm's statistics for averaged weights; nothing to do without batch norm or an average."""
    normed = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in setup.model.modules())
    if not (normed and baselines.entry(setup.config.optimiser).averages):
        return
    rows = setup.order(0)[:REFRESH_BATCHES]
    batches = (torch.cat([inputs for inputs, _ in setup.train_batch(row, -1 - i)]) for i, row in enumerate(rows))
    torch.optim.swa_utils.update_bn(batches, setup.forward)
