"""The two figures of docs/research.md: η over training, and networks of other sizes.

    python benchmarks/research.py                 draws both from the records
    python benchmarks/research.py traces DATA     records η on four workloads of the quality benchmark
    python benchmarks/research.py transfer DATA   records what is missing of the networks of other sizes

`traces` puts η beside a cosine schedule from the same start. `transfer` asks whether a setting that is right for a
small network stays right for a large one, and whether anything diverges. It trains fully-connected networks on CIFAR-10
from `initialise_` with square loss. StochasticAGD has no setting to transfer; Adam gets the best rate of the smallest
network at every size. Then it goes to extreme batch sizes, widths and depths, and counts values that are not finite.
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from autogd import StochasticAGD, baselines, initialise_
from autogd.experiments.quality.race import Cell, race
from autogd.experiments.quality.sources import SOURCES
from autogd.losses import one_hot, square_loss
from autogd.models import FCN
from autogd.report.reproduction.curves import COLOURS, dress, empty
from autogd.training.seeds import generator

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "results" / "quality"
TRACES, TRANSFER = ROOT / "records" / "traces.jsonl", ROOT / "records" / "transfer.jsonl"
WORKLOADS = ("fcn-8", "cnn", "gpt", "lstm")
STEPS, BATCH = 200, 128
WIDTHS, DEPTHS = (64, 128, 256, 512), (2, 4, 8, 16, 32)
RATES = [float(f"{10 ** (k / 2):.3g}") for k in range(-8, -2)]
SEEDS = (0, 1, 2)
# the extremes, and their numbers of steps: large batches are expensive
BATCHES = {32: 60, 128: 60, 512: 60, 1024: 40, 4096: 20}
WIDE = dict.fromkeys((64, 128, 256, 512, 1024, 2048), 60)
DEEP = dict.fromkeys(DEPTHS, 60)


def trace(workload: str, data_dir: str | None) -> dict[str, Any]:
    """η of every step, and the benchmark's own outcome."""
    rates: list[float] = []

    def look(optimiser: Any, *_: Any) -> None:
        if hasattr(optimiser, "learning_rate"):
            rates.append(float(optimiser.learning_rate))

    handle = register_optimizer_step_post_hook(look)
    outcome = race(Cell(workload, "agd-stochastic"), data_dir)
    handle.remove()
    return {
        "workload": workload,
        "steps": outcome.steps,
        "eta": [float(f"{rate:.4g}") for rate in rates],
        "loss": [float(f"{value:.5g}") for value in outcome.loss],
    }


def draw_traces() -> None:
    """One column per workload: η, and the validation loss."""
    records = [json.loads(line) for line in TRACES.read_text().splitlines()]
    for record in records:
        eta = record["eta"]
        print(f"{record['workload']:6} {record['steps']:5} steps: η {eta[0]:.3g} at first, {eta[-1]:.3g} at the end")
    title = "StochasticAGD: η falls as one over the root of the steps, whatever the budget"
    figure = empty(13, 5.5, title, "seed 0; validation loss of the averaged weights")
    grid = figure.subplots(2, len(WORKLOADS))
    for column, record in enumerate(records):
        steps = range(1, record["steps"] + 1)
        cosine = [record["eta"][0] * (1 + math.cos(math.pi * (t - 1) / record["steps"])) / 2 for t in steps]
        top, bottom = grid[:, column]
        top.plot(steps, record["eta"], color=COLOURS["agd"], lw=1.3, label="η")
        top.plot(steps, cosine, color=COLOURS["adam"], lw=1.3, ls="--", label="a cosine, from the same start")
        each = record["steps"] / len(record["loss"])
        bottom.plot([(i + 1) * each for i in range(len(record["loss"]))], record["loss"], color=COLOURS["agd"], lw=1.3)
        for axes in (top, bottom):
            axes.tick_params(which="both", labelsize=7.5)
        dress(top, record["workload"], "", "" if column else "η", legend=not column)
        dress(bottom, "", "step", "" if column else "validation loss", legend=False)
    figure.savefig(FIGURES / "traces.png")


