"""Run many cases on several gloo processes: torch is imported once, and the processes are started once."""

import faulthandler
import multiprocessing
import os
import sys
import tempfile
import traceback
import warnings
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path

import torch
import torch.distributed as dist

PATIENCE = timedelta(seconds=600)  # for any machine under load; gloo names it in its message
MEETINGS = 2
PRELOADED = [  # what the cases and training use; torch's optimisers import dynamo in the first step
    "torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.tensor",
    "torch.distributed.tensor.parallel", "sklearn.datasets", "safetensors.torch", "autogd", "autogd.training",
    "many_ranks",
]  # fmt: skip


def run(world: int, module: str, cases: list[str], given: object = None, lost: int = 0) -> dict[str, list[str]]:
    """What went wrong in each case, a line a rank: `module.case(rank, world, given)` is called on every rank.

    The processes are started once and take one case after the other, up to the first that fails. If ranks are to be
    lost, each case has processes of its own: the last `lost` ranks may end as they like, or not at all.
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.save(given, Path(folder) / "given")
        starts = [[case] for case in cases] if lost else [cases]
        found = [_start(world, module, some, Path(folder), lost) for some in starts]
    return {case: lines for each in found for case, lines in each.items()}


def _start(world: int, module: str, cases: list[str], folder: Path, lost: int) -> dict[str, list[str]]:
    for attempt in range(MEETINGS):
        place = folder / f"{cases[0]}-{attempt}"
        place.mkdir()
        ends = _processes(world, module, cases, folder, place, lost)
        # Gloo's rendezvous can fail on a busy machine. None of our code has run by then, so meet again.
        if all((place / f"met-{rank}").exists() for rank in range(world)):
            break
    wrong: dict[str, list[str]] = {}
    for case in cases:
        if any(wrong.values()):
            wrong[case] = ["not run: a case before it failed"]
            continue
        wrong[case] = []
        for rank in range(world - lost):
            verdict = place / f"{case}-{rank}"
            said = verdict.read_text() if verdict.exists() else f"ended without a verdict, exit code {ends[rank]}"
            wrong[case] += [f"rank {rank}: {said}"] if said else []
    return wrong


def _processes(world: int, module: str, cases: list[str], folder: Path, place: Path, lost: int) -> list[int | None]:
    """Run one process a rank to its end, and return the exit codes.

    A rank that dies before all met ends the others. The last `lost` ranks are killed when all others have ended.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    each = [context.Process(target=_rank, args=(rank, world, module, cases, folder, place)) for rank in range(world)]
    for process in each:
        process.start()
    while alive := [process.sentinel for process in each if process.exitcode is None]:
        wait(alive)
        met = all((place / f"met-{rank}").exists() for rank in range(world))
        failed = not met and any(process.exitcode is not None for process in each)
        if failed or all(process.exitcode is not None for process in each[: world - lost]):
            for process in each:
                process.kill()
    for process in each:
        process.join()
    return [process.exitcode for process in each]


def told(wrong: dict[str, list[str]]) -> str:
    """The same for people."""
    return "\n".join(f"{case}, {line}" for case, lines in wrong.items() for line in lines)


def _rank(rank: int, world: int, module: str, cases: list[str], folder: Path, place: Path) -> None:
    faulthandler.enable()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("error")
    met, case = place / f"met-{rank}", cases[0]
    try:
        functions = {name: getattr(import_module(module), name) for name in cases}
        given = torch.load(folder / "given", weights_only=False)
        store = dist.FileStore(str(place / "store"), world)
        store.set_timeout(PATIENCE)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=PATIENCE)
        met.touch()
        for case, function in functions.items():
            dist.barrier()  # no rank starts, or ends, before all are here
            torch.manual_seed(0)
            with warnings.catch_warnings():
                function(rank, world, given)
            (place / f"{case}-{rank}").touch()
    except BaseException:  # pytest's failures are none of Exception's
        (place / f"{case}-{rank}").write_text(traceback.format_exc()[-700:])
    if not met.exists():
        sys.exit(1)
    dist.destroy_process_group()
