"""Interpret the few pickle instructions that build plain values, within limits set by the length of the file.

Dictionary keys must be text, a memoised value is reused only if it is not a container, and nesting, instructions and
copies are limited. So reading takes at most a few steps per byte.
"""

import pickle
import pickletools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

__all__ = ["Buildable", "Inert", "Machine"]

COUNT = 1 << 21  # instructions; the largest official file of images has a tenth of that
DEPTH = 16  # containers within containers; a file of images has three

# instructions that push their argument, push a constant, or build a tuple of the last values
_CARRIED = (
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"),
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NOTHING = ("PROTO", "FRAME")


class Inert:
    """A name that a pickle may mention and call; calling it changes nothing."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        self.call = call


class Buildable:
    """An object that a pickle may set the state of."""

    __slots__ = ()

    def build(self, state: Any) -> None:
        """Check the state and store it."""
        raise NotImplementedError


class Machine:
    """A stack of values, each with its depth; marks; and a memo.

    A container is never in two places, since memoised containers are not reused. So the result is a tree no larger
    than the file.

    Args:
        admitted: the names that a pickle may mention, and what they stand for.
        budget: bytes that calls may create.

    >>> Machine({}, 0).run(pickle.dumps({"a": [1, (2.5, None)]}, protocol=2))
    {'a': [1, (2.5, None)]}
    """

    def __init__(self, admitted: Mapping[tuple[str, str], Inert], budget: int) -> None:
        self._admitted = admitted
        self._stack: list[tuple[Any, int]] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._budget = budget
        self._known: dict[str, Callable[[Any], None]] = {
            **dict.fromkeys(_CARRIED, self._push),
            **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), lambda text: self._push(text.encode("latin1"))),
            **{name: partial(self._push_constant, value) for name, value in _CONSTANTS.items()},
            **{name: partial(self._tuple_of_last, count) for name, count in _TUPLES.items()},
            **dict.fromkeys(_NOTHING, lambda _: None),
            "EMPTY_DICT": lambda _: self._push({}, 1),
            "EMPTY_LIST": lambda _: self._push([], 1),
            "MARK": lambda _: self._marks.append(len(self._stack)),
            "POP": lambda _: self._drop(),
            "POP_MARK": lambda _: self._drop_to_mark(),
            "TUPLE": lambda _: self._tuple(self._pop_to_mark()),
            "APPEND": lambda _: self._append(self._pop(1)),
            "APPENDS": lambda _: self._append(self._pop_to_mark()),
            "SETITEM": lambda _: self._set(self._pop(2)),
            "SETITEMS": lambda _: self._set(self._pop_to_mark()),
            **dict.fromkeys(("BINPUT", "LONG_BINPUT"), self._memoise),
            "MEMOIZE": lambda _: self._memoise(len(self._memo)),
            **dict.fromkeys(("BINGET", "LONG_BINGET"), self._recall),
            "GLOBAL": lambda names: self._name(*names.split(" ", 1)),
            "STACK_GLOBAL": lambda _: self._name(*(value for value, _ in self._pop(2))),
            "REDUCE": lambda _: self._call(),
            "BUILD": lambda _: self._build(),
        }

    def _push_constant(self, value: Any, _: Any) -> None:
        self._push(value)

    def _tuple_of_last(self, count: int, _: Any) -> None:
        self._tuple(self._pop(count))

    def _drop_to_mark(self) -> None:
        self._pop_to_mark()

    def run(self, data: bytes) -> Any:
        """The value of a pickle."""
        for count, (instruction, argument, _) in enumerate(pickletools.genops(data)):
            if instruction.name == "STOP":
                return self._pop(1)[0][0]
            if instruction.name not in self._known:
                raise pickle.UnpicklingError(f"the instruction {instruction.name}, which no array needs")
            if count >= COUNT:
                raise pickle.UnpicklingError(f"more than {COUNT} instructions")
            self._known[instruction.name](argument)
        raise pickle.UnpicklingError("no end")

    def _push(self, value: Any, depth: int = 0) -> None:
        if depth > DEPTH:
            raise pickle.UnpicklingError(f"containers nested deeper than {DEPTH}")
        self._stack.append((value, depth))

    def _pop(self, count: int) -> list[tuple[Any, int]]:
        start = len(self._stack) - count
        if start < (self._marks[-1] if self._marks else 0):
            raise pickle.UnpicklingError("a value is popped, and there is none")
        taken = self._stack[start:]
        del self._stack[start:]
        return taken

    def _pop_to_mark(self) -> list[tuple[Any, int]]:
        if not self._marks:
            raise pickle.UnpicklingError("a mark is popped, and there is none")
        start = self._marks.pop()
        taken = self._stack[start:]
        del self._stack[start:]
        return taken

    def _drop(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop(1)

    def _tuple(self, items: list[tuple[Any, int]]) -> None:
        self._push(tuple(value for value, _ in items), 1 + max((depth for _, depth in items), default=0))

    def _append(self, items: list[tuple[Any, int]]) -> None:
        ((target, depth),) = self._pop(1)
        if type(target) is not list:
            raise pickle.UnpicklingError(f"items appended to a {type(target).__name__}")
        target.extend(value for value, _ in items)
        self._push(target, max([depth, *(1 + below for _, below in items)]))

    def _set(self, items: list[tuple[Any, int]]) -> None:
        ((target, depth),) = self._pop(1)
        keys, values = [key for key, _ in items[::2]], items[1::2]
        if type(target) is not dict or len(keys) != len(values):
            raise pickle.UnpicklingError(f"an assignment to a {type(target).__name__}")
        # text only: a container can take for ever to hash, and numbers can be chosen to collide
        if not all(type(key) in (str, bytes) for key in keys):
            raise pickle.UnpicklingError("a key that is not text")
        target.update(zip(keys, (value for value, _ in values), strict=True))
        self._push(target, max([depth, *(1 + below for _, below in values)]))

    def _memoise(self, place: int) -> None:
        ((value, depth),) = self._pop(1)
        self._memo[place] = value
        self._push(value, depth)

    def _recall(self, place: int) -> None:
        value = self._memo[place]
        if isinstance(value, list | dict | tuple):
            raise pickle.UnpicklingError("a container in two places")
        self._push(value)

    def _name(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str or (module, name) not in self._admitted:
            asked = f"{str(module)[:60]}.{str(name)[:60]}"
            raise pickle.UnpicklingError(f"it asks for {asked}, which no array needs; nothing was run")
        self._push(self._admitted[module, name])

    def _call(self) -> None:
        (name, _), (arguments, _) = self._pop(2)
        if not isinstance(name, Inert) or name.call is None or type(arguments) is not tuple:
            raise pickle.UnpicklingError("a call that no array needs")
        result = name.call(*arguments)
        self._budget -= len(result) if isinstance(result, bytes) else 0
        if self._budget < 0:
            raise pickle.UnpicklingError("more bytes than the file has")
        self._push(result)

    def _build(self) -> None:
        (target, _), (state, _) = self._pop(2)
        if not isinstance(target, Buildable):
            raise pickle.UnpicklingError("a state for an object without one")
        target.build(state)
        self._push(target)
