"""Run a script in several processes, placed as torchrun places them, and print their statuses and errors as JSON.

They are forked from one process that has all imports, so a start takes milliseconds instead of seconds.

usage: forking.py PROCESSES SCRIPT ARGUMENT …
"""

import json
import os
import runpy
import socket
import sys
import tempfile
import traceback

import safetensors.torch  # noqa: F401 - imported for the children, as are those below
import sklearn.datasets  # noqa: F401

import autogd.training  # noqa: F401


def child(rank, processes, port, errors, arguments):
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()}, TORCHELASTIC_RUN_ID="test")
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []
    for rank in range(int(processes)):
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - the child writes, the parent reads
        number = os.fork()
        if number == 0:
            child(rank, processes, port, errors, list(arguments))
        started.append((number, errors))
    results = []
    for number, errors in started:
        status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        errors.seek(0)
        results.append([status, errors.read().decode()])
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
