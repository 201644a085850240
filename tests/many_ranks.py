"""Run many cases on several gloo processes: torch is imported once, and each case has a process group of its own."""

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
PRELOADED = [  # what the cases use; torch's optimisers import dynamo in the first step
    "torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.tensor",
    "torch.distributed.tensor.parallel", "autogd", "many_ranks",
]  # fmt: skip


def run(world: int, module: str, cases: list[str], given: object = None, lost: int = 0) -> dict[str, list[str]]:
    """What went wrong in each case, a line a rank: `module.case(rank, world, given)` is called on every rank.

    Each case has processes of its own. The last `lost` ranks may end as they like, or not at all.
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.save(given, Path(folder) / "given")
        return {case: _case(world, module, case, Path(folder), lost) for case in cases}


def _case(world: int, module: str, case: str, folder: Path, lost: int) -> list[str]:
    for attempt in range(MEETINGS):
        place = folder / f"{case}-{attempt}"
        place.mkdir()
        ends = _processes(world, module, case, folder, place, lost)
        # Gloo's rendezvous can fail on a busy machine. None of our code has run by then, so meet again.
        if all((place / f"met-{rank}").exists() for rank in range(world)):
            break
    wrong = []
    for rank in range(world - lost):
        verdict = place / f"verdict-{rank}"
        said = verdict.read_text() if verdict.exists() else f"ended without a verdict, exit code {ends[rank]}"
        wrong += [f"rank {rank}: {said}"] if said else []
    return wrong


def _processes(world: int, module: str, case: str, folder: Path, place: Path, lost: int) -> list[int | None]:
    """Run one process a rank to its end, and return the exit codes.

    A rank that dies before all met ends the others. The last `lost` ranks are killed when all others have ended.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    each = [context.Process(target=_rank, args=(rank, world, module, case, folder, place)) for rank in range(world)]
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


def _rank(rank: int, world: int, module: str, case: str, folder: Path, place: Path) -> None:
    faulthandler.enable()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("error")
    met, said = place / f"met-{rank}", ""
    try:
        function = getattr(import_module(module), case)
        given = torch.load(folder / "given", weights_only=False)
        store = dist.FileStore(str(place / "store"), world)
        store.set_timeout(PATIENCE)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=PATIENCE)
        met.touch()
        dist.barrier()  # no rank starts, or ends, before all have met
        torch.manual_seed(0)
        function(rank, world, given)
    except BaseException:  # pytest's failures are none of Exception's
        said = traceback.format_exc()[-700:]
    (place / f"verdict-{rank}").write_text(said)
    if not met.exists():
        sys.exit(1)
    dist.destroy_process_group()
