"""Times per node from events as in ONNX Runtime's profiles; `test_bench_nodes` has real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from aotc.base.errors import AotcError
from aotc.session.node_times import (
    NodeEvent,
    ProfiledRun,
    TraceEvent,
    faster_half,
    profiled_runs,
)
from aotc.spec.variant import (
    MemoryPlan,
    NodePlacement,
    Parity,
    Partition,
    PartitionReport,
    Placement,
    Requirements,
    SessionSpec,
    Variant,
)
from aotc.tools.bench_nodes import KnownNodes, nodes_report

CPU, OTHER = "CPUExecutionProvider", "NimbusExecutionProvider"
WHERE = Path("profile.json")


def event(
    name: str,
    start: float,
    duration: float,
    *,
    category: str = "Node",
    thread: int = 1,
    **args: Any,
) -> TraceEvent:
    if category == "Node":
        name, args = f"{name}_kernel_time", {"op_name": "Op", "provider": CPU, **args}
    return TraceEvent(
        name=name, category=category, start=start, duration=duration, thread=thread, args=args
    )


def run(start: float, duration: float) -> TraceEvent:
    return event("model_run", start, duration, category="Session")


def placed(*names: str, provider: str = CPU) -> tuple[NodePlacement, ...]:
    return tuple(NodePlacement(name=name, op="Op", provider=provider) for name in names)


def variant(*nodes: NodePlacement, partitions: tuple[Partition, ...] = ()) -> Variant:
    report = PartitionReport(origin="observed", providers=(), partitions=partitions, alternations=0)
    return Variant(
        name="portable",
        component="model",
        providers=(OTHER, CPU),
        model="model.onnx",
        files=("model.onnx",),
        session=SessionSpec(optimization="all"),
        placement=Placement(origin="observed", nodes=nodes, share={}),
        partitioning=report if partitions else None,
        memory=MemoryPlan(weights_bytes=0),
        parity=Parity(status="passed"),
        requirements=Requirements(
            os="linux",
            architecture="x86_64",
            onnxruntime_min="1.31.0",
            onnxruntime_below="1.32",
            providers=(CPU,),
        ),
    )


def compiled(name: str, nodes: int) -> Partition:
    return Partition(name=name, provider=OTHER, nodes=nodes, ops={}, compiled=True)


def test_nodes_belong_to_the_run_in_which_they_ran() -> None:
    events = [
        event("session_initialization", 0, 50, category="Session"),
        event("a", 101, 3),
        event("b", 105, 4),
        event("SequentialExecutor::Execute", 101, 8, category="Session"),
        run(100, 10),
        event("a", 201, 2),
        run(200, 10),
    ]
    found = profiled_runs(events, WHERE)
    assert [(each.start, each.duration) for each in found] == [(100, 10), (200, 10)]
    assert [[node.node for node in each.nodes] for each in found] == [["a", "b"], ["a"]]


def test_a_node_with_a_subgraph_has_its_own_time_alone() -> None:
    """A loop runs its body twice, and the body has a condition with a body of its own."""
    events = [
        run(0, 100),
        event("loop", 0, 90),
        event("body", 5, 20),
        event("if", 30, 50),
        event("then", 35, 40),
        event("body", 82, 8),
        event("last", 90, 10),
    ]
    (found,) = profiled_runs(events, WHERE)
    own = [(node.node, node.own) for node in found.nodes]
    assert own == [
        ("loop", 90 - 20 - 50 - 8), ("body", 20), ("if", 10), ("then", 40), ("body", 8),
        ("last", 10),
    ]  # fmt: skip
    assert sum(node.own for node in found.nodes) == 100


def test_a_part_that_was_rounded_up_leaves_no_negative_time() -> None:
    (found,) = profiled_runs([run(0, 5), event("if", 0, 3), event("then", 0, 3),
                              event("then2", 2, 1)], WHERE)  # fmt: skip
    assert min(node.own for node in found.nodes) == 0


def test_threads_do_not_hold_one_another() -> None:
    (found,) = profiled_runs([run(0, 9), event("a", 0, 9), event("b", 1, 5, thread=2)], WHERE)
    assert {node.node: node.own for node in found.nodes} == {"a": 9, "b": 5}


def test_a_profile_without_a_run_is_refused() -> None:
    with pytest.raises(AotcError) as caught:
        profiled_runs([event("a", 0, 1)], WHERE)
    assert caught.value.line() == "AOTC-I066 the profile holds no run [profile.json]"


def node(name: str, own: float, provider: str = CPU) -> NodeEvent:
    return NodeEvent(node=name, op="Op", provider=provider, start=0, duration=own, own=own)


def profiled(*nodes: NodeEvent, duration: float = 10) -> ProfiledRun:
    return ProfiledRun(start=0, duration=duration, nodes=nodes)


@pytest.mark.parametrize(
    ("durations", "kept"),
    [([5], [5]), ([9, 5], [5]), ([5, 99, 4, 3], [4, 3]), ([7, 7, 7], [7, 7, 7])],
)
def test_the_faster_half(durations: list[float], kept: list[float]) -> None:
    found = faster_half([profiled(duration=each) for each in durations])
    assert [each.duration for each in found] == kept


def test_times_are_means_and_shares_sum_to_one(tmp_path: Path) -> None:
    runs = [
        profiled(node("a", 6), node("b", 2), node("b", 4), duration=14),
        profiled(node("a", 2), node("c", 2, OTHER), duration=6),
    ]
    taken = variant(*placed("a", "b"), *placed("c", provider=OTHER))
    report = nodes_report(runs, taken, KnownNodes(runs, taken, tmp_path), 5)
    assert (report.profiled_runs, report.runs, report.run_seconds) == (5, 2, 10e-6)
    assert report.node_seconds == pytest.approx(8e-6)
    assert [(each.name, each.calls) for each in report.nodes] == [("a", 1), ("b", 1), ("c", 0.5)]
    assert [each.seconds for each in report.nodes] == pytest.approx([4e-6, 3e-6, 1e-6])
    assert [each.share for each in report.nodes] == pytest.approx([0.5, 0.375, 0.125])
    assert [(each.provider, each.nodes) for each in report.providers] == [(CPU, 2), (OTHER, 1)]
    assert [each.share for each in report.providers] == pytest.approx([0.875, 0.125])
    assert [each.promised for each in report.nodes] == [CPU, CPU, OTHER]


def test_nothing_that_takes_time_gives_no_shares(tmp_path: Path) -> None:
    runs, taken = [profiled(node("a", 0))], variant(*placed("a"))
    report = nodes_report(runs, taken, KnownNodes(runs, taken, tmp_path), 1)
    assert [each.share for each in report.nodes] == [0.0]


def test_a_node_that_was_given_another_layout_keeps_the_payloads_name(tmp_path: Path) -> None:
    """Also in a subgraph; what ONNX Runtime added, or named after nothing, is made at load."""
    body = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["deep"], name="inner")],
        "body",
        [],
        [helper.make_tensor_value_info("deep", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["y"], name="first"),
            helper.make_node("If", ["c"], ["z"], name="choice", then_branch=body, else_branch=body),
        ],
        "g",
        [],
        [],
    )
    (tmp_path / "model.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    taken = variant(*placed("first", "choice", "inner"))
    runs = [profiled(*(node(name, 1) for name in ("y_nchwc", "deep_nchwc", "q_nchwc", "Reorder")))]
    report = nodes_report(runs, taken, KnownNodes(runs, taken, tmp_path), 1)
    assert {(each.name, each.promised) for each in report.nodes} == {
        ("first", CPU), ("inner", CPU), ("q_nchwc", ""), ("Reorder", ""),
    }  # fmt: skip


def test_a_node_that_was_copied_keeps_its_name_if_it_is_the_same_operator(tmp_path: Path) -> None:
    taken = variant(NodePlacement(name="conv", op="com.example::QConv", provider=CPU))
    known = KnownNodes([], taken, tmp_path)
    assert known.name("conv_token_12", "QConv") == "conv"
    for profiled_name, op in (("conv_token_12", "Transpose"), ("conv_token_", "QConv"),
                              ("else_token_3", "QConv"), ("_token_3", "QConv")):  # fmt: skip
        assert known.name(profiled_name, op) == profiled_name


@pytest.mark.parametrize("data", [b"", b"\x3a\xff\xff", b"not a model at all"])
def test_a_model_that_cannot_be_read_costs_names_alone(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(data)
    taken = variant(*placed("first"))
    assert KnownNodes([], taken, tmp_path).name("y_nchwc", "Conv") == "y_nchwc"


def test_a_compiled_partition_is_one_node_of_its_name(tmp_path: Path) -> None:
    """Providers name it after themselves; as many as there are partitions are those, in order."""
    taken = variant(*placed("odd"), partitions=(compiled("nimbus0", 3), compiled("nimbus2", 7)))
    names = (f"{OTHER}_{OTHER}_77_0_0", "odd", f"{OTHER}_{OTHER}_77_1_1")
    runs = [profiled(*(node(name, 1, OTHER if name != "odd" else CPU) for name in names))]
    report = nodes_report(runs, taken, KnownNodes(runs, taken, tmp_path), 1)
    assert {(each.name, each.partition, each.partition_nodes) for each in report.nodes} == {
        ("nimbus0", "nimbus0", 3), ("odd", "", 0), ("nimbus2", "nimbus2", 7),
    }  # fmt: skip


def test_partitions_that_cannot_be_told_apart_are_not_guessed(tmp_path: Path) -> None:
    taken = variant(partitions=(compiled("nimbus0", 3), compiled("nimbus2", 7)))
    runs = [profiled(node(f"{OTHER}_77_0", 1, OTHER))]
    report = nodes_report(runs, taken, KnownNodes(runs, taken, tmp_path), 1)
    assert [(each.name, each.partition) for each in report.nodes] == [(f"{OTHER}_77_0", "")]
