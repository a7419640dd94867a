"""What is said of a part that could not be compiled: in the graph's order, and nothing of here."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.contract.finding import Finding
from aotc.contract.manifest.divided_graph import RefusedNode
from aotc.engine import kept_logs
from aotc.errors import AotcError
from aotc.partitioning.assignment import Part
from aotc.partitioning.graph import GraphNode, PartitionGraph
from aotc.stages.lowering.compile_failures import CompileFailures

OPENVINO = "OpenVINOExecutionProvider"
# Enough that no order but the graph's is found by chance.
NAMES = [f"layer{index}/{word}" for index in range(8) for word in ("MatMul", "Add", "Tanh")]


def graph(op: str = "Add") -> PartitionGraph:
    nodes = tuple(GraphNode(name, op, (), (f"{name}_out",)) for name in NAMES)
    return PartitionGraph(nodes, (), (), ())


def left(error: AotcError, round_number: int = 0) -> tuple[list[RefusedNode], list[Finding]]:
    """Refusals and findings after a part of all nodes failed with `error`."""
    failures = CompileFailures(graph(), "portable")
    part = Part(OPENVINO, 0, tuple(range(len(NAMES))))
    failures.refuse_nodes(part, error, round_number)
    assert failures.refused[OPENVINO] == {refusal.node for refusal in failures.refusals}
    return failures.refusals, failures.findings


@pytest.mark.parametrize("round_number", [0, 9])
def test_refusals_are_in_the_order_of_the_graph(round_number: int) -> None:
    error = AotcError("AOTC-P005", "it could not compile", found="an unsupported type")
    refusals, (finding,) = left(error, round_number)
    assert [refusal.node for refusal in refusals] == NAMES
    assert {refusal.provider for refusal in refusals} == {OPENVINO}
    assert (finding.code, finding.where) == ("AOTC-P006", "variant portable")
    assert f"{len(NAMES)} nodes" in finding.what


def test_nodes_that_the_message_names_are_in_the_order_of_the_graph() -> None:
    chosen = NAMES[::2]
    text = "not supported: " + ", ".join(f"'{name}'" for name in reversed(chosen))
    refusals, (finding,) = left(AotcError("AOTC-P005", "no", found=text))
    assert [refusal.node for refusal in refusals] == chosen
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
    kept = kept_logs.keep_log(log)
    assert str(tmp_path) in kept
    found = f"gone for good, thread 4711{kept}"
    refusals, findings = left(AotcError(code, "compile_job ended by SIGABRT", found=found))
    texts = [finding.reason for finding in refusals] + [refusal.what for refusal in findings]
    for text in texts:
        assert "compile_job ended by SIGABRT" in text
        for word in (str(tmp_path), str(Path.home()), ".log", "4711"):
            assert word not in text, text


def test_what_a_provider_says_is_told() -> None:
    error = AotcError("AOTC-P005", "it could not compile", found="no kernel of rank 7")
    refusals, (finding,) = left(error)
    assert all("no kernel of rank 7" in refusal.reason for refusal in refusals)
    assert "no kernel of rank 7" in finding.what
