"""Records are what dataclasses are, to Python's own functions and to those who use them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pprint
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotc.base.records import MISSING, field, fields, is_record, record, replace, values_of


@record
class Named:
    """By keyword alone."""

    KIND: ClassVar = "named"

    size: int
    name: str = "x"
    options: Mapping[str, int] = field(default_factory=dict)
    note: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return self.name


@record(kw_only=False)
class Placed:
    first: int
    second: int
    third: int = 3


@record
class Mixed:
    model: str = field(kw_only=False)
    force: bool = False


@record(frozen=False, kw_only=False)
class Changing:
    size: int
    seen: list[int] = field(default_factory=list)
    twice: int = field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.size


@record(kw_only=False, slots=False)
class Open:
    sizes: tuple[int, ...]
    scale: int = 1

    @cached_property
    def total(self) -> int:
        return self.scale * sum(self.sizes)


@record
class Inheriting(Named):
    more: tuple[int, ...] = ()
    name: str = "y"


@record
class Empty:
    pass


@record
class Single:
    value: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamedDataclass:
    """By keyword alone."""

    size: int
    name: str = "x"
    options: Mapping[str, int] = dataclasses.field(default_factory=dict)
    note: str = dataclasses.field(default="", repr=False, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedDataclass:
    first: int
    second: int
    third: int = 3


@dataclasses.dataclass(frozen=True, slots=True)
class MixedDataclass:
    model: str
    _: dataclasses.KW_ONLY
    force: bool = False


RECORDS = [
    Named(size=1, options={"a": 2}, note="n"),
    Placed(1, second=2),
    Mixed("m"),
    Changing(4, [1]),
    Open((1, 2)),
    Inheriting(size=1, more=(2,)),
    Empty(),
    Single(value=1.5),
]


def test_fields_hold_what_is_given_or_their_default() -> None:
    made = Named(size=1)
    assert values_of(made) == {"size": 1, "name": "x", "options": {}, "note": ""}
    assert values_of(Placed(1, 2)) == {"first": 1, "second": 2, "third": 3}
    assert values_of(Placed(1, second=2, third=4)) == {"first": 1, "second": 2, "third": 4}
    assert values_of(Placed(5, 6, 7)) == {"first": 5, "second": 6, "third": 7}
    assert values_of(Changing(4)) == {"size": 4, "seen": [], "twice": 8}
    assert Named(size=1).options is not Named(size=1).options
    assert Named.KIND == "named" and str(made) == "x"


def test_fields_are_told_in_order_those_of_base_classes_first() -> None:
    found = {each.name: each for each in fields(Inheriting)}
    assert list(found) == ["size", "name", "options", "note", "more"]
    assert found["name"].default == "y" and found["more"].type == "tuple[int, ...]"
    assert found["size"].default is MISSING and not found["size"].is_optional
    assert found["options"].default_factory is dict and found["options"].is_optional
    assert fields(Inheriting(size=1)) == fields(Inheriting) and fields(Empty) == ()


def test_equal_where_the_class_and_all_compared_fields_are() -> None:
    assert Named(size=1, note="a") == Named(size=1, note="b")
    assert hash(Named(size=1, options=())) == hash(Named(size=1, options=(), note="b"))
    assert Placed(1, 2) != Placed(1, 3) and Placed(1, 2) != (1, 2, 3)
    assert Inheriting(size=1, name="x") != Named(size=1, name="x")
    assert Empty() == Empty() and hash(Empty()) == hash(Empty())
    nan = float("nan")
    assert Single(value=nan) == Single(value=nan) and Single(value=1) != Single(value=2)
    assert len({Placed(1, 2), Placed(1, 2), Placed(2, 1)}) == 2
    with pytest.raises(TypeError, match="unhashable type: 'Changing'"):
        hash(Changing(1))


def test_text_is_what_makes_it() -> None:
    assert repr(Named(size=1, note="n")) == "Named(size=1, name='x', options={})"
    assert repr(Empty()) == "Empty()" and repr(Single(value=1.5)) == "Single(value=1.5)"


@pytest.mark.parametrize("made", [Named(size=1), Placed(1, 2), Open((1,))])
def test_frozen_ones_do_not_change(made: Any) -> None:
    name = fields(made)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(made, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
        delattr(made, name)
    with pytest.raises(AttributeError):
        made.other = 2


def test_mutable_ones_take_values_for_their_fields_alone() -> None:
    made = Changing(1)
    made.size = 5
    assert (made.size, made.twice) == (5, 2)
    with pytest.raises(AttributeError):
        made.other = 2


def test_without_slots_a_property_can_be_kept() -> None:
    made = Open((1, 2), scale=3)
    assert made.total == 9 and made.__dict__ == {"sizes": (1, 2), "scale": 3, "total": 9}
    assert not hasattr(Named(size=1), "__dict__")


CALLS: list[tuple[type, type, tuple[Any, ...], dict[str, Any]]] = [
    (Named, NamedDataclass, (), {}),
    (Named, NamedDataclass, (), {"name": "a"}),
    (Named, NamedDataclass, (1,), {}),
    (Named, NamedDataclass, (), {"size": 1, "nmae": "a"}),
    (Named, NamedDataclass, (), {"size": 1, "name": "a", "options": {}, "nmae": "a"}),
    (Named, NamedDataclass, (), {"name": "a", "options": {}, "note": "", "nmae": "a"}),
    (Placed, PlacedDataclass, (), {}),
    (Placed, PlacedDataclass, (1,), {}),
    (Placed, PlacedDataclass, (), {"second": 1}),
    (Placed, PlacedDataclass, (1, 2), {"first": 1}),
    (Placed, PlacedDataclass, (1, 2, 3), {"third": 3}),
    (Placed, PlacedDataclass, (1, 2), {"fourth": 1}),
    (Mixed, MixedDataclass, (), {}),
    (Mixed, MixedDataclass, (), {"force": True}),
    (Mixed, MixedDataclass, ("m", True), {}),
]


@pytest.mark.parametrize(("cls", "like", "args", "values"), CALLS)
def test_wrong_arguments_are_told_as_python_tells_them(
    cls: type, like: type, args: tuple[Any, ...], values: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as expected:
        like(*args, **values)
    with pytest.raises(TypeError) as found:
        cls(*args, **values)
    assert str(found.value) == str(expected.value).replace(like.__qualname__, cls.__qualname__)


def test_more_values_than_places_are_refused() -> None:
    text = r"Placed.__init__\(\) takes 4 positional arguments but 5 were given"
    with pytest.raises(TypeError, match=text):
        Placed(1, 2, 3, 4)


def test_a_default_that_could_change_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the default of .*Wrong\.sizes can change"):

        @record
        class Wrong:
            sizes: list[int] = []  # noqa: RUF012 - that is the point


@pytest.mark.parametrize("made", RECORDS, ids=lambda made: type(made).__name__)
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made)), replace]
)
def test_copies_are_equal(made: Any, copied: Callable[[Any], Any]) -> None:
    other = copied(made)
    assert other is not made and other == made and values_of(other) == values_of(made)


@pytest.mark.parametrize("replaced", [replace, dataclasses.replace])
def test_replace_makes_another_and_checks_names(replaced: Callable[..., Any]) -> None:
    made = Named(size=1, options={"a": 2}, note="n")
    assert replaced(made, name="z") == Named(size=1, name="z", options={"a": 2})
    assert replaced(made, name="z").note == "n"
    assert replaced(Placed(1, 2), second=5) == Placed(1, 5)
    assert replaced(Changing(4), size=5).twice == 10
    with pytest.raises(TypeError, match=r"Named\.__init__\(\) got an unexpected .* 'nmae'"):
        replaced(made, nmae="z")


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace is of Python 3.13")
def test_copy_replace_works() -> None:
    assert copy.replace(Placed(1, 2), second=5) == Placed(1, 5)


@pytest.mark.parametrize("made", RECORDS, ids=lambda made: type(made).__name__)
def test_the_functions_of_dataclasses_take_them(made: Any) -> None:
    assert dataclasses.is_dataclass(made) and dataclasses.is_dataclass(type(made))
    assert is_record(made) and is_record(type(made)) and not is_record(1)
    assert dataclasses.asdict(made) == values_of(made)
    assert [each.name for each in dataclasses.fields(made)] == [each.name for each in fields(made)]
    assert pprint.pformat(made) == repr(made)


def test_fields_of_dataclasses_say_the_same() -> None:
    for cls, like in ((Named, NamedDataclass), (Placed, PlacedDataclass)):
        for found, expected in zip(dataclasses.fields(cls), dataclasses.fields(like), strict=True):
            assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("cls", "like"),
    [(Named, NamedDataclass), (Placed, PlacedDataclass), (Mixed, MixedDataclass)],
)
def test_signature_is_that_of_a_dataclass(cls: type, like: type) -> None:
    assert str(inspect.signature(cls)) == str(inspect.signature(like))


def test_a_dataclass_can_inherit_from_a_record() -> None:
    @dataclasses.dataclass(frozen=True)
    class More(Placed):
        fourth: int = 4

    assert More(1, 2).fourth == 4
    assert list(inspect.signature(More).parameters) == ["first", "second", "third", "fourth"]
    assert list(inspect.signature(Placed).parameters) == ["first", "second", "third"]


def test_patterns_match_by_position_what_is_given_so() -> None:
    assert Named.__match_args__ == () and Mixed.__match_args__ == ("model",)
    match Placed(1, 2):
        case Placed(first, second, third=3):
            assert (first, second) == (1, 2)
        case _:
            raise AssertionError("no match")


@given(made=st.builds(Named, note=st.just("")), placed=st.builds(Placed))
def test_hypothesis_builds_them(made: Named, placed: Placed) -> None:
    assert isinstance(made.size, int) and made.name == "x" and isinstance(placed.second, int)
    assert get_type_hints(Named)["size"] is int
