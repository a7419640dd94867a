"""What a variant requires of a host, as it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from aotc.base.records import record
from aotc.report.sheets.variants import requirements_in_words
from aotc.spec.variant import Requirements


@record
class _More(Requirements):
    kernel_min: str | None = None
    modules: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({}, ""),
        ({"kernel_min": "5.10"}, ", kernel min 5.10"),
        ({"kernel_min": "5.10", "modules": ("a", "b")}, ", kernel min 5.10, modules a, b"),
    ],
)
def test_a_requirement_with_no_words_of_its_own_is_shown(stated: dict[str, Any], told: str) -> None:
    needs = _More(
        os="linux",
        architecture="x86_64",
        onnxruntime_min="1.31.0",
        onnxruntime_below="1.32",
        providers=("CPUExecutionProvider",),
        **stated,
    )
    text = "linux x86_64, ONNX Runtime >= 1.31.0, < 1.32"
    assert requirements_in_words(needs) == text + told
