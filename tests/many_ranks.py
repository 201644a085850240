"""Run many cases on several gloo processes: torch is imported once, and each case has a process group of its own."""

import json
import multiprocessing
import os
import tempfile
import traceback
import warnings
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import torch
import torch.distributed as dist

PATIENCE = timedelta(seconds=600)  # for any machine under load; gloo names it in its message


def run(world: int, module: str, cases: list[str], given: object = None, lost: int = 0) -> dict[str, list[str]]:
    """What went wrong in each case, a line a rank: `module.case(rank, world, given)` is called on every rank.

    The last `lost` ranks are to die, and say nothing.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "torch.distributed.tensor", "torch.distributed.fsdp", "autogd", "many_ranks"]
    )
    with tempfile.TemporaryDirectory() as folder:
        torch.save(given, Path(folder) / "given")
        each = [context.Process(target=_rank, args=(rank, world, module, cases, folder)) for rank in range(world)]
        for process in each:
            process.start()
        for process in each:
            process.join()
        told = [rank for rank in range(world) if (Path(folder) / f"{rank}").exists()]
        assert told == list(range(world - lost)), f"of {world} processes these did not die: {told}"
        found = [json.loads((Path(folder) / f"{rank}").read_text()) for rank in told]
    return {case: [f"rank {rank}: {wrong[case]}" for rank, wrong in enumerate(found) if wrong[case]] for case in cases}


def told(wrong: dict[str, list[str]]) -> str:
    """The same for people."""
    return "\n".join(f"{case}, {line}" for case, lines in wrong.items() for line in lines)


def _rank(rank: int, world: int, module: str, cases: list[str], folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("error")
    functions = import_module(module)
    given = torch.load(Path(folder) / "given", weights_only=False)
    wrong = {}
    for case in cases:
        store = dist.FileStore(f"{folder}/store-{case}", world)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=PATIENCE)
        try:
            with warnings.catch_warnings():
                torch.manual_seed(0)
                getattr(functions, case)(rank, world, given)
            wrong[case] = ""
        except BaseException:  # pytest's failures are none of Exception's
            wrong[case] = traceback.format_exc()[-700:]
        finally:
            dist.destroy_process_group()
    (Path(folder) / f"{rank}").write_text(json.dumps(wrong))
