"""Read pickled arrays without executing anything in the file.

A pickle is a program. Our own interpreter (`pickle_machine.py`) runs it, and admits only the few names that pickled
numpy arrays need. Those names stand for inert objects of our own: no other class or function is ever called.
"""

import math
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autogd.data.pickle_machine import Buildable, Inert, Machine

__all__ = ["PickledArray", "read_pickle"]

LIMIT = 1 << 30  # bytes; the largest official file has 155 million

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
        found = Machine(_ADMITTED, len(data)).run(data)
        if not isinstance(found, dict):
            raise ValueError(f"expected a dictionary, found a {type(found).__name__}")
        return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in found.items()}
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(f"{path}: not a pickle of plain arrays ({type(error).__name__}: {error})") from error


class PickledArray(Buildable):
    """An array as a pickle describes it; `tensor()` returns the numbers."""

    __slots__ = ("_data", "_dtype", "_shape")

    def __init__(self) -> None:
        self._data, self._dtype, self._shape = b"", torch.uint8, (0,)

    def build(self, state: Any) -> None:
        """Set the numbers from the state that numpy pickles."""
        version, shape, dtype, fortran, data = state
        if version != 1 or not isinstance(dtype, _Dtype) or fortran or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array of an unknown format")
        if type(shape) is not tuple or len(shape) > 8 or not all(type(s) is int and 0 <= s <= LIMIT for s in shape):
            raise pickle.UnpicklingError("an array without a proper shape")
        if math.prod(shape) * dtype.torch.itemsize != len(data):
            raise pickle.UnpicklingError(f"an array of shape {shape} with {len(data)} bytes")
        self._data, self._dtype, self._shape = data, dtype.torch, shape

    def tensor(self) -> Tensor:
        """The array as a new tensor."""
        if not self._data:
            return torch.empty(self._shape, dtype=self._dtype)
        return torch.frombuffer(bytearray(self._data), dtype=self._dtype).reshape(self._shape)


class _Dtype(Buildable):
    """Stands in for numpy.dtype: plain little-endian numbers only."""

    __slots__ = ("torch",)

    def __init__(self, code: Any) -> None:
        text = code.decode() if isinstance(code, bytes) else code
        if not isinstance(text, str) or text not in DTYPES:
            raise pickle.UnpicklingError(f"an array of {str(text)[:40]!r}, which is not a plain number")
        self.torch = DTYPES[text]

    def build(self, state: Any) -> None:
        order = state[1].decode() if isinstance(state[1], bytes) else state[1]
        if order not in ("|", "<") or any(field is not None for field in state[2:5]):
            raise pickle.UnpicklingError("an array of numbers of an unknown format")


def _encode(text: Any, codec: Any) -> bytes:
    if type(text) is not str or codec != "latin1":
        raise pickle.UnpicklingError(f"bytes written in {str(codec)[:40]!r}")
    return text.encode("latin1")


def _reconstruct(kind: Any, shape: Any, code: Any) -> PickledArray:
    if kind is not _NDARRAY:
        raise pickle.UnpicklingError("an array of another class")
    return PickledArray()


_NDARRAY = Inert()
_RECONSTRUCT = Inert(_reconstruct)
_ADMITTED = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): Inert(lambda code, *flags: _Dtype(code)),
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    # how Python 3 pickles bytes, and empty bytes, in protocol 2
    ("_codecs", "encode"): Inert(_encode),
    ("__builtin__", "bytes"): Inert(lambda: b""),
}
