"""What `import aotc` offers: the same to a program, to a reader of `dir`, and to a type checker."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest
from repository import TOOLCHAIN

import aotc
from aotc.base.records import is_record

DOOR = TOOLCHAIN / "aotc" / "__init__.py"
NAMES = [name for name in aotc.__all__ if name != "__version__"]
FUNCTIONS = [name for name in NAMES if name.islower()]
# In a Python that has nothing but the base install.
WITHOUT_EXTRAS = """
import sys
for name in ("onnx", "onnxruntime", "numpy", "google", "fast_sugiyama"):
    sys.modules[name] = None
import aotc
try:
    aotc.{name}
except aotc.AotcError as error:
    print(error.code, error.what)
    print(error.fix)
"""


def for_type_checkers() -> dict[str, str]:
    """The module of each name that is imported for type checkers alone."""
    (block,) = (
        node
        for node in ast.parse(DOOR.read_text("utf-8")).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    )
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for name in node.names:
            assert name.asname is None
            found[name.name] = node.module or ""
    return found


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_type_checkers_see_what_programs_get() -> None:
    assert for_type_checkers() == aotc._PUBLIC
    assert sorted(aotc.__all__) == sorted(["__version__", *aotc._PUBLIC])


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(aotc, name)
    assert found.__name__ == name
    assert inspect.isclass(found) or inspect.isfunction(found)
    assert (found.__doc__ or "").strip().endswith((".", "`"))


@pytest.mark.parametrize("name", NAMES)
def test_its_docstrings_name_nothing_private(name: str) -> None:
    found = getattr(aotc, name)
    members = vars(found).values() if inspect.isclass(found) else ()
    texts = [each.__doc__ or "" for each in (found, *members) if not isinstance(each, str)]
    rooms = {path.stem for path in DOOR.parent.iterdir()}
    named = {room for text in texts for room in re.findall(r"`(?:aotc\.)?(\w+)\.\w", text)}
    assert named & rooms == set()


def test_dir_shows_the_public_names_alone() -> None:
    """Also after its modules were imported, which Python makes attributes of the package."""
    program = "import aotc; aotc.load; aotc.build; import aotc.base.errors; print(*dir(aotc))"
    shown = run(program).split()
    assert [name for name in shown if not name.startswith("__")] == sorted(NAMES)
    assert "__version__" in shown


def test_no_module_takes_the_place_of_a_public_name() -> None:
    modules = {path.stem for path in DOOR.parent.iterdir()}
    assert modules & set(NAMES) == set()


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'aotc' has no attribute 'nothing'"):
        getattr(aotc, "noth" + "ing")


def classes(kind: Any) -> Iterator[type]:
    """The classes in an annotation."""
    arguments = get_args(kind)
    for each in arguments:
        yield from classes(each)
    if not arguments and isinstance(kind, type) and kind.__module__.startswith("aotc"):
        yield kind


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_function_returns_is_public(name: str) -> None:
    function = getattr(aotc, name)
    module = sys.modules[function.__module__]
    returned = inspect.signature(function).return_annotation
    known = {**vars(module), **{each: getattr(aotc, each) for each in NAMES}}
    kind = eval(returned, known) if isinstance(returned, str) else returned
    assert (
        kind in (None, NoneType, str) or typing.get_origin(kind) is dict or kind.__name__ in NAMES
    )
    assert {each.__name__ for each in classes(kind)} <= set(NAMES)


def test_reports_are_records() -> None:
    reports = [getattr(aotc, name) for name in NAMES if name.endswith("Report")]
    assert len(reports) > 8
    assert all(is_record(each) for each in reports)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("build", "AOTC-I019 aotc.build needs the package "),
        ("profile_learn", "AOTC-I019 aotc.profile_learn needs the package "),
        ("load", "AOTC-I019 aotc.load needs the package "),
        ("bench", "AOTC-I019 aotc.bench needs the package "),
        ("Model", "AOTC-I019 aotc.Model needs the package "),
    ],
)
def test_a_missing_extra_is_told(name: str, told: str) -> None:
    said, fix = run(WITHOUT_EXTRAS.format(name=name)).splitlines()
    assert said.startswith(told)
    loads = name in ("load", "bench", "Model")
    assert fix.startswith("pip install onnxruntime" if loads else "pip install '.[cpu]'")


@pytest.mark.parametrize(
    "name", ["verify", "inspect", "diff", "to_json", "printable", "load_profile", "KeylessSigner"]
)
def test_the_base_install_is_enough(name: str) -> None:
    assert run(WITHOUT_EXTRAS.format(name=name)) == ""


def test_a_report_is_json(tmp_path: Path) -> None:
    profile = aotc.load_profile("edge")
    data = aotc.to_json(profile)
    assert (data["schema"], data["providers"]) == ("aotc.profile/1", ["cpu"])
    for wrong in ("text", aotc.Profile, None):
        with pytest.raises(TypeError, match="this is no report"):
            aotc.to_json(wrong)
