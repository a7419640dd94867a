"""Findings about a part that failed to compile: in the graph's order, without local paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from aotc.base.errors import AotcError
from aotc.graph.partition.assignment import Part
from aotc.graph.view import GraphView
from aotc.pipeline.lower import CompileFailures
from aotc.session import worker_pool
from aotc.spec.payload import Finding
from aotc.spec.variant import RefusedNode

OPENVINO = "OpenVINOExecutionProvider"
# So many that only the graph's order passes by chance.
NAMES = [f"layer{index}/{word}" for index in range(8) for word in ("MatMul", "Add", "Tanh")]


def graph(op: str = "Add") -> GraphView:
    nodes = [helper.make_node(op, [], [f"{name}_out"], name) for name in NAMES]
    return GraphView(helper.make_graph(nodes, "graph", [], []))


def refuse_all_nodes(
    error: AotcError, round_number: int = 0
) -> tuple[list[RefusedNode], list[Finding]]:
    """Refusals and findings after a part with all nodes failed with `error`."""
    failures = CompileFailures(graph(), "portable")
    part = Part(OPENVINO, 0, tuple(range(len(NAMES))))
    failures.refuse_nodes(part, error, round_number)
    assert failures.refused[OPENVINO] == {refusal.node for refusal in failures.refusals}
    return failures.refusals, failures.findings


@pytest.mark.parametrize("round_number", [0, 9])
def test_refusals_are_in_the_order_of_the_graph(round_number: int) -> None:
    error = AotcError("AOTC-P005", "it could not compile", found="an unsupported type")
    refusals, (finding,) = refuse_all_nodes(error, round_number)
    assert [refusal.node for refusal in refusals] == NAMES
    assert {refusal.provider for refusal in refusals} == {OPENVINO}
    assert (finding.code, finding.where) == ("AOTC-P006", "variant portable")
    assert f"{len(NAMES)} nodes" in finding.what


def test_nodes_that_the_message_names_are_in_the_order_of_the_graph() -> None:
    chosen = NAMES[::2]
    text = "not supported: " + ", ".join(f"'{name}'" for name in reversed(chosen))
    refusals, (finding,) = refuse_all_nodes(AotcError("AOTC-P005", "no", found=text))
    assert [refusal.node for refusal in refusals] == chosen
    assert f"{len(chosen)} are left" in finding.what


@pytest.mark.parametrize("code", ["AOTC-I013", "AOTC-I014", "AOTC-I015"])
def test_files_of_a_crash_on_this_machine_are_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """Otherwise the artifact would differ between builds, and contain the user's folders."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    log = tmp_path / "compile-portable-x-0" / "log.txt"
    log.parent.mkdir()
    log.write_text("gone for good, thread 4711\n")
    kept = worker_pool.keep_log(log)
    assert str(tmp_path) in kept
    found = f"gone for good, thread 4711{kept}"
    refusals, findings = refuse_all_nodes(
        AotcError(code, "compile_job ended by SIGABRT", found=found)
    )
    texts = [finding.reason for finding in refusals] + [refusal.what for refusal in findings]
    for text in texts:
        assert "compile_job ended by SIGABRT" in text
        for word in (str(tmp_path), str(Path.home()), ".log", "4711"):
            assert word not in text, text


def test_the_message_of_a_provider_is_quoted() -> None:
    error = AotcError("AOTC-P005", "it could not compile", found="no kernel of rank 7")
    refusals, (finding,) = refuse_all_nodes(error)
    assert all("no kernel of rank 7" in refusal.reason for refusal in refusals)
    assert "no kernel of rank 7" in finding.what
