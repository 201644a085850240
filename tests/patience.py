"""Waiting for child processes: long enough for any machine, and with a message when it was not."""

import subprocess
import time

import pytest

PATIENCE = 600  # seconds; what is waited for takes a few on an idle machine


def run_child(command, **settings):
    """Run a command to its end, and return what it said and its status."""
    try:
        return subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, check=False, **settings
        )
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"{_words(command)}: not over after {PATIENCE} seconds; it said {late.stdout!r}, {late.stderr!r}")


def finish(process):
    """What a process that was started says until its end."""
    try:
        return process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()  # not kill: torchrun ends what it started when it is asked to end
        said = process.communicate(timeout=PATIENCE)
        pytest.fail(f"{_words(process.args)}: not over after {PATIENCE} seconds; it said {said!r}")


def wait_until(condition, process):
    """Until something is so, while a process runs that is to make it so."""
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
