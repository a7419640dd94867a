"""Variants that cannot be divided or compiled: reported in the order of the variants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import onnx
import pytest

from aotc.base.errors import AotcError
from aotc.graph.partition.assignment import Assignment
from aotc.graph.view import GraphView
from aotc.pipeline import lower
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.types import (
    ClaimedModel,
    Division,
    PartitionedModel,
    UndividedModel,
    VariantPlan,
)
from aotc.spec.profile import Fallback, VariantSpec
from aotc.spec.profile_files import load_profile


def state(fallback: Fallback) -> BuildState:
    """The state of the build of a profile that would rather leave a variant out."""
    variants = tuple(VariantSpec(name=name) for name in "abc")
    profile = replace(load_profile("edge"), variants=variants, fallback=fallback)
    here: Any = Mock()
    context = BuildContext(profile=profile, target=here, host=here)
    return BuildState(context=context, work=Path(), workers=here)


def claimed(name: str) -> ClaimedModel:
    optimized: Any = Mock(plan=VariantPlan(name=name, spec=name, isa="baseline"))
    return ClaimedModel(optimized=optimized, graph=Path(), weights=Path(), providers=())


def undivided(name: str) -> UndividedModel:
    return UndividedModel(
        claimed=claimed(name), refusal=AotcError("AOTC-P001", f"{name} runs nowhere")
    )


def divided(name: str) -> PartitionedModel:
    division = Division(
        graph=GraphView(onnx.GraphProto()), assignment=Assignment((), {}, {}), refusals=()
    )
    return PartitionedModel(claimed=claimed(name), division=division)


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A compiler that fails for every variant; the list of variants that it was asked for."""
    asked: list[str] = []

    def fail(claimed: ClaimedModel, *_: object) -> None:
        asked.append(claimed.plan.name)
        raise AotcError("AOTC-P005", f"{claimed.plan.name} is not compiled")

    monkeypatch.setattr(lower, "compile_parts", fail)
    return asked


def test_what_is_left_out_is_in_the_order_of_the_variants() -> None:
    alternate = state(Fallback(policy="alternate-variant"))
    found = lower.lower([divided("a"), undivided("b"), divided("c")], alternate)
    assert not found.lowered
    assert not found.refused
    dropped = found.left_out
    assert [variant.name for variant in dropped] == ["a", "b", "c"]
    assert [variant.reason[:9] for variant in dropped] == ["AOTC-P005", "AOTC-P001", "AOTC-P005"]


def test_every_variants_refusal_is_reported(compiler: list[str]) -> None:
    strict = state(Fallback())
    found = lower.lower([undivided("b"), divided("a"), divided("c")], strict)
    assert not found.lowered
    assert not found.left_out
    assert compiler == ["a", "c"]
    assert [(plan.name, error.what) for plan, error in found.refused] == [
        ("b", "b runs nowhere"),
        ("a", "a is not compiled"),
        ("c", "c is not compiled"),
    ]


def test_what_is_no_gate_ends_the_build_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AotcError("AOTC-I018", "the disk is full")

    monkeypatch.setattr(lower, "compile_parts", fail)
    with pytest.raises(AotcError, match="the disk is full"):
        lower.lower([divided("a"), undivided("b")], state(Fallback()))
