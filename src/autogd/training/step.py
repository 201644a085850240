"""What the loop does with batches: steps on the training set, and the evaluation on the test set."""

import math
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from autogd import baselines
from autogd.diagnosis.finite import first_bad_layer
from autogd.training import distributed, seeds
from autogd.training.measure import Ledger, UpdateSize
from autogd.training.objective import accuracy
from autogd.training.setup import Batch, Setup

__all__ = ["MEASURED_STEPS", "Diverged", "evaluate", "refresh_batch_norm", "refuse_non_finite", "take_step"]

MEASURED_STEPS = 32  # steps per epoch at which the update size is measured


class Diverged(ValueError):  # noqa: N818 - named after the event, not an error of the code
    """A loss, a gradient or a weight is no longer finite; names the step, the batch and the layer."""


def take_step(setup: Setup, ledger: Ledger, pieces: Batch, indices: Tensor, epoch: int, done: int) -> None:
    """Take one step on one global batch, and write its loss, accuracy and sizes to the ledger."""
    step = (epoch - 1) * setup.steps_per_epoch + done
    # for dropout and the like; each process has other samples, so it gets another seed
    seeds.plant(setup.place.device, setup.config.seed, "step", step, setup.place.rank)
    setup.schedule(step)
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        if torch.is_grad_enabled():
            setup.model.zero_grad(set_to_none=True)
        total = torch.zeros((), device=setup.place.device)
        hits = torch.zeros((), device=setup.place.device)
        for i, (inputs, labels) in enumerate(pieces):
            last = i == len(pieces) - 1
            with nullcontext() if last else distributed.without_sync(setup.forward):
                output = setup.output(inputs)
                loss = setup.loss(output, labels) / len(pieces)
                if loss.device.type == "cpu" and not torch.isfinite(loss):  # on the CPU the check is free
                    raise _diverged(setup, inputs, indices, epoch, done, f"the loss is {float(loss.detach())}")
                if torch.is_grad_enabled():
                    loss.backward()
            total = total + loss.detach()
            hits = hits + accuracy(output.detach(), labels) / len(pieces)
        if calls == 1:  # an optimiser may replay the batch after its step
            ledger.write(done, "objective", total)
            ledger.write(done, "accuracy", hits)
        return total

    measured = done % max(1, setup.steps_per_epoch // MEASURED_STEPS) == 0
    ruler = UpdateSize(setup.model, setup.place) if measured else None
    try:
        setup.optimiser.step(closure)
    except ValueError as error:
        # AGD refuses a gradient that is not finite, and names its layer
        if isinstance(error, Diverged) or "no weight was changed" not in str(error):
            raise
        raise _diverged(setup, None, indices, epoch, done, str(error)) from error
    ledger.write(done, "learning_rate", baselines.learning_rate(setup.optimiser))
    if ruler is not None:
        ledger.write(done, "update_size", ruler.read())


def refuse_non_finite(setup: Setup, ledger: Ledger, order: Tensor, epoch: int, done: int) -> None:
    """Check the losses before saving; on an accelerator this is the first check."""
    bad = ledger.first_bad(done)
    if bad is not None:
        inputs = setup.train_batch(order[bad], (epoch - 1) * setup.steps_per_epoch + bad)[0][0]
        raise _diverged(setup, inputs, order[bad], epoch, bad, "the loss is not finite")


def _diverged(setup: Setup, inputs: Tensor | None, indices: Tensor, epoch: int, done: int, what: str) -> Diverged:
    if inputs is not None and not setup.config.shard:  # sharded weights would need the other processes
        layer = first_bad_layer(setup.model, lambda: setup.model(inputs))
        what += f"; the first layer to blame is {layer}" if layer else "; every layer is finite, so the loss overflows"
    samples = ", ".join(str(i) for i in indices[:8].tolist())
    step = (epoch - 1) * setup.steps_per_epoch + done + 1
    return Diverged(
        f"step {step} (epoch {epoch}, batch {done + 1} of {setup.steps_per_epoch}, samples {samples}, …): {what}"
    )


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
            # every process needs equally many batches: pad a short slice with its last sample
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
    """Recompute batch norm's statistics for the averaged weights, if there are both."""
    normed = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in setup.model.modules())
    if not (normed and baselines.entry(setup.config.optimiser).averages):
        return
    rows = setup.order(0)[:REFRESH_BATCHES]
    batches = (torch.cat([inputs for inputs, _ in setup.train_batch(row, -1 - i)]) for i, row in enumerate(rows))
    torch.optim.swa_utils.update_bn(batches, setup.forward)
