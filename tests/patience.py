"""Wait for child processes: long enough for any machine, with a message on a time-out."""

import subprocess
import time

import pytest

PATIENCE = 600  # seconds; an idle machine needs only a few


def run_child(command, **settings):
    """Run a command to its end, and return its output and status; its output is read unless it goes elsewhere."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings}
    try:
        return subprocess.run([str(word) for word in command], timeout=PATIENCE, check=False, **settings)
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"{_words(command)}: not over after {PATIENCE} seconds; it said {late.stdout!r}, {late.stderr!r}")


def finish(process):
    """The output of a started process until its end."""
    try:
        return process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()  # not kill: torchrun ends its processes only if it is asked to end
        said = process.communicate(timeout=PATIENCE)
        pytest.fail(f"{_words(process.args)}: not over after {PATIENCE} seconds; it said {said!r}")


def wait_until(condition, process):
    """Wait until a condition holds, while a process runs."""
    for _ in range(PATIENCE * 50):
        if condition():
            return
        if process.poll() is not None:
            pytest.fail(f"{_words(process.args)}: ended with {process.returncode}: {process.communicate()!r}")
        time.sleep(0.02)
    process.kill()
    pytest.fail(f"{_words(process.args)}: what it is to do was not done after {PATIENCE} seconds")


def _words(command):
    return " ".join(str(word) for word in command)
