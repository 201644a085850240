"""One step on one global batch, and the error if it fails."""

from contextlib import nullcontext

import torch
from torch import Tensor

from autogd import baselines
from autogd.diagnosis.finite import first_bad_layer
from autogd.training import distributed, seeds
from autogd.training.ledger import Ledger
from autogd.training.objective import accuracy
from autogd.training.setup import Batch, Setup
from autogd.training.update_size import UpdateSize

__all__ = ["MEASURED_STEPS", "Diverged", "refuse_non_finite", "take_step"]

MEASURED_STEPS = 32  # steps per epoch at which the update size is measured


class Diverged(ValueError):  # noqa: N818 - what happened, not whose fault
    """A loss, a gradient or a weight is no longer finite; names the step, the batch and the layer."""


def take_step(setup: Setup, ledger: Ledger, pieces: Batch, indices: Tensor, epoch: int, done: int) -> None:
    """One step on one global batch; its loss, accuracy and sizes are written to the ledger."""
    step = (epoch - 1) * setup.steps_per_epoch + done
    # for networks with dropout and the like; each process has its own samples, so its own seed
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
        if calls == 1:  # an optimiser may evaluate the batch again after its step
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
        what += f"; the first layer to blame is {layer}" if layer else "; every layer is finite, the loss overflows"
    samples = ", ".join(str(i) for i in indices[:8].tolist())
    step = (epoch - 1) * setup.steps_per_epoch + done + 1
    return Diverged(
        f"step {step} (epoch {epoch}, batch {done + 1} of {setup.steps_per_epoch}, samples {samples}, …): {what}"
    )
