"""Run a script in several processes, placed as torchrun places them; forked, with all imports, in milliseconds."""

import multiprocessing
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

import pytest
import torch.distributed as dist

from many_ranks import PRELOADED
from patience import PATIENCE


def launch(processes, script, *arguments, folder="."):
    """The status and the output of each process, in the order of ranks.

    Args:
        processes: how many.
        script: the file that all run.
        arguments: its own.
        folder: the current folder of all.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as place:
        outputs = [Path(place, str(rank)) for rank in range(processes)]
        words = [str(script), *map(str, arguments)]
        each = [
            context.Process(target=_child, args=(rank, processes, store.port, output, Path(folder).resolve(), words))
            for rank, output in enumerate(outputs)
        ]
        for process in each:
            process.start()
        for process in each:
            process.join(PATIENCE)
        late = [process for process in each if process.exitcode is None]
        for process in late:
            process.kill()
            process.join()
        said = [output.read_text() if output.exists() else "" for output in outputs]
    if late:
        pytest.fail(f"{' '.join(words)}: not over after {PATIENCE} seconds; it said {said}")
    return [(process.exitcode, text) for process, text in zip(each, said, strict=True)]


def _child(rank, processes, port, output, folder, words):
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1"}
    place |= {"MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    place |= {"TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_RESTART_COUNT": 0, "OMP_NUM_THREADS": 1}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.chdir(folder)
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    try:
        runpy.run_path(words[0], run_name="__main__")
        status = 0
    except BaseException as error:
        traceback.print_exc()
        # keep the frames: to free DDP's reducer here may wait for a thread that waits for the interpreter
        status, _kept = 1, error
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
