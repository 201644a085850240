"""How many of LightBench's hard toy problems does StochasticAGD solve, with nothing set and one attempt each?

LightBench is the suite of the authors of heavyball. In its published table, which comes with the package, every rival
has 61 to 148 attempts per problem, each with other settings from a sampler, and 100,000 steps on a GPU. Here there is
one attempt with some seconds of one core, so the count is a lower bound. Problems of the table that the package no
longer has are skipped, for the rivals too; thresholds may have changed since. As in the suite, if a problem fails, the
harder ones of its family count as failed.

Install: pip install --no-deps lightbench==0.1.1 heavyball==3.2.1 opt-einsum typer
Run: python benchmarks/lightbench_suite.py
Every problem is recorded at once; repeat the command to continue. `--report` prints only the counts.
"""

import contextlib
import copy
import inspect
import io
import json
import math
import multiprocessing
import resource
import sys
import time
import types
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import tyro
from torch import nn

from autogd import baselines

RECORDS = Path(__file__).parents[1] / "records" / "lightbench.jsonl"
DIFFICULTIES = ("trivial", "easy", "medium", "hard", "extreme", "nightmare")
STEPS = 100_000  # of the suite's own runner
GROUP = 256  # steps between two checks of the win condition, as there
GRACE = 10  # seconds until the process of a step that does not end is killed
SHOWN = ("AdamW", "ForeachSFAdamW", "Muon", "ForeachSOAP", "CachedPSGDKron")  # of the published table


@dataclass(frozen=True)
class Options:
    """What this takes."""

    optimiser: str = "agd-stochastic"
    """a name of `autogd.baselines`; rivals run at their defaults"""
    problems: tuple[str, ...] = ()
    """families such as beale or xor_digit; all of the published table if none is named"""
    limit: float = 20.0
    """processor seconds for a problem"""
    total: float = 1500.0
    """processor seconds for this run; the next run continues"""
    out: Path = RECORDS
    report: bool = False
    """run nothing"""


@dataclass(frozen=True)
class Result:
    """One problem: the lowest loss that was seen, and why it ended there."""

    optimiser: str
    problem: str
    solved: bool
    steps: int
    loss: float | None
    seconds: float
    end: str


class Done(Exception):  # noqa: N818
    """Leave the problem's main function with the result."""


@contextlib.contextmanager
def on_the_cpu() -> Iterator[None]:
    """The problems ask for "cuda" by name: they get the CPU."""

    def here(make):
        return lambda *args, **kwargs: make(*args, **({**kwargs, "device": "cpu"} if "device" in kwargs else kwargs))

    with contextlib.ExitStack() as stack:
        for owner in (torch.Tensor, nn.Module):
            stack.enter_context(mock.patch.object(owner, "cuda", new=lambda self: self))
        for name in ("full", "randint", "randn", "zeros"):
            stack.enter_context(mock.patch.object(torch, name, new=here(getattr(torch, name))))
        yield


@cache
def suite() -> Any:
    """The package, without its sampler of settings, which is not needed here."""
    stand_ins = {name: types.ModuleType(name) for name in ("optuna", "heavyball.helpers")}
    stand_ins["heavyball.helpers"].AutoSampler = None  # type: ignore[attr-defined]
    sys.modules.update(stand_ins)
    try:
        return import_module("lightbench.utils")
    finally:
        for name in stand_ins:
            del sys.modules[name]


