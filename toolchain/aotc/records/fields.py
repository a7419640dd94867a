"""The fields of records: what a class states of them, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")


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
