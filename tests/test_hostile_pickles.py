"""A hundred crafted pickles leave no trace in a process that reads them, as images or as a checkpoint."""

import json
import os
import sys
from pathlib import Path

import pytest

import autogd
from hostile_pickles import KINDS, crafted
from patience import run_child

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What each reader made of the pickles, in a process of their own."""
    folder = tmp_path_factory.mktemp("hostile")
    paths = os.pathsep.join([str(Path(autogd.__file__).parents[1]), str(HERE)])
    command = [sys.executable, HERE / "hostile_pickles.py", folder, "images", "checkpoint", "pickle"]
    done = run_child(command, cwd=folder, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_there_are_a_hundred_of_every_kind_and_they_are_the_same_each_time():
    made = crafted()
    assert len({content for _, content in made}) > 80
    assert {kind for kind, _ in made} == {kind.__name__ for kind in KINDS}
    assert made == crafted()


@pytest.mark.parametrize("reader", ["images", "checkpoint"])
def test_no_crafted_pickle_leaves_a_trace(reader, reports):
    report = reports[reader]
    assert len(report) == 100
    assert [each for each in report if each[2]] == []
    assert sum(result == "refused" for _, result, _ in report) >= 90


def test_plain_unpickling_would_have_left_traces(reports):
    """The test looks for traces in the right places."""
    hit = {kind for kind, _, changed in reports["pickle"] if changed}
    assert {"build", "reduce", "imports", "by_looking_up", "new_object", "memo"} <= hit
