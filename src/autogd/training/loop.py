"""The training loop: steps, evaluation, records and checkpoints, for any optimiser on any number of processes."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from autogd import baselines
from autogd.training import checkpoint, distributed
from autogd.training.config import Config
from autogd.training.measure import Ledger, environment, peak_memory
from autogd.training.process import Stopped, listening, suitable_threads, using_threads
from autogd.training.records import Run
from autogd.training.schema import Field, check
from autogd.training.setup import Setup
from autogd.training.step import Diverged, evaluate, refresh_batch_norm, refuse_non_finite, take_step

__all__ = ["Watch", "train"]

AGREE_EVERY = 16  # several processes agree on stopping and saving every so many steps


class Watch:
    """Callbacks of the loop; override any method. They are called on the first process only."""

    def start(self, run: Run, step: int, steps: int) -> None:
        """Training starts, or resumes, at a step."""

    def step(self, step: int) -> None:
        """A step was taken."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch's line was written."""

    def end(self) -> None:
        """Training is over, for whatever reason."""


def train(run: Run, watches: Sequence[Watch] = (), config: Config | None = None) -> dict[str, Any]:
    """Train a run to its end, from its newest checkpoint if there is one, and return its summary.

    Args:
        run: the run's folder.
        watches: callbacks.
        config: the settings, by default the run's own; only settings of the machine may differ, such as the device.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run.create(Config(depth=2, width=32, epochs=2), Path(folder) / "run")
    ...     summary = train(run)
    >>> summary["status"], summary["epochs"]
    ('finished', 2)
    """
    over = run.summary()
    if over is not None:  # nothing is left to do
        if over["status"] == "diverged":
            raise Diverged(str(over.get("error")))
        return over
    config = config or run.config()
    with distributed.session(config.device) as place, listening() as request, ExitStack() as settings:
        first = place.rank == 0
        setup = Setup.build(config, place)
        settings.enter_context(
            using_threads(config.threads or suitable_threads(setup.model, setup.sample(), setup.batch_size))
        )
        progress = _resume(run, setup)
        epoch, done, seconds = progress["epoch"], progress["done"], progress["seconds"]
        ledger = progress["ledger"]
        per_epoch = setup.steps_per_epoch
        watches = watches if first else ()
        for watch in watches:
            watch.start(run, (epoch - 1) * per_epoch + done, setup.steps)

        def save() -> None:
            rest = {"epoch": epoch, "done": done, "seconds": seconds, "ledger": ledger.shared()}
            step = (epoch - 1) * per_epoch + done
            checkpoint.save(run.checkpoints, step, setup.model, setup.optimiser, rest, place, config.checkpoints)

        try:
            saved_at = time.monotonic()
            while epoch <= config.epochs:
                setup.task.set_epoch(epoch)
                order = setup.order(epoch)
                started = time.monotonic()
                for pieces in setup.batches(order, epoch, done) if done < per_epoch else ():
                    take_step(setup, ledger, pieces, order[done], epoch, done)
                    done += 1
                    for watch in watches:
                        watch.step((epoch - 1) * per_epoch + done)
                    due = first and time.monotonic() - saved_at > config.checkpoint_seconds
                    if place.world == 1 or done % AGREE_EVERY == 0 or done == per_epoch:
                        stop, due = place.any(bool(request.signal_number), due)
                        if (stop or due) and done < per_epoch:
                            refuse_non_finite(setup, ledger, order, epoch, done)
                            seconds, started = seconds + time.monotonic() - started, time.monotonic()
                            save()
                            saved_at = time.monotonic()
                        if stop and done < per_epoch:
                            raise _stopped(run, epoch, done, request.signal_number)
                refuse_non_finite(setup, ledger, order, epoch, done)
                record = _record(setup, ledger, epoch, seconds + time.monotonic() - started)
                if first:
                    run.append(record)
                    if config.trace and epoch == 1:
                        run.write_steps(ledger.steps())
                for watch in watches:
                    watch.epoch(record)
                epoch, done, seconds, ledger = epoch + 1, 0, 0.0, Ledger(per_epoch, place)
                save()
                saved_at = time.monotonic()
                (stop,) = place.any(bool(request.signal_number))
                if stop and epoch <= config.epochs:
                    raise _stopped(run, epoch - 1, per_epoch, request.signal_number)
        except Diverged as error:
            if first:
                run.write_summary(_summary(run, setup, "diverged", str(error)))
            raise
        finally:
            for watch in watches:
                watch.end()
        with baselines.averaged(setup.optimiser):
            refresh_batch_norm(setup)
            checkpoint.export(run.path / "weights.safetensors", setup.model, place)
        summary = _summary(run, setup, "finished") if first else {}
        if first:
            run.write_summary(summary)
        place.wait()
        return summary


