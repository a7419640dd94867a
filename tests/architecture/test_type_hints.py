"""What is public gives its type hints at run time: frameworks that read them find every name."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest

import aotc


def hinted() -> Iterator[tuple[str, Any]]:
    for name in aotc.__all__:
        found = getattr(aotc, name)
        if inspect.isclass(found):
            yield name, found
            for part in dir(found):
                member = inspect.getattr_static(found, part)
                for function in (
                    (member.fget, member.fset)
                    if isinstance(member, property)
                    else (getattr(member, "__func__", member),)
                ):
                    if inspect.isfunction(function) and function.__module__.startswith("aotc."):
                        yield f"{name}.{part}", function
        elif callable(found):
            yield name, found


@pytest.mark.parametrize("found", [pytest.param(found, id=name) for name, found in hinted()])
def test_hints_can_be_read(found: Any) -> None:
    for hint in typing.get_type_hints(found, include_extras=True).values():
        assert not isinstance(hint, str | typing.ForwardRef)


def test_what_load_returns_is_the_model() -> None:
    assert typing.get_type_hints(aotc.load)["return"] is aotc.Model
    assert typing.get_type_hints(aotc.Model.bind)["return"] is aotc.BoundCall


def test_hints_of_what_verifies_need_no_package_of_another_extra() -> None:
    program = (
        "import sys, typing, aotc; typing.get_type_hints(aotc.verify);"
        "assert not {'onnx', 'onnxruntime', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
