"""Records: classes of typed fields that are quick to define and quick to make.

A record is what a frozen, slotted, keyword-only dataclass is, and the functions of `dataclasses`,
`copy` and `pickle` take it as one.  But the decorator of `dataclasses` writes and compiles the
methods of each class, which takes a millisecond; here all classes share theirs, and what is known
of a class is worked out when it is first asked for.  A program that prints one line can afford to
define a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from dataclasses import replace


class Missing:
    """What stands for the default of a field that has none: `MISSING` is the only one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


class Field:
    """One field of a class of records.

    `name` and `type` are those of the annotation, which uses names of `module`.  `default` and
    `default_factory` are `MISSING` where the class gives none.  A field of `init=False` is not an
    argument of the class: its `__post_init__` sets it.  One of `repr=False` is left out of the text
    of a record, and one of `compare=False` out of `==` and `hash()`.
    """

    __slots__ = (
        *("name", "type", "module"),
        *("default", "default_factory", "init", "repr", "compare", "kw_only"),
    )

    def __init__(
        self,
        default: Any = MISSING,
        default_factory: Any = MISSING,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        kw_only: bool | None = None,
    ) -> None:
        self.name = ""
        self.type: Any = None
        self.module = ""
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr
        self.compare = compare
        self.kw_only = kw_only
        """None where it is as the class says, until that is known."""

    @property
    def is_optional(self) -> bool:
        """Whether a record can be made without a value for it."""
        return self.default is not MISSING or self.default_factory is not MISSING


@overload
def field(
    *, default: T, repr: bool = True, compare: bool = True, kw_only: bool | None = None
) -> T: ...


@overload
def field(
    *,
    default_factory: Callable[[], T],
    repr: bool = True,
    compare: bool = True,
    kw_only: bool | None = None,
) -> T: ...


@overload
def field(
    *, init: bool = True, repr: bool = True, compare: bool = True, kw_only: bool | None = None
) -> Any: ...


def field(**stated: Any) -> Any:
    """What a class states of a field in place of its default; see `Field`."""
    return Field(**stated)


def fields(record: Any) -> tuple[Field, ...]:
    """The fields of a record, or of a class of records, in the order of their declaration."""
    return record.__record_fields__  # type: ignore[no-any-return]


def values_of(record: Any) -> dict[str, Any]:
    """The values of a record's fields, by name."""
    return {item.name: getattr(record, item.name) for item in fields(record)}


def is_record(value: Any) -> bool:
    """Whether `value` is a record or a class of records."""
    return hasattr(value, "__record_fields__")


__all__ = ["MISSING", "Field", "field", "fields", "is_record", "record", "replace", "values_of"]

T = TypeVar("T")


if not TYPE_CHECKING:

    def replace(record: T, /, **changes: Any) -> T:
        """A copy of `record` with some fields changed; raises `TypeError` for an unknown one."""
        for item in record.__record_fields__:
            if item.init and item.name not in changes:
                changes[item.name] = getattr(record, item.name)
        return record.__class__(**changes)


@overload
def record(cls: type[T], /) -> type[T]: ...


@overload
def record(
    *, frozen: bool = True, kw_only: bool = True, slots: bool = True
) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(
    cls: type[Any] | None = None,
    /,
    *,
    frozen: bool = True,
    kw_only: bool = True,
    slots: bool = True,
) -> Any:
    """Make a class with annotated fields a class of records: a decorator.

    Records of one class are equal where their fields are.  With `frozen=False`, fields can be
    assigned to, and records have no hash; with `kw_only=False`, fields can be given by position;
    with `slots=False`, records have a `__dict__`, as `functools.cached_property` needs.  Methods
    that the class defines stay, and its `__post_init__` is called when the fields are set.
    Raises `ValueError` for a default that can change, such as a list.

    A method that calls `super()` without arguments fails, as in dataclasses: slots take a new
    class.
    """
    if cls is None:
        return lambda decorated: _as_records(decorated, frozen, kw_only, slots)
    return _as_records(cls, frozen, kw_only, slots)


