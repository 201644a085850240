"""Give the crafted pickles to some readers, and print as JSON the results of each reader and the traces left.

usage: hostile_pickles.py FOLDER images|checkpoint|pickle …   (pickle, which leaves traces, is the last)"""

import importlib
import json
import os
import pickle
import random
import struct
import sys
from pathlib import Path

import torch
from torch import nn

from autogd.data import pickle_machine
from autogd.data.unpickle import PickledArray, read_pickle
from autogd.training import checkpoint
from training.conftest import reseal

# real classes and functions: calling one, or setting its state, leaves a trace
CLASSES = (
    "pathlib PosixPath", "pathlib PurePath", "collections OrderedDict", "torch Size", "torch Tensor", "torch.nn Linear",
    "torch.distributed.checkpoint.metadata Metadata", "torch.distributed.checkpoint.metadata TensorProperties",
    "torch.distributed.checkpoint.filesystem _StorageInfo", "autogd.data.unpickle PickledArray",
    "autogd.training.checkpoint Reader", "numpy ndarray", "json JSONDecoder",
)  # fmt: skip
MODULES = ("colorsys", "wave", "filecmp", "sched", "netrc", "pyclbr", "tabnanny", "zipapp", "rlcompleter", "cmd")


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def name(words: str) -> bytes:
    return b"c" + words.replace(" ", "\n").encode() + b"\n"


def state(draws: random.Random) -> bytes:
    """A dictionary of attributes, as BUILD takes it."""
    keys = draws.sample(["_str", "victim", "__doc__", "call", "build", "_flavour", "dtype", "load"], 2)
    return b"}(" + b"".join(text(key) + text("/victim") for key in keys) + b"u"


def build(draws):
    target = name(draws.choice(CLASSES))
    return target + draws.choice([state(draws) + b"b", b"N" + state(draws) + b"\x86b"])


def reduce(draws):
    return name("builtins setattr") + b"(" + name(draws.choice(CLASSES)) + text("victim") + b"NtR"


def imports(draws):
    return name("importlib import_module") + text(draws.choice(MODULES)) + b"\x85R"


def by_looking_up(draws):
    """GLOBAL imports the module of the name that it looks up; STACK_GLOBAL does so, too."""
    module = draws.choice(MODULES)
    return draws.choice([name(f"{module} nothing"), text(module) + text("nothing") + b"\x93"])


def of_old(draws):
    target = draws.choice(["builtins\nsetattr\n", "posix\nputenv\n", "builtins\nexec\n"]).encode()
    arguments = name(draws.choice(CLASSES)) + text("victim") + b"N"
    return draws.choice([b"(" + arguments + b"i" + target, b"(c" + target + arguments + b"o"])


def new_object(draws):
    code = text("import pathlib; pathlib.PosixPath.victim = 1")
    return draws.choice([name("builtins exec") + code + b"\x85\x81", name("builtins exec") + code + b"\x85R"])


def extension(draws):
    number = draws.randrange(1, 256)
    register = name("copyreg add_extension") + b"(" + text("os") + text("system") + b"K" + bytes([number]) + b"tR0"
    return register + b"\x82" + bytes([number]) + draws.choice([b"", text("true") + b"\x85R"])


def persistent(draws):
    return draws.choice([b"P" + b"victim" * draws.randrange(1, 5) + b"\n", text("victim") + b"Q"])


def nesting(draws):
    levels = draws.randrange(100, 3000)
    return draws.choice(
        [
            b"}N" + b"\x85" * levels + b"Ns",
            b"}N\x85" + b"q\x010h\x01h\x01\x86" * levels + b"Ns",
            b"]q\x01" + b"]h\x01a" * levels,
            b"(" * levels + b"t" * levels,
            b"}q\x01" + text("a") + b"h\x01s",
            b"}" + text("a") + b"]" * levels + b"a" * (levels - 1) + b"s",
            b"\x8f(N" + b"\x85" * levels + b"\x90",
        ]
    )


def huge(draws):
    length = draws.randrange(1 << 29, 1 << 31)
    return draws.choice(
        [
            b"X" + struct.pack("<I", length),
            b"B" + struct.pack("<I", length),
            b"T" + struct.pack("<i", length),
            b"\x8b" + struct.pack("<i", length),
            b"\x8d" + struct.pack("<Q", length << 20),
            b"\x95" + struct.pack("<Q", length << 20) + b"}",
            b"\x96" + struct.pack("<Q", length << 20),
            b"Nr" + struct.pack("<I", length),
            b"}j" + struct.pack("<I", length),
            name("builtins bytearray") + b"J" + struct.pack("<i", length) + b"\x85R",
        ]
    )


def memo(draws):
    """Memo entries that are reused as something else."""
    note = b"q" + bytes([draws.randrange(256)])
    fetch = b"h" + note[1:]
    return draws.choice(
        [
            name("builtins setattr") + note + b"0}" + note + b"0" + fetch + b"(" + name(draws.choice(CLASSES)) + b"tR",
            name(draws.choice(CLASSES)) + note + b"0" + fetch + state(draws) + b"b" + fetch + state(draws) + b"b",
            name("numpy dtype") + note + fetch + b"0" + state(draws) + b"b",
            name("numpy ndarray") + note + name("numpy.core.multiarray _reconstruct") + fetch + b"\x86" + b"b",
        ]
    )


KINDS = (build, reduce, imports, by_looking_up, of_old, new_object, extension, persistent, nesting, huge, memo)


def crafted(count: int = 100) -> list[tuple[str, bytes]]:
    """A number of pickles, of each kind in turn, half of them with a harmless end."""
    draws = random.Random(0)
    made = []
    for i in range(count):
        kind = KINDS[i % len(KINDS)]
        ending = draws.choice([b".", b"0}.", b"}."])
        made.append((kind.__name__, b"\x80\x04" + kind(draws) + ending))
    return made


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
