"""Records: classes of typed fields that are quick to define and quick to make.

A record is what a frozen, slotted, keyword-only dataclass is, and the functions of `dataclasses`,
`copy` and `pickle` take it as one.  But the decorator of `dataclasses` writes and compiles the
methods of each class, which takes a millisecond; here all classes share theirs, and a program that
prints one line can afford to define a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    # Type checkers know what it takes: the fields of the record that it is given.
    from dataclasses import replace

__all__ = ["MISSING", "Field", "field", "fields", "is_record", "record", "replace", "values_of"]

T = TypeVar("T")


class Missing:
    """What stands for the default of a field that has none: `MISSING` is the only one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


class Field:
    """One field of a class of records.

    `name` and `type` are those of the annotation, and `default` and `default_factory` are `MISSING`
    where the class says none.  A field of `init=False` is no argument of the class and is set by
    its `__post_init__`; one of `repr=False` is left out of the text of a record, and one of
    `compare=False` out of `==` and `hash()`.
    """

    __slots__ = ("compare", "default", "default_factory", "init", "kw_only", "name", "repr", "type")

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
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr
        self.compare = compare
        self.kw_only = kw_only
        """None, until the class is known: as that says."""

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


def field(**said: Any) -> Any:
    """What a class says of a field in place of its default; see `Field`."""
    return Field(**said)


def fields(record: Any) -> tuple[Field, ...]:
    """The fields of a record, or of a class of records, in the order of their declaration."""
    return record.__record_fields__  # type: ignore[no-any-return]


def values_of(record: Any) -> dict[str, Any]:
    """The values of a record's fields, by name."""
    return {each.name: getattr(record, each.name) for each in fields(record)}


def is_record(value: Any) -> bool:
    """Whether `value` is a record or a class of records."""
    return hasattr(value, "__record_fields__")