def train(cell: dict[str, Any], data_dir: str) -> dict[str, Any]:
    """The final validation loss, the training loss over the last tenth, and the number of values not finite."""
    source = SOURCES["cifar10"](data_dir)
    draws = generator(cell["seed"], "transfer")
    model = initialise_(FCN(cell["depth"], cell["width"], 3072, 10), draws)
    rate = cell["lr"]
    optimiser = StochasticAGD(model) if rate is None else torch.optim.Adam(model.parameters(), rate)
    losses, bad, begin = [], 0, time.process_time()
    for _ in range(cell["steps"]):
        x, labels = source.batch(torch.randint(source.samples, (cell["batch"],), generator=draws))
        optimiser.zero_grad()
        loss = square_loss(model(x), one_hot(labels, 10))
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        bad += sum(int((~torch.isfinite(p)).sum()) for p in model.parameters()) + (not math.isfinite(losses[-1]))
    seconds = time.process_time() - begin
    x, labels = source.held_out
    with torch.no_grad(), baselines.averaged(optimiser):
        final = float(square_loss(model(x), one_hot(labels, 10)))
    last = losses[-max(1, len(losses) // 10) :]
    numbers = {"start": losses[0], "loss": final, "train": sum(last) / len(last)}
    return {**cell, **{k: float(f"{v:.5g}") for k, v in numbers.items()}, "bad": bad, "seconds": round(seconds, 1)}


def cell(
    depth: int, width: int, lr: float | None, seed: int = 0, steps: int = STEPS, batch: int = BATCH
) -> dict[str, Any]:
    return {"depth": depth, "width": width, "lr": lr, "seed": seed, "steps": steps, "batch": batch}


class Book:
    """The recorded runs; with a data folder, missing ones are run and recorded."""

    def __init__(self, data_dir: str | None) -> None:
        self.data_dir = data_dir
        lines = TRANSFER.read_text().splitlines() if TRANSFER.exists() else []
        self.rows = [json.loads(line) for line in lines]

    def get(self, wanted: dict[str, Any]) -> dict[str, Any]:
        for row in self.rows:
            if row.items() >= wanted.items():
                return row
        if self.data_dir is None:
            raise SystemExit(f"not recorded: {wanted}; run python benchmarks/research.py transfer DATA")
        self.rows.append(train(wanted, self.data_dir))
        print(self.rows[-1], flush=True)
        with TRANSFER.open("a") as out:
            out.write(json.dumps(self.rows[-1]) + "\n")
        return self.rows[-1]

    def mean(self, depth: int, width: int, lr: float | None) -> float:
        return sum(self.get(cell(depth, width, lr, seed))["loss"] for seed in SEEDS) / len(SEEDS)

    def best_rate(self, depth: int, width: int) -> float:
        found = min(RATES, key=lambda rate: self.mean(depth, width, rate))
        assert found not in (RATES[0], RATES[-1]), f"the best rate, {found}, is at the edge of the grid"
        return found


def draw_transfer(book: Book) -> None:
    """Two panels: over width and over depth."""
    figure = empty(9.5, 4, "Final loss over width and depth, nothing tuned beyond the smallest network",
                   f"CIFAR-10, {STEPS} steps of {BATCH}, mean validation loss of {len(SEEDS)} seeds")  # fmt: skip
    panels = figure.subplots(1, 2)
    for axes, what, sizes, at in (
        (panels[0], "width", WIDTHS, lambda n: (4, n)),
        (panels[1], "depth", DEPTHS, lambda n: (n, 64)),
    ):
        rate = book.best_rate(*at(sizes[0]))
        for lr, colour, label in (
            (None, COLOURS["agd"], "StochasticAGD"),
            (rate, COLOURS["adam"], f"Adam at {rate:g}, best at {what} {sizes[0]}"),
        ):
            values = [book.mean(*at(n), lr) for n in sizes]
            print(f"{what:6} {label:32}", " ".join(f"{n}: {value:.4f}" for n, value in zip(sizes, values, strict=True)))
            axes.plot(sizes, values, "o-", color=colour, ms=4, lw=1.6, label=label)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(n) for n in sizes])
        dress(axes, "depth 4" if what == "width" else "width 64", what, "validation loss")
    figure.savefig(FIGURES / "transfer.png")


def ends(book: Book) -> None:
    """Extreme batch sizes, widths and depths."""
    runs = [cell(4, 64, None, steps=steps, batch=batch) for batch, steps in BATCHES.items()]
    runs += [cell(3, width, None, steps=steps) for width, steps in WIDE.items()]
    runs += [cell(depth, 64, None, steps=steps) for depth, steps in DEEP.items()]
    rows = [book.get(run) for run in runs]
    for row in rows:
        print(
            f"depth {row['depth']:2} width {row['width']:4} batch {row['batch']:4} {row['steps']} steps: "
            f"{row['start']:.4f} -> {row['train']:.4f}, {row['bad']} values not finite"
        )
    print(f"{sum(row['bad'] for row in rows)} values not finite in {len(rows)} runs")


def draw() -> None:
    """Both figures, from the records."""
    draw_traces()
    book = Book(None)
    draw_transfer(book)
    ends(book)


def main(what: str = "", data_dir: str | None = None) -> None:
    torch.set_num_threads(1)
    if what == "traces":
        TRACES.write_text("".join(json.dumps(trace(workload, data_dir)) + "\n" for workload in WORKLOADS))
    if what == "transfer":
        book = Book(data_dir)
        draw_transfer(book)
        ends(book)
    draw()


if __name__ == "__main__":
    main(*sys.argv[1:])
