"""What is said of a part that could not be compiled: in the graph's order, and nothing of here."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.contract.finding import Finding
from aotc.contract.manifest.partitions import RefusedNode
from aotc.contract.manifest.source import Capture
from aotc.contract.shapes.domain import Domain
from aotc.engine import kept_logs
from aotc.errors import AotcError
from aotc.graphs.symbols import Symbols
from aotc.partitioning.assignment import Part
from aotc.partitioning.graph import GraphNode, PartitionGraph
from aotc.stages.lowering import compiling
from aotc.stages.types import (
    AnalyzedModel,
    OptimizedModel,
    PartitionedModel,
    SourceModel,
    SpecializedModel,
    VariantPlan,
)

OPENVINO = "OpenVINOExecutionProvider"
# Enough that no order but the graph's is found by chance.
NAMES = [f"layer{index}/{word}" for index in range(8) for word in ("MatMul", "Add", "Tanh")]


def graph(op: str = "Add") -> PartitionGraph:
    nodes = tuple(GraphNode(name, op, (), (f"{name}_out",)) for name in NAMES)
    return PartitionGraph(nodes, (), (), ())


def partitioned(folder: Path) -> PartitionedModel:
    """A variant `portable` of a model without anything."""
    capture = Capture(
        sha256="0" * 64, size=0, ir_version=9, opsets={"": 18}, nodes=0, nodes_total=0,
        op_types={}, initializers=0, initializer_bytes=0,
    )  # fmt: skip
    source = SourceModel(
        path=folder, name="m", graph=folder, weights=folder, capture=capture, inputs=(),
        outputs=(), symbols=Symbols(), hints={}, passes=(),
    )  # fmt: skip
    analyzed = AnalyzedModel(
        source=source, domain=Domain(), references=(), activation_bytes=None, shapes=(),
        padding=None, findings=(),
    )  # fmt: skip
    plan = VariantPlan(name="portable", spec="portable", isa="baseline")
    specialized = SpecializedModel(
        analyzed=analyzed, plan=plan, domain=None, component="model", graph=folder, passes=()
    )
    optimized = OptimizedModel(
        specialized=specialized, graph=folder, data=folder, tensors=(), nodes=(),
        shape_nodes=(0, 0), findings=(), passes=(),
    )  # fmt: skip
    return PartitionedModel(
        optimized=optimized, graph=folder, weights=folder, providers=(OPENVINO,)
    )


def left(
    error: AotcError, folder: Path, round_number: int = 0
) -> tuple[list[RefusedNode], list[Finding]]:
    """Refusals and findings after a part of all nodes failed with `error`."""
    refusals: list[RefusedNode] = []
    findings: list[Finding] = []
    refused: dict[str, set[str]] = {OPENVINO: set()}
    part = Part(OPENVINO, 0, tuple(range(len(NAMES))))
    compiling._leave(
        part, error, graph(), refused, refusals, findings, partitioned(folder), round_number
    )
    assert refused[OPENVINO] == {each.node for each in refusals}
    return refusals, findings


@pytest.mark.parametrize("round_number", [0, 9])
def test_refusals_are_in_the_order_of_the_graph(tmp_path: Path, round_number: int) -> None:
    error = AotcError("AOTC-P005", "it could not compile", found="an unsupported type")
    refusals, (finding,) = left(error, tmp_path, round_number)
    assert [each.node for each in refusals] == NAMES
    assert {each.provider for each in refusals} == {OPENVINO}
    assert (finding.code, finding.where) == ("AOTC-P006", "variant portable")
    assert f"{len(NAMES)} nodes" in finding.what


def test_nodes_that_the_message_names_are_in_the_order_of_the_graph(tmp_path: Path) -> None:
    chosen = NAMES[::2]
    text = "not supported: " + ", ".join(f"'{name}'" for name in reversed(chosen))
    refusals, (finding,) = left(AotcError("AOTC-P005", "no", found=text), tmp_path)
    assert [each.node for each in refusals] == chosen
    assert f"{len(chosen)} are left" in finding.what


@pytest.mark.parametrize("code", ["AOTC-I013", "AOTC-I014", "AOTC-I015"])
def test_what_a_crash_left_on_this_machine_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """The artifact would differ from build to build, and tell of the user's folders."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    log = tmp_path / "compile-portable-x-0" / "log.txt"
    log.parent.mkdir()
    log.write_text("gone for good, thread 4711\n")
    kept = kept_logs.kept_log(log)
    assert str(tmp_path) in kept
    found = f"gone for good, thread 4711{kept}"
    refusals, findings = left(
        AotcError(code, "compile_job ended by SIGABRT", found=found), tmp_path
    )
    texts = [each.reason for each in refusals] + [each.what for each in findings]
    for text in texts:
        assert "compile_job ended by SIGABRT" in text
        for word in (str(tmp_path), str(Path.home()), ".log", "4711"):
            assert word not in text, text


def test_what_a_provider_says_is_told(tmp_path: Path) -> None:
    error = AotcError("AOTC-P005", "it could not compile", found="no kernel of rank 7")
    refusals, (finding,) = left(error, tmp_path)
    assert all("no kernel of rank 7" in each.reason for each in refusals)
    assert "no kernel of rank 7" in finding.what
