"""Tensors and plain values in what `torch.save` wrote, without unpickling.

A pickle is a program, and whoever runs one runs what its author wrote: `torch.load` does, with some
of its names forbidden.  Here the few instructions that numbers, texts, containers and tensors need
are followed, none of which calls, imports or sets anything: a name is compared with those that are
known, and what it would have made is a record of this module.  Every other instruction and name is
refused, and named.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

from aotc.base.errors import AotcError
from aotc.sources.stored_zip import Entry, read_entries, read_entry

MAX_PICKLE_BYTES: Final = 16 << 20
_MAX_VALUES: Final = 100_000
_MAX_DEPTH: Final = 32
_MAX_DIMS: Final = 64
_MAX_REPEATED: Final = 64 << 20

# Storages of `torch.save`, by torch's name of what is in them.
_STORAGES: Final = {
    "torch FloatStorage": "float32",
    "torch DoubleStorage": "float64",
    "torch HalfStorage": "float16",
    "torch BFloat16Storage": "bfloat16",
    "torch LongStorage": "int64",
    "torch IntStorage": "int32",
    "torch ShortStorage": "int16",
    "torch CharStorage": "int8",
    "torch ByteStorage": "uint8",
    "torch BoolStorage": "bool",
    "torch ComplexFloatStorage": "complex64",
    "torch ComplexDoubleStorage": "complex128",
}
_BYTES: Final = {
    **{"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "bool": 1, "uint8": 1, "int8": 1},
    **{"int64": 8, "int32": 4, "int16": 2, "complex64": 8, "complex128": 16},
}
_TENSOR: Final = "torch._utils _rebuild_tensor_v2"
_PARAMETER: Final = "torch._utils _rebuild_parameter"
_FAKE: Final = "torch._export.serde.serialize _reconstruct_fake_tensor"
# A tensor with attributes, such as the marks of dims that torch.export leaves: of what makes it,
# its type, the arguments, and the attributes, which are left out.
_WITH_ATTRIBUTES: Final = "torch._tensor _rebuild_from_type_v2"
_TYPES: Final = ("torch Tensor", "torch.nn.parameter Parameter")
_ORDERED: Final = "collections OrderedDict"
_SETS: Final = ("__builtin__ set", "builtins set")
_NAMES: Final = frozenset(
    (_TENSOR, _PARAMETER, _FAKE, _ORDERED, _WITH_ATTRIBUTES, *_TYPES, *_SETS, *_STORAGES)
)


class _Name(NamedTuple):
    """A name of Python, which is not looked up."""

    text: str


class _Storage(NamedTuple):
    dtype: str
    key: str


class PlainTensor(NamedTuple):
    """A tensor as a pickle describes it: sizes, strides and offset in elements.

    `key` names its storage; an empty one: values were not saved, as of tensors without data.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    key: str


class PlainValues:
    """What one file of `torch.save` holds, read whole; `value` is built of Python's own types.

    Its leaves are None, bool, int, float, str and `PlainTensor`.
    """

    def __init__(self, data: bytes, where: str) -> None:
        """Raises AOTC-I131 if it does more than describe values; I130 as `read_entries` does."""
        self._where = where
        self._file = io.BytesIO(data)
        self._storages: dict[str, Entry] = {}
        program: Entry | None = None
        for entry in read_entries(self._file):
            _, _, inner = entry.name.partition("/")
            if inner == "data.pkl":
                program = entry
            elif inner.startswith("data/"):
                self._storages[inner.removeprefix("data/")] = entry
            elif inner == "byteorder" and read_entry(self._file, entry, 16) != b"little":
                _refuse(where, "values in the order of bytes of another kind of CPU")
            elif inner.endswith((".pkl", ".py", ".debug_pkl")):
                _refuse(where, f"the file {inner}")
        if program is None:
            _refuse(where, "no values, where PyTorch writes some")
        self.value = _followed(read_entry(self._file, program, MAX_PICKLE_BYTES), where)
        for leaf in leaves_of(self.value, where):
            if isinstance(leaf, PlainTensor):
                self._check(leaf)

    def _check(self, tensor: PlainTensor) -> None:
        """Refuse a tensor that reaches beyond its storage."""
        if not tensor.key:
            return
        entry = self._storages.get(tensor.key)
        if entry is None:
            _refuse(self._where, f"a tensor without its bytes ({tensor.key[:40]})")
        size = _BYTES[tensor.dtype]
        if reach(tensor.shape, tensor.strides, tensor.offset) * size > entry.size:
            _refuse(self._where, f"a tensor of {tensor.shape} that is larger than its bytes")
        # One number may stand for many: strides of 0.
        if math.prod(tensor.shape) * size > max(entry.size, _MAX_REPEATED):
            _refuse(self._where, f"a tensor of {tensor.shape} that repeats few bytes")

    def storage(self, tensor: PlainTensor) -> bytes:
        """The bytes of a tensor's storage, in which others may lie too."""
        entry = self._storages[tensor.key]
        return read_entry(self._file, entry, entry.size)


def reach(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> int:
    """How many elements a storage must hold for such a tensor; 0 where it has none."""
    if 0 in shape:
        return 0
    return offset + 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))


