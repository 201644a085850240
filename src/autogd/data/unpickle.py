"""Read pickled arrays without running anything that the file says.

A pickle is a program. This reader admits the few instructions that build dictionaries, lists, strings, numbers and
arrays, and the few names that numpy's arrays are pickled with; and even for those names it runs no code of numpy's
but inert stand-ins of its own, so that a hostile state cannot reach it either.
"""

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["PickledArray", "read_pickle"]

LIMIT = 1 << 30  # bytes; the largest official file has 155 million

INSTRUCTIONS = """
    PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
    BINSTRING SHORT_BINSTRING BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES
    EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS
    BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD
"""

DTYPES = {
    "u1": torch.uint8,
    "i1": torch.int8,
    "i2": torch.int16,
    "i4": torch.int32,
    "i8": torch.int64,
    "f4": torch.float32,
    "f8": torch.float64,
}


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary pickled in a file, its keys as text and its arrays as `PickledArray`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "batch")
    ...     _ = path.write_bytes(pickle.dumps({b"labels": [3, 1]}, protocol=2))
    ...     read_pickle(path)
    {'labels': [3, 1]}
    """
    size = path.stat().st_size
    if size > LIMIT:
        raise ValueError(f"{path}: {size} bytes are more than any batch of images has; it is not the published file")
    data = path.read_bytes()
    try:
        _check_instructions(data)
        found = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(found, dict):
            raise ValueError(f"expected a dictionary, found a {type(found).__name__}")
        return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in found.items()}
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(f"{path}: not a pickle of plain arrays ({type(error).__name__}: {error})") from error


class PickledArray:
    """An array as a pickle describes it; `tensor()` gives the numbers."""

    __slots__ = ("_data", "_dtype", "_shape")

    def __init__(self) -> None:
        self._data, self._dtype, self._shape = b"", torch.uint8, (0,)

    def __setstate__(self, state: Any) -> None:
        version, shape, dtype, fortran, data = state
        if version != 1 or not isinstance(dtype, _Dtype) or fortran or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array of unknown make")
        if not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
            raise pickle.UnpicklingError("an array without a proper shape")
        if math.prod(shape) * dtype.torch.itemsize != len(data):
            raise pickle.UnpicklingError(f"an array of shape {shape} with {len(data)} bytes")
        self._data, self._dtype, self._shape = data, dtype.torch, shape

    def tensor(self) -> Tensor:
        """The array as a tensor of its own."""
        if not self._data:
            return torch.empty(self._shape, dtype=self._dtype)
        return torch.frombuffer(bytearray(self._data), dtype=self._dtype).reshape(self._shape)


class _Dtype:
    """Stands in for numpy.dtype: plain little-endian numbers only."""

    __slots__ = ("torch",)

    def __init__(self, code: Any) -> None:
        text = code.decode() if isinstance(code, bytes) else code
        if text not in DTYPES:
            raise pickle.UnpicklingError(f"an array of {text!r}, which is no plain number")
        self.torch = DTYPES[text]

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode() if isinstance(state[1], bytes) else state[1]
        if order not in ("|", "<") or any(field is not None for field in state[2:5]):
            raise pickle.UnpicklingError("an array of numbers of unknown make")


class _Inert:
    """A name that a pickle may mention and call, and through which it can change nothing."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        if self._call is None:
            raise pickle.UnpicklingError("a name is called that arrays do not call")
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("an attempt to change what a name means")


def _encode(text: str, codec: str) -> bytes:
    if codec != "latin1":
        raise pickle.UnpicklingError(f"bytes written in {codec!r}")
    return text.encode("latin1")


def _reconstruct(kind: Any, shape: Any, code: Any) -> PickledArray:
    if kind is not _NDARRAY:
        raise pickle.UnpicklingError("an array of a type of its own")
    return PickledArray()


_NDARRAY = _Inert()
_RECONSTRUCT = _Inert(_reconstruct)
_ADMITTED = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Inert(lambda code, *flags: _Dtype(code)),
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    # Python 3's way to write bytes in protocol 2, and to write none
    ("_codecs", "encode"): _Inert(_encode),
    ("__builtin__", "bytes"): _Inert(lambda: b""),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs; nothing was run")
        return _ADMITTED[module, name]


def _check_instructions(data: bytes) -> None:
    """Refuse instructions that no array needs, and notes to self far ahead, which would reserve memory up to there."""
    admitted = set(INSTRUCTIONS.split())
    for count, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        if instruction.name not in admitted:
            raise pickle.UnpicklingError(f"the instruction {instruction.name}, which no array needs; nothing was run")
        if instruction.name in ("BINPUT", "LONG_BINPUT") and int(argument or 0) > count:
            raise pickle.UnpicklingError(f"note {argument} taken at instruction {count}")