def _resume(run: Run, setup: Setup) -> dict[str, Any]:
    """The progress to start from: the newest checkpoint's, or none."""
    newest = checkpoint.latest(run.checkpoints)
    ledger = Ledger(setup.steps_per_epoch, setup.place)
    progress: dict[str, Any] = {"epoch": 1, "done": 0, "seconds": 0.0}
    if newest is not None:
        progress = checkpoint.load(newest, setup.model, setup.optimiser, setup.place)
        _check_progress(progress, f"{newest}/state.json: rest", setup, ledger)
        ledger.rows.copy_(progress["ledger"])
    if setup.place.rank == 0:
        run.keep_epochs(progress["epoch"] - 1)
    return {**progress, "ledger": ledger}


def _check_progress(progress: dict[str, Any], where: str, setup: Setup, ledger: Ledger) -> None:
    """Refuse a state with other names, or with numbers that do not fit this run."""
    fields = {
        "epoch": Field((int,), low=1, high=setup.config.epochs + 1),
        "done": Field((int,), low=0, high=setup.steps_per_epoch),
        "seconds": Field((float,), low=0),
        "ledger": Field((Tensor,)),
    }
    check(progress, fields, where)
    if progress["ledger"].shape != ledger.rows.shape:
        found, expected = list(progress["ledger"].shape), list(ledger.rows.shape)
        raise ValueError(f"{where}: 'ledger': expected {expected}, a row for each step of an epoch, found {found}")


def _record(setup: Setup, ledger: Ledger, epoch: int, seconds: float) -> dict[str, Any]:
    """An epoch's line: a summary of its steps, and the evaluation after them."""
    found = ledger.summary(setup.steps_per_epoch)
    rates = {name: found[name] for name in found if name.startswith(("learning_rate", "update_size"))}
    return {
        "epoch": epoch,
        "step": epoch * setup.steps_per_epoch,
        "objective": found["objective_mean"],
        "train_accuracy": found["accuracy_mean"],
        **evaluate(setup),
        **rates,
        "seconds": seconds,
        "samples_per_second": setup.steps_per_epoch * setup.batch_size / seconds,
        "peak_memory_bytes": peak_memory(setup.place.device),
    }


def _stopped(run: Run, epoch: int, done: int, signal_number: int) -> Stopped:
    place = f"after batch {done} of epoch {epoch}"
    return Stopped(f"stopped {place} and saved; resume with: autogd train --resume {run.path}", signal_number)


def _summary(run: Run, setup: Setup, status: str, error: str | None = None) -> dict[str, Any]:
    metrics = run.metrics()
    last = metrics[-1] if metrics else {}
    names = ("objective", "train_accuracy", "test_objective", "test_accuracy")
    return {
        "status": status,
        "error": error,
        "epochs": last.get("epoch", 0),
        "steps": last.get("step", 0),
        **{name: last.get(name) for name in names},
        "best_test_accuracy": max(
            (line["test_accuracy"] for line in metrics if line["test_accuracy"] is not None), default=None
        ),
        "seconds": sum(line["seconds"] for line in metrics),
        "parameters": sum(p.numel() for p in setup.model.parameters()),
        **environment(setup.place),
    }
