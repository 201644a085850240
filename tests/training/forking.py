"""Run a script in several processes, placed as torchrun places them, and print their statuses and errors as JSON.

They are forked from one process that has all imports, so a start takes milliseconds instead of seconds.

usage: forking.py PROCESSES SCRIPT ARGUMENT …
"""

import json
import os
import runpy
import sys
import tempfile
import traceback

import safetensors.torch  # noqa: F401 - imported for the children, as are those below
import sklearn.datasets  # noqa: F401
import torch._dynamo  # noqa: F401
import torch.distributed as dist

import autogd.training  # noqa: F401

PORT = 8  # bytes in which it is told


def child(rank, processes, ports, errors, arguments):
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1"}
    place |= {"MASTER_PORT": int(os.read(ports, PORT)), "TORCHELASTIC_USE_AGENT_STORE": True}
    place |= {"TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_RESTART_COUNT": 0}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.dup2(errors.fileno(), 2)
    os.dup2(errors.fileno(), 1)
    sys.argv = arguments
    try:
        runpy.run_path(arguments[0], run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)


def main(processes, *arguments):
    ports, tell = os.pipe()
    started = []
    for rank in range(int(processes)):
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - the child writes, the parent reads
        number = os.fork()
        if number == 0:
            child(rank, processes, ports, errors, list(arguments))
        started.append((number, errors))
    # only now, since a fork would copy its threads; the store has its port from the start, so that nobody else takes it
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(tell, f"{store.port:{PORT}}".encode() * len(started))
    results = []
    for number, errors in started:
        status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        errors.seek(0)
        results.append([status, errors.read().decode()])
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