def leaves_of(value: Any, where: str) -> Iterator[Any]:
    """The leaves of nested containers in their order; raises AOTC-I131 for endless ones."""
    waiting, count = [(value, 0)], 0
    while waiting:
        item, depth = waiting.pop()
        count += 1
        if count > _MAX_VALUES or depth > _MAX_DEPTH:
            _refuse(where, "containers without an end")
        if isinstance(item, _Name | _Storage):
            _refuse(where, "a name where a value belongs")
        if isinstance(item, dict):
            waiting += [(each, depth + 1) for each in reversed(item.values())]
        elif isinstance(item, list | tuple) and not isinstance(item, PlainTensor):
            waiting += [(each, depth + 1) for each in reversed(item)]
        else:
            yield item


def _refuse(where: str, what: str) -> NoReturn:
    raise AotcError(
        "AOTC-I131",
        "the program holds a pickle that does more than describe tensors",
        where=where,
        expected="tensors, numbers, texts, lists, tuples and dicts",
        found=what,
    )


def _followed(program: bytes, where: str) -> Any:
    """The one value that a pickle describes."""
    machine = _Machine(where)
    try:
        for operation, argument, _ in pickletools.genops(program):
            if operation.name == "STOP":
                return machine.result()
            step = _STEPS.get(operation.name)
            if step is None:
                machine.refuse(f"the instruction {operation.name}")
            step(machine, argument)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, EOFError) as error:
        machine.refuse(f"an invalid pickle ({error})"[:200])
    machine.refuse("a pickle without an end")


class _Machine:
    """The stack and the memory of a pickle, and the few steps that change them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def refuse(self, what: str) -> NoReturn:
        _refuse(self._where, what)

    def result(self) -> Any:
        if len(self.stack) != 1 or self.marks or isinstance(self.stack[0], _Name | _Storage):
            self.refuse("an invalid pickle")
        return self.stack[0]

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _: Any) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def last(self, count: int) -> tuple[Any, ...]:
        items = tuple(self.stack[-count:])
        if len(items) != count:
            raise IndexError("the stack is empty")
        del self.stack[-count:]
        return items

    def keep(self, place: int) -> None:
        if len(self.memo) >= _MAX_VALUES:
            self.refuse("too many values")
        self.memo[place] = self.stack[-1]

    def name(self, text: str) -> None:
        if text not in _NAMES:
            self.refuse(f"the name {text.replace(' ', '.')[:100]}")
        self.push(_Name(text))

    def joined_name(self, _: Any) -> None:
        module, name = self.last(2)
        if not isinstance(module, str) or not isinstance(name, str):
            self.refuse("a name that is no text")
        self.name(f"{module} {name}")

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            self.refuse("an invalid pickle")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int):
                self.refuse("a key that is neither a text nor a number")
            target[key] = value

    def append(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            self.refuse("an invalid pickle")
        self.stack[-1].extend(items)

    def storage(self, _: Any) -> None:
        match self.stack.pop():
            case ("storage", _Name(text), str(key), str(), int()) if text in _STORAGES:
                self.push(_Storage(_STORAGES[text], key))
            case other:
                self.refuse(f"the reference {other!r}"[:200])

    def call(self, _: Any) -> None:
        name, arguments = self.last(2)
        match name, arguments:
            case _Name(text), (_Name(inner), _Name(kind), tuple(given), _) if (
                text == _WITH_ATTRIBUTES and inner in (_TENSOR, _PARAMETER) and kind in _TYPES
            ):
                self.stack += [_Name(inner), given]
                self.call(None)
            case _Name(text), (list(items),) if text in _SETS:
                self.push(items)
            case _Name(text), () if text == _ORDERED:
                self.push({})
            case _Name(text), (
                _Storage() as storage,
                int(offset),
                tuple(size),
                tuple(steps),
                *_,
            ) if text == _TENSOR:
                self.push(self._tensor(storage, offset, size, steps))
            case _Name(text), (PlainTensor() as tensor, bool(), dict()) if text == _PARAMETER:
                self.push(tensor)
            case _Name(text), (bytes() | str(), bool()) if text == _FAKE:
                self.push(PlainTensor("", (), (), 0, ""))
            case _:
                self.refuse(f"a call of {name.text if isinstance(name, _Name) else 'a value'}")

    def _tensor(
        self, storage: _Storage, offset: int, size: tuple[Any, ...], steps: tuple[Any, ...]
    ) -> PlainTensor:
        numbers = (offset, *size, *steps)
        if (
            len(size) != len(steps)
            or len(size) > _MAX_DIMS
            or not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers)
        ):
            self.refuse("a tensor whose sizes are none")
        return PlainTensor(storage.dtype, size, steps, offset, storage.key)


_Step = Callable[[_Machine, Any], None]
_PUSHED: Final = (
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"),
    *("SHORT_BINBYTES", "BINBYTES"),
)
_STEPS: Final[dict[str, _Step]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "MARK": _Machine.mark,
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.push(machine.last(1)),
    "TUPLE2": lambda machine, _: machine.push(machine.last(2)),
    "TUPLE3": lambda machine, _: machine.push(machine.last(3)),
    "APPEND": lambda machine, _: machine.append([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.set_items(list(machine.last(2))),
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    "BINPUT": _Machine.keep,
    "LONG_BINPUT": _Machine.keep,
    "MEMOIZE": lambda machine, _: machine.keep(len(machine.memo)),
    "BINGET": lambda machine, place: machine.push(machine.memo[place]),
    "LONG_BINGET": lambda machine, place: machine.push(machine.memo[place]),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.joined_name,
    "BINPERSID": _Machine.storage,
    "REDUCE": _Machine.call,
    **dict.fromkeys(_PUSHED, _Machine.push),
}
