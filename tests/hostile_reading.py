"""Give the crafted pickles to some readers, and print as JSON the results of each reader and the traces left.

usage: hostile_reading.py FOLDER images|checkpoint|pickle …   (pickle, which leaves traces, is the last)
"""

import importlib
import json
import os
import pickle
import sys
from pathlib import Path

import torch
from torch import nn

from autogd.data import pickle_machine
from autogd.data.unpickle import PickledArray, read_pickle
from autogd.training import checkpoint
from crafted_pickles import CLASSES, crafted
from training.sealing import reseal

BUILTINS = [("copyreg", "_extension_registry"), ("copyreg", "dispatch_table"), ("os", "environ")]


def traces():
    """Everything that a pickle might change: attributes of classes, modules, registries, the environment."""
    found = {"modules": set(sys.modules)}
    for words in [*CLASSES, "autogd.data.pickle_machine Inert", "autogd.data.pickle_machine Machine"]:
        module, name = words.split(" ")
        kind = getattr(importlib.import_module(module), name)
        found[words] = {key: repr(value) for key, value in vars(kind).items() if not key.startswith("_abc_")}
    for module, name in BUILTINS:
        found[f"{module} {name}"] = dict(getattr(importlib.import_module(module), name))
    found["posix"] = os.getcwd(), sorted(os.listdir("."))
    return found


class Images:
    """The reader of CIFAR's files; counts the instructions that it executes."""

    def __init__(self, folder):
        self.path = folder / "batch"

    def __call__(self, content):
        self.path.write_bytes(content)
        genops, taken = pickle_machine.pickletools.genops, 0

        def counted(data):
            nonlocal taken
            for each in genops(data):
                taken += 1
                yield each

        pickle_machine.pickletools.genops = counted
        try:
            found = read_pickle(self.path)
        finally:
            pickle_machine.pickletools.genops = genops
            assert taken <= len(content), "more instructions than the file has bytes"
        assert count(found) <= len(content), "more values than the file has bytes"


def count(value, depth=0):
    assert depth <= pickle_machine.DEPTH
    if isinstance(value, dict):
        return 1 + sum(count(each, depth + 1) for each in value.values())
    if isinstance(value, list | tuple):
        return 1 + sum(count(each, depth + 1) for each in value)
    assert value is None or isinstance(value, PickledArray | bytes | str | int | float)
    return 1


class Checkpoint:
    """The reader of checkpoints; the pickle replaces each of its files in turn, with matching checksums if possible."""

    def __init__(self, folder):
        self.model = nn.Linear(2, 2)
        self.optimiser = torch.optim.SGD(self.model.parameters(), momentum=0.9)
        self.path = checkpoint.save(folder, 1, self.model, self.optimiser, {"epoch": 1})
        self.files = {path: path.read_bytes() for path in self.path.iterdir()}

    def __call__(self, content):
        read = []
        for path in self.files:
            path.write_bytes(content)
            if path.name != "manifest.json":
                reseal(self.path)
            try:
                assert checkpoint.load(self.path, self.model, self.optimiser) == {"epoch": 1}
                read.append(path.name)
            except ValueError:
                pass
            for file, good in self.files.items():
                file.write_bytes(good)
        # torch's index is not read, and any bytes are valid numbers
        assert {".metadata"} <= set(read) <= {".metadata", "__0_0.distcp"}, read
        raise ValueError("refused wherever it matters")


def report(reader, folder):
    read = {"images": Images, "checkpoint": Checkpoint, "pickle": lambda _: pickle.loads}[reader](folder)
    for plain in (b"\x80\x02}.", b"\x80\x02cposix\nsystem\n."):  # imports of the first use are not traces
        try:
            if reader != "pickle":
                read(plain)
        except ValueError:
            pass
    before = traces()
    lines = []
    for kind, content in crafted():
        if reader == "pickle" and kind in ("nesting", "huge", "extension", "of_old"):
            continue  # these would end the process, or hang
        try:
            read(content)
            result = "read"
        except ValueError:
            result = "refused"
        except Exception as error:
            if reader != "pickle":
                raise
            result = type(error).__name__
        after = traces()
        changed = [name for name in before if after[name] != before[name]]
        lines.append([kind, result, changed])
        before = after
    return lines


def main(folder, *readers):
    torch.manual_seed(0)
    print(json.dumps({reader: report(reader, Path(folder)) for reader in readers}))


if __name__ == "__main__":
    main(*sys.argv[1:])