if not TYPE_CHECKING:

    def replace(record: T, /, **changes: Any) -> T:
        """A copy of `record` with some fields changed; raises `TypeError` where it has no such."""
        for each in record.__record_fields__:
            if each.init and each.name not in changes:
                changes[each.name] = getattr(record, each.name)
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
    that the class has of its own stay, and a `__post_init__` is called when the fields are set.
    Methods of the class must not call `super()` without arguments: slots need a new class.
    """
    if cls is None:
        return lambda decorated: _as_records(decorated, frozen, kw_only, slots)
    return _as_records(cls, frozen, kw_only, slots)


def _as_records(cls: type[Any], frozen: bool, kw_only: bool, slots: bool) -> type[Any]:
    own = _own_fields(cls, kw_only)
    declared = {
        each.name: each
        for base in reversed(cls.__mro__[1:])
        for each in base.__dict__.get("__record_fields__", ())
    }
    declared.update(own)
    found = tuple(declared.values())
    added = {
        **_SHARED,
        **(_FROZEN if frozen else _MUTABLE),
        **(_STATE if slots else {}),
        "__record_fields__": found,
        "__record_values__": _getter([each.name for each in found if each.compare]),
        "__match_args__": tuple(each.name for each in found if each.init and not each.kw_only),
    }
    namespace = dict(cls.__dict__)
    added = {name: value for name, value in added.items() if namespace.get(name) is None}
    if slots:
        namespace.update(added)
        for name in (*own, "__dict__", "__weakref__"):
            namespace.pop(name, None)
        taken = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
        namespace["__slots__"] = tuple(name for name in own if name not in taken)
        qualified = cls.__qualname__
        metaclass: Any = type(cls)
        cls = metaclass(cls.__name__, cls.__bases__, namespace)
        cls.__qualname__ = qualified
    else:
        for name, value in added.items():
            setattr(cls, name, value)
        for name, each in own.items():
            if each.default is not MISSING:
                setattr(cls, name, each.default)
            elif name in namespace:
                delattr(cls, name)
    if "__init__" not in namespace:
        cls.__init__ = _initializer(cls, found)
    return cls


def _own_fields(cls: type[Any], kw_only: bool) -> dict[str, Field]:
    found = {}
    for name, kind in cls.__annotations__.items():
        if str(kind).startswith(("ClassVar", "typing.ClassVar")):
            continue
        said = cls.__dict__.get(name, MISSING)
        each = said if isinstance(said, Field) else Field(said)
        if each.default.__class__.__hash__ is None:
            raise ValueError(f"the default of {cls.__qualname__}.{name} can change: use a factory")
        each.name = name
        each.type = kind
        if each.kw_only is None:
            each.kw_only = kw_only
        found[name] = each
    return found


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads the values of fields from a record."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _initializer(cls: type[Any], found: tuple[Field, ...]) -> Callable[..., None]:
    """The `__init__` of a class of records."""
    arguments = [each for each in found if each.init]
    count = len(arguments)
    setters = [(each.name, _setter(cls, each.name)) for each in arguments]
    positional = [each.name for each in arguments if not each.kw_only]
    defaults = {each.name: each.default for each in arguments if each.default is not MISSING}
    factories = [
        (each.name, each.default_factory)
        for each in arguments
        if each.default_factory is not MISSING
    ]
    finish = getattr(cls, "__post_init__", None)

    # As many values by position stand for all fields.
    every = count if len(positional) == count else -1
    assigners = [assign for _, assign in setters]

    def __init__(self: Any, /, *args: Any, **values: Any) -> None:
        if len(args) == every and not values:
            for assign, value in zip(assigners, args, strict=True):
                assign(self, value)
            if finish is not None:
                finish(self)
            return
        if args:
            given = positional[: len(args)]
            if len(given) < len(args) or not values.keys().isdisjoint(given):
                raise _wrong_arguments(cls, args, values)
            values.update(zip(given, args, strict=True))
        if len(values) < count:
            values = defaults | values
            for name, factory in factories:
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


def _setter(cls: type[Any], name: str) -> Callable[[Any, Any], None]:
    """Sets one field of a record, be it frozen or not."""
    slot = getattr(cls, name, None)
    if isinstance(slot, MemberDescriptorType):
        return slot.__set__
    return lambda record, value: object.__setattr__(record, name, value)


def _wrong_arguments(cls: type[Any], args: tuple[Any, ...], values: Mapping[str, Any]) -> TypeError:
    """What Python says of arguments that a function does not take."""
    arguments = [each for each in fields(cls) if each.init]
    positional = [each.name for each in arguments if not each.kw_only]
    known = {each.name for each in arguments}
    unknown = [name for name in values if name not in known]
    twice = [name for name in positional[: len(args)] if name in values]
    missing = [each.name for each in arguments if each.name not in values and not each.is_optional]
    if unknown:
        what = f"got an unexpected keyword argument {unknown[0]!r}"
    elif twice:
        what = f"got multiple values for argument {twice[0]!r}"
    elif len(args) > len(positional):
        # Python counts `self` as well.
        taken = f"{len(positional) + 1} positional argument{'s'[: len(positional)]}"
        what = f"takes {taken} but {len(args) + 1} were given"
    else:
        kind = "keyword-only" if missing[0] not in positional else "positional"
        missing = [name for name in missing if (name in positional) == (kind == "positional")]
        listed = [repr(name) for name in missing]
        told = ", ".join([*listed[:-2], " and ".join(listed[-2:])])
        what = f"missing {len(missing)} required {kind} argument{'s'[: len(missing) - 1]}: {told}"
    return TypeError(f"{cls.__qualname__}.__init__() {what}")


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
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: Any) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _restore(self: Any, state: Iterable[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _replaced(self: Any, /, **changes: Any) -> Any:
    return replace(self, **changes)


class _Twin:
    """An attribute of a class of records, found on a dataclass with the same fields when needed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, record: Any, cls: type[Any]) -> Any:
        owner = next(base for base in cls.__mro__ if "__record_fields__" in base.__dict__)
        if self._name == "__signature__":
            if "__init__" in cls.__dict__ and cls is not owner:
                raise AttributeError(self._name)
            from inspect import signature

            return signature(_dataclass(owner))
        found = getattr(_dataclass(owner), self._name)
        setattr(owner, self._name, found)
        return found


def _dataclass(cls: Any) -> Any:
    import dataclasses

    frozen = cls.__setattr__ is _refuse_to_set
    rows = []
    for each in fields(cls):
        said: dict[str, Any] = {"init": each.init, "repr": each.repr, "compare": each.compare}
        said["kw_only"] = each.kw_only
        if each.default is not MISSING:
            said["default"] = each.default
        if each.default_factory is not MISSING:
            said["default_factory"] = each.default_factory
        rows.append((each.name, each.type, dataclasses.field(**said)))
    return dataclasses.make_dataclass(cls.__name__, rows, frozen=frozen)


_SHARED: Final[Mapping[str, Any]] = {
    "__repr__": _text,
    "__eq__": _equal,
    "__replace__": _replaced,
    # What the functions of `dataclasses` and `inspect` look for.
    **{
        name: _Twin(name)
        for name in ("__dataclass_fields__", "__dataclass_params__", "__signature__")
    },
}
_FROZEN: Final[Mapping[str, Any]] = {
    "__hash__": _hash,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
}
_MUTABLE: Final[Mapping[str, Any]] = {"__hash__": None}
_STATE: Final[Mapping[str, Any]] = {"__getstate__": _state, "__setstate__": _restore}