@cache
def published() -> dict[str, dict[str, bool]]:
    """The problems that each rival of the package's table solved, without its variants."""
    solved: dict[str, dict[str, bool]] = defaultdict(dict)
    for line in Path(suite().__file__).with_name("benchmark_results.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) == 10 and cells[2:4] == ["No", "No"]:
            solved[cells[1]][cells[0]] = cells[4] == "✓"
    return solved


def families() -> dict[str, list[str]]:
    """Problems of the table that the package still has, by family, from easy to hard."""
    folder = Path(suite().__file__).parent
    found: dict[str, list[str]] = defaultdict(list)
    names = sorted(published()["AdamW"], key=lambda name: DIFFICULTIES.index(name.rpartition("-")[2]))
    for name in names:
        family = name.rpartition("-")[0]
        if (folder / f"{family}.py").exists():
            found[family].append(name)
    return dict(sorted(found.items()))


def attempt(problem: str, options: Options) -> Result:
    """One problem with one optimiser, in this process."""
    family, _, difficulty = problem.rpartition("-")
    utils = suite()
    begin = time.process_time()
    seen = {"steps": 0, "loss": None}

    def trial(model, data, loss_fn, win, steps, *_, dtype=None, **__):
        model = copy.deepcopy(model).to(dtype=utils._resolve_dtype(dtype))
        utils.set_seed(0x12312)  # as the suite does before each attempt
        optimiser = baselines.build(options.optimiser, model)
        lowest, losses = math.inf, []
        for step in range(1, steps + 1):
            inputs, target = data() if data else (None, None)

            def closure(inputs=inputs, target=target):
                model.zero_grad()
                loss = model() if inputs is None else model(inputs)
                loss = loss if loss_fn is None else loss_fn(loss, target)
                loss.backward()
                return loss

            loss = float(optimiser.step(closure).detach())
            late = time.process_time() - begin > options.limit
            if math.isfinite(loss):
                losses.append(loss)
                lowest = min(lowest, loss)
            seen.update(steps=step, loss=lowest if math.isfinite(lowest) else None)
            if step % GROUP == 0 or late or step == steps or not math.isfinite(loss):
                # a condition checks the loss or the weights: use the lowest loss since the last check
                with baselines.averaged(optimiser), torch.no_grad():
                    won = bool(losses) and bool(win(model, min(losses))[0])
                if won or not math.isfinite(loss) or late:
                    raise Done("solved" if won else "time" if late else "not finite")
                losses = []
        raise Done("steps")

    end = "time"
    try:
        with on_the_cpu(), contextlib.redirect_stdout(io.StringIO()):
            module = import_module(f"lightbench.{family}")
            torch.manual_seed(0)  # of the starting point
            with mock.patch.object(module, "trial", trial):
                module.main(**arguments(module.main, difficulty, options.optimiser))
    except Done as done:
        end = str(done)
    except Exception as error:  # a problem that raises an error is not solved
        end = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
    seconds = round(time.process_time() - begin, 2)
    return Result(options.optimiser, problem, end == "solved", seen["steps"], seen["loss"], seconds, end)


def arguments(main: Any, difficulty: str, optimiser: str) -> dict[str, Any]:
    """The arguments of the suite's runner; some problems take lists, some do not."""
    given = {"dtype": "float32", "steps": STEPS, "weight_decay": 0, "opt": optimiser, "trials": 1, "config": difficulty}
    parameters = inspect.signature(main).parameters
    for name in ("dtype", "opt"):
        if "List" in str(parameters[name].annotation):
            given[name] = [given[name]]
    return {name: value for name, value in given.items() if name in parameters}


def bounded(problem: str, options: Options) -> Result:
    """The attempt in a separate process, which the system ends if a step does not end."""
    fork = multiprocessing.get_context("fork")  # imports are done already, so a new process is cheap
    receiver, sender = fork.Pipe(duplex=False)

    def work() -> None:
        seconds = math.ceil(options.limit) + GRACE
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        sender.send(asdict(attempt(problem, options)))

    process = fork.Process(target=work)
    process.start()
    sender.close()
    try:
        return Result(**receiver.recv())
    except EOFError:
        return Result(
            options.optimiser, problem, False, 0, None, options.limit, "the process died, or a step did not end"
        )
    finally:
        process.join()


def recorded(options: Options) -> dict[str, Result]:
    if not options.out.exists():
        return {}
    every = [Result(**json.loads(line)) for line in options.out.read_text().splitlines()]
    return {each.problem: each for each in every if each.optimiser == options.optimiser}


def record(result: Result, options: Options) -> None:
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")
    print(f"{result.problem}: {result.end}, {result.steps} steps, {result.seconds:.1f} s", flush=True)


def run(options: Options, chosen: dict[str, list[str]]) -> None:
    known, spent = recorded(options), 0.0
    for family, problems in chosen.items():
        import_module(f"lightbench.{family}")  # here, so that it counts for no problem
        failed = False
        for problem in problems:
            if problem not in known:
                if spent + options.limit > options.total:
                    print("the time for this run is over; repeat the command to continue")
                    return
                easier = Result(options.optimiser, problem, False, 0, None, 0.0, "not tried: an easier one failed")
                known[problem] = easier if failed else bounded(problem, options)
                spent += known[problem].seconds
                record(known[problem], options)
            failed = failed or not known[problem].solved


def report(options: Options, chosen: dict[str, list[str]]) -> None:
    ours = recorded(options)
    done = [problem for problems in chosen.values() for problem in problems if problem in ours]
    print(f"{sum(map(len, chosen.values()))} problems, {len(done)} recorded; over these:")
    print(f"  {options.optimiser}, one attempt: {sum(ours[name].solved for name in done)}")
    for rival in SHOWN:
        print(f"  {rival}, published, many attempts: {sum(published()[rival].get(name, False) for name in done)}")


if __name__ == "__main__":
    options = tyro.cli(Options, description=__doc__)
    torch.set_num_threads(1)
    chosen = families()
    strange = [name for name in options.problems if name not in chosen]
    if strange:
        raise SystemExit(f"problems: {', '.join(strange)}: not known; choose from {', '.join(chosen)}")
    chosen = {name: chosen[name] for name in options.problems or chosen}
    if not options.report:
        run(options, chosen)
    report(options, chosen)