def _as_records(cls: type[Any], frozen: bool, kw_only: bool, slots: bool) -> type[Any]:
    namespace = dict(cls.__dict__)
    stated = {
        name: (kind, namespace.pop(name, MISSING))
        for name, kind in cls.__annotations__.items()
        if not str(kind).startswith(("ClassVar", "typing.ClassVar"))
    }
    for name, (_, value) in stated.items():
        if value.__class__.__hash__ is None:
            raise ValueError(f"the default of {cls.__qualname__}.{name} can change: use a factory")
    added = {**_SHARED, **(_FROZEN if frozen else _MUTABLE), **(_SLOTTED if slots else {})}
    added["__record_stated__"] = stated, kw_only
    if not slots:
        for name in stated:
            if name in cls.__dict__:
                delattr(cls, name)
        for name, value in added.items():
            if name not in namespace:
                setattr(cls, name, value)
    else:
        cls = _slotted(cls, {**added, **namespace}, list(stated))
    if "__init__" not in namespace:
        cls.__init__ = _first_init(cls)
    return cls


def _slotted(cls: type[Any], namespace: dict[str, Any], names: list[str]) -> Any:
    """The class once more, with slots for fields."""
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    namespace["__slots__"] = tuple(name for name in names if name not in inherited)
    metaclass: Any = type(cls)
    made = metaclass(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


def _fields_of(cls: type[Any]) -> tuple[Field, ...]:
    """Those of base classes first; one that is stated again stays in its place."""
    bases = (base for base in cls.__mro__[:0:-1] if "__record_stated__" in base.__dict__)
    found = {item.name: item for base in bases for item in fields(base)}
    stated, kw_only = cls.__dict__["__record_stated__"]
    for name, (kind, value) in stated.items():
        item = value if isinstance(value, Field) else Field(value)
        item.name = name
        item.type = kind
        item.module = cls.__module__
        if item.kw_only is None:
            item.kw_only = kw_only
        found[name] = item
    return tuple(found.values())


def _values_of(cls: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads the values that are compared from a record."""
    names = [item.name for item in fields(cls) if item.compare]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _first_init(cls: Any) -> Callable[..., None]:
    """The `__init__` of a class until its first record is made."""

    def __init__(self: Any, /, *args: Any, **values: Any) -> None:
        cls.__init__ = _initializer(cls)
        cls.__init__(self, *args, **values)

    return __init__


def _initializer(cls: type[Any]) -> Callable[..., None]:
    arguments = [item for item in fields(cls) if item.init]
    count = len(arguments)
    setters = [(item.name, _setter(cls, item.name)) for item in arguments]
    positional = [item.name for item in arguments if not item.kw_only]
    assigners = [assign for _, assign in setters]
    rests = _rests(arguments) if len(positional) == count else {}
    defaults = {item.name: item.default for item in arguments if item.default is not MISSING}
    factories = {
        item.name: item.default_factory for item in arguments if item.default_factory is not MISSING
    }
    finish = getattr(cls, "__post_init__", None)

    def __init__(self: Any, /, *args: Any, **values: Any) -> None:
        if args:
            if not values and (rest := rests.get(len(args))) is not None:
                for assign, value in zip(assigners, args + rest, strict=True):
                    assign(self, value)
                if finish is not None:
                    finish(self)
                return
            given = positional[: len(args)]
            if len(given) < len(args) or not values.keys().isdisjoint(given):
                raise _wrong_arguments(cls, args, values)
            values.update(zip(given, args, strict=True))
        if len(values) < count:
            values = defaults | values
            for name, factory in factories.items():
                if name not in values:
                    values[name] = factory()
        if len(values) != count:
            raise _wrong_arguments(cls, (), values)
        try:
            for name, assign in setters:
                assign(self, values[name])
        except KeyError:
            raise _wrong_arguments(cls, (), values) from None
        if finish is not None:
            finish(self)

    return __init__


def _rests(arguments: list[Field]) -> dict[int, tuple[Any, ...]]:
    """The defaults of those arguments that are left when so many are given by position."""
    found: dict[int, tuple[Any, ...]] = {len(arguments): ()}
    for number, item in reversed(list(enumerate(arguments))):
        if item.default is MISSING:
            break
        found[number] = (item.default, *found[number + 1])
    return found


def _setter(cls: type[Any], name: str) -> Callable[[Any, Any], None]:
    """Sets one field of a record, be it frozen or not."""
    slot = getattr(cls, name, None)
    if isinstance(slot, MemberDescriptorType):
        return slot.__set__
    return lambda record, value: object.__setattr__(record, name, value)


def _equal(self: Any, other: Any) -> Any:
    cls = self.__class__
    if other.__class__ is not cls:
        return NotImplemented
    values = cls.__record_values__
    return values(self) == values(other)


def _hash(self: Any) -> int:
    cls = self.__class__
    return hash(cls.__record_values__(self))


def _text(self: Any) -> str:
    shown = (f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: Any) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in fields(self)]


def _restore(self: Any, state: Iterable[Any]) -> None:
    for item, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)


class _OnDemand:
    """An attribute of classes of records that is worked out when it is first asked for."""

    def __init__(self, name: str, compute: Callable[[type[Any]], Any]) -> None:
        self._name = name
        self._compute = compute

    def __get__(self, record: Any, cls: type[Any]) -> Any:
        owner = next(base for base in cls.__mro__ if "__record_stated__" in base.__dict__)
        found = self._compute(owner)
        type.__setattr__(owner, self._name, found)
        return found


class _Signature:
    """What `inspect.signature` asks of a class of records, not of classes that inherit from it."""

    def __get__(self, record: Any, cls: type[Any]) -> Any:
        if "__record_stated__" not in cls.__dict__:
            raise AttributeError("__signature__")
        from inspect import signature

        return signature(_dataclass(cls))


_SHARED: Final[Mapping[str, Any]] = {
    "__repr__": _text,
    "__eq__": _equal,
    "__replace__": lambda self, /, **changes: replace(self, **changes),
    "__signature__": _Signature(),
    "__record_fields__": _OnDemand("__record_fields__", _fields_of),
    "__record_values__": _OnDemand("__record_values__", _values_of),
    "__match_args__": _OnDemand(
        "__match_args__",
        lambda cls: tuple(item.name for item in fields(cls) if item.init and not item.kw_only),
    ),
    # What the functions of `dataclasses` look for.
    "__dataclass_fields__": _OnDemand(
        "__dataclass_fields__", lambda cls: _dataclass(cls).__dataclass_fields__
    ),
    "__dataclass_params__": _OnDemand(
        "__dataclass_params__", lambda cls: _dataclass(cls).__dataclass_params__
    ),
}
_FROZEN: Final[Mapping[str, Any]] = {
    "__hash__": _hash,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
}
_MUTABLE: Final[Mapping[str, Any]] = {"__hash__": None}
_SLOTTED: Final[Mapping[str, Any]] = {"__getstate__": _state, "__setstate__": _restore}


def _dataclass(cls: Any) -> Any:
    """A dataclass of the standard library with the fields of `cls`, and nothing else of it.

    It is made where Python's functions ask for it.
    """
    import dataclasses

    rows = []
    for item in fields(cls):
        stated: dict[str, Any] = {
            "init": item.init,
            "repr": item.repr,
            "compare": item.compare,
            "kw_only": item.kw_only,
        }
        if item.default is not MISSING:
            stated["default"] = item.default
        if item.default_factory is not MISSING:
            stated["default_factory"] = item.default_factory
        rows.append((item.name, item.type, dataclasses.field(**stated)))
    frozen = cls.__setattr__ is _refuse_to_set
    return dataclasses.make_dataclass(cls.__name__, rows, frozen=frozen)


def _wrong_arguments(cls: type[Any], args: tuple[Any, ...], values: Mapping[str, Any]) -> TypeError:
    """What Python says of arguments of which one is unknown, given twice, missing or too many."""
    arguments = [item for item in fields(cls) if item.init]
    positional = [item.name for item in arguments if not item.kw_only]
    known = {item.name for item in arguments}
    unknown = [name for name in values if name not in known]
    twice = [name for name in positional[: len(args)] if name in values]
    if unknown:
        what = f"got an unexpected keyword argument {unknown[0]!r}"
    elif twice:
        what = f"got multiple values for argument {twice[0]!r}"
    elif len(args) > len(positional):
        # Python counts `self` as well.
        taken = f"{len(positional) + 1} positional argument{'s'[: len(positional)]}"
        what = f"takes {taken} but {len(args) + 1} were given"
    else:
        missing = [
            item.name for item in arguments if item.name not in values and not item.is_optional
        ]
        kind = "positional" if missing[0] in positional else "keyword-only"
        names = [name for name in missing if (name in positional) == (kind == "positional")]
        what = f"missing {len(names)} required {kind} argument{'s'[: len(names) - 1]}: "
        what += _listed(names)
    return TypeError(f"{cls.__qualname__}.__init__() {what}")


def _listed(names: list[str]) -> str:
    """Names as Python lists them: 'a', 'b', and 'c'."""
    quoted = [repr(name) for name in names]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
