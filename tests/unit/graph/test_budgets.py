"""Fallback policies and budgets at their exact limits, and the rows that a breach shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from aotc.base.errors import AotcError
from aotc.graph.partition.budgets import judge_placement, with_flops
from aotc.graph.partition.division import total_transfers
from aotc.session.sessions import placement_of
from aotc.spec.codec import decode
from aotc.spec.profile import Profile
from aotc.spec.providers import CPU
from aotc.spec.variant import (
    Compute,
    NodePlacement,
    Partition,
    PartitionReport,
    Placement,
    ProviderShare,
    RefusedNode,
    Transfer,
    TransferTotals,
)

OPENVINO = "OpenVINOExecutionProvider"
OTHER = "OtherExecutionProvider"
BOTH = {"openvino": OPENVINO, "cpu": CPU}
ALONE = {"openvino": OPENVINO}


def profile(**fields: Any) -> Profile:
    made: Profile = decode(
        Profile, {"schema": "aotc.profile/1", "name": "made", "providers": ["openvino"], **fields}
    )
    return made


def placed(
    providers: Sequence[str], flops: Sequence[int] = (), *, observed: bool = True
) -> Placement:
    """Nodes `n0`.. of the operator Relu on `providers`."""
    counts = flops or [0] * len(providers)
    nodes = tuple(
        NodePlacement(name=f"n{index}", op="Relu", provider=name, flops=count)
        for index, (name, count) in enumerate(zip(providers, counts, strict=True))
    )
    return placement_of(nodes, observed=observed)


def report_of(
    *,
    shares: Mapping[str, tuple[int, float]] | None = None,
    partitions: int = 3,
    refusals: Sequence[RefusedNode] = (),
    transfers: Sequence[Transfer] = (),
) -> PartitionReport:
    """`shares`: nodes and share of operations by provider, before compiling."""
    found = shares or {}
    total = sum(count for count, _ in found.values())
    return PartitionReport(
        origin="observed",
        providers=tuple(
            ProviderShare(
                provider=name,
                nodes=count,
                partitions=1,
                node_share=round(count / total, 4),
                flops_share=share,
                opt=Compute(),
                max=Compute(),
            )
            for name, (count, share) in found.items()
        ),
        partitions=tuple(
            Partition(name=f"p{i}", provider=(OPENVINO, CPU)[i % 2], nodes=1, ops={"Relu": 1})
            for i in range(partitions)
        ),
        alternations=partitions - 1,
        transfers=tuple(transfers),
        refusals=tuple(refusals),
    )


def breaches(*arguments: Any, **named: Any) -> list[AotcError]:
    return list(judge_placement(*arguments, **named).breaches)


def breach_rows(*arguments: Any, **named: Any) -> list[tuple[str, str, str]]:
    return [(e.code, e.expected, e.found) for e in breaches(*arguments, **named)]


@pytest.mark.parametrize("policy", ["fail", "alternate-variant", "reject-route"])
def test_no_policy_but_cpu_lets_a_node_onto_the_cpu_unnamed(policy: str) -> None:
    errors = breaches(
        profile(fallback={"policy": policy}), ALONE, placed([OPENVINO, CPU]), report=None, where="v"
    )
    (error,) = errors
    assert (error.code, error.where, error.expected, error.found) == (
        "AOTC-P001", "v", "openvino", CPU,
    )  # fmt: skip
    assert error.exit_status == 1
    assert "1 nodes" in error.what and "n1 (Relu)" in error.what


def test_policy_cpu_allows_it_and_a_listed_cpu_is_not_a_fallback() -> None:
    lax = profile(fallback={"policy": "cpu"})
    strict = profile(fallback={"policy": "fail"})
    placement = placed([OPENVINO, CPU])
    assert breaches(lax, ALONE, placement, report=None) == []
    assert breaches(strict, BOTH, placement, report=None) == []


def test_policy_cpu_is_only_for_the_cpu() -> None:
    lax = profile(fallback={"policy": "cpu"})
    (error,) = breaches(lax, ALONE, placed([OPENVINO, CPU, OTHER]), report=None)
    assert (error.code, error.found) == ("AOTC-P001", OTHER)


@pytest.mark.parametrize(("limit", "breached"), [(0.24, True), (0.25, False), (0.0, True)])
def test_the_share_of_nodes_that_policy_cpu_allows(limit: float, breached: bool) -> None:
    spec = profile(fallback={"policy": "cpu", "max_node_share": limit})
    expected = [("AOTC-P002", f"<= {limit:g}", "0.25")] if breached else []
    assert breach_rows(spec, ALONE, placed([OPENVINO] * 3 + [CPU]), report=None) == expected


def test_a_compiled_node_counts_as_the_nodes_that_it_stands_for() -> None:
    """98 nodes in one compiled part and 2 on the CPU: 2 % of the nodes, not two of three."""
    report = PartitionReport(
        origin="observed",
        providers=(),
        partitions=(
            Partition(name="openvino0", provider=OPENVINO, nodes=98, ops={}, compiled=True),
            Partition(name="cpu1", provider=CPU, nodes=2, ops={}),
        ),
        alternations=1,
    )
    placement = placement_of(
        (
            NodePlacement(name="openvino0", op="com.microsoft::EPContext", provider=OPENVINO),
            NodePlacement(name="n0", op="Relu", provider=CPU),
            NodePlacement(name="n1", op="Relu", provider=CPU),
        ),
        observed=True,
    )
    for limit, expected in ((0.02, []), (0.01, [("AOTC-P002", "<= 0.01", "0.02")])):
        spec = profile(
            fallback={"policy": "cpu", "max_node_share": limit},
            budgets={"providers": {"openvino": {"min_node_share": 0.98}}},
        )
        assert breach_rows(spec, BOTH, placement, report=report) == expected


def test_a_profile_of_only_the_cpu_has_no_budget_of_cpu_share() -> None:
    spec = profile(budgets={"cpu_share": 0.0}, fallback={"policy": "cpu", "max_node_share": 0.0})
    assert breaches(spec, {"cpu": CPU}, placed([CPU]), report=None) == []


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"min_node_share": 0.75}, None),
        ({"min_node_share": 0.76}, "0.76..1"),
        ({"max_node_share": 0.75}, None),
        ({"max_node_share": 0.74}, "0..0.74"),
    ],
)
def test_shares_by_provider(budget: dict[str, float], expected: str | None) -> None:
    spec = profile(budgets={"providers": {"openvino": budget}})
    errors = breach_rows(spec, BOTH, placed([OPENVINO] * 3 + [CPU]), report=None)
    assert errors == ([("AOTC-P002", expected, "0.75")] if expected else [])


def test_a_budget_of_a_provider_that_the_variant_lacks_is_ignored() -> None:
    variants = [{"name": "portable"}, {"name": "gpu", "providers": ["cuda"]}]
    spec = profile(variants=variants, budgets={"providers": {"cuda": {"min_node_share": 1.0}}})
    assert breaches(spec, BOTH, placed([OPENVINO, CPU]), report=None) == []


@pytest.mark.parametrize(("limit", "breached"), [(0.1, True), (0.2, False)])
def test_share_of_compute_by_the_report(limit: float, breached: bool) -> None:
    """The observed placement of a compiled graph does not count operations."""
    spec = profile(budgets={"cpu_share": limit})
    report = report_of(shares={OPENVINO: (1, 0.8), CPU: (99, 0.2)})
    errors = breach_rows(spec, BOTH, placed([OPENVINO] + [CPU] * 99), report=report)
    assert errors == ([("AOTC-P002", f"<= {limit:g}", "0.2")] if breached else [])


def test_share_of_compute_by_node_if_it_is_known() -> None:
    """At load, nodes may be on other providers than in the report."""
    spec = profile(budgets={"cpu_share": 0.5})
    report = report_of(shares={OPENVINO: (2, 1.0), CPU: (0, 0.0)})
    placement = placed([OPENVINO, CPU], [100, 300])
    assert breach_rows(spec, BOTH, placement, report=report) == [("AOTC-P002", "<= 0.5", "0.75")]


def test_share_of_compute_by_count_if_nothing_else_is_known() -> None:
    spec = profile(budgets={"cpu_share": 0.3})
    assert breach_rows(spec, BOTH, placed([OPENVINO, CPU]), report=None) == [
        ("AOTC-P002", "<= 0.3", "0.5")
    ]


def test_operations_are_given_to_nodes_by_name() -> None:
    placement = with_flops(placed([OPENVINO, CPU]), {"n1": 7, "gone": 9})
    assert [node.flops for node in placement.nodes] == [0, 7]
    assert placement.share == {OPENVINO: 0.5, CPU: 0.5}
    assert placement.origin == "observed"


@pytest.mark.parametrize(("limit", "breached"), [(2, True), (3, False)])
def test_partitions(limit: int, breached: bool) -> None:
    spec = profile(budgets={"partitions": limit})
    expected = [("AOTC-P002", f"<= {limit}", "3")] if breached else []
    placement = placed([OPENVINO, CPU, OPENVINO])
    assert breach_rows(spec, BOTH, placement, report=report_of(partitions=3)) == expected
    assert breach_rows(spec, BOTH, placement, report=None) == expected


def transfer(size: int | None, largest: int | None) -> Transfer:
    return Transfer(
        value="v", source=OPENVINO, target=CPU, dtype="float", bytes=size, bytes_max=largest
    )


@pytest.mark.parametrize(("limit", "breached"), [(299, True), (300, False)])
def test_transferred_bytes_at_the_largest_shape(limit: int, breached: bool) -> None:
    transfers = [transfer(10, 100), transfer(20, 200)]
    sums = total_transfers(transfers)
    assert (sums.count, sums.bytes, sums.bytes_max) == (2, 30, 300)
    spec = profile(budgets={"transfer_bytes": limit})
    report = report_of(transfers=transfers)
    errors = breach_rows(spec, BOTH, placed([OPENVINO, CPU]), report=report, transfers=sums)
    assert errors == ([("AOTC-P002", f"<= {limit}", "300")] if breached else [])


def test_tensors_of_unknown_size_do_not_pass_a_budget() -> None:
    transfers = [transfer(10, 100), transfer(None, None)]
    spec = profile(budgets={"transfer_bytes": 1000})
    (error,) = breaches(
        spec,
        BOTH,
        placed([OPENVINO, CPU]),
        report=report_of(transfers=transfers),
        transfers=total_transfers(transfers),
    )
    assert (error.code, error.found) == ("AOTC-P002", "at least 100, 1 tensors of unknown size")


def test_the_fix_names_the_budget_and_the_direction() -> None:
    budgets = {"providers": {"openvino": {"min_node_share": 0.9}}, "cpu_share": 0.1}
    placement = with_flops(placed([OPENVINO, CPU]), {"n0": 10, "n1": 10})
    few, much = breaches(profile(budgets=budgets), BOTH, placement, report=None)
    assert few.fix.startswith("Lower min_node_share of budgets.providers.openvino, or")
    assert much.fix.startswith("Raise budgets.cpu_share, or")


def test_large_numbers_are_written_in_full() -> None:
    spec = profile(budgets={"transfer_bytes": 123_456_788})
    report = report_of(transfers=[transfer(1, 123_456_789)])
    sums = TransferTotals(count=1, bytes=1, bytes_max=123_456_789)
    (error,) = breaches(spec, BOTH, placed([OPENVINO, CPU]), report=report, transfers=sums)
    assert (error.expected, error.found) == ("<= 123456788", "123456789")


def test_all_breaches_are_reported_at_once() -> None:
    spec = profile(
        fallback={"policy": "fail"},
        budgets={
            "cpu_share": 0.0,
            "partitions": 1,
            "transfer_bytes": 0,
            "providers": {"openvino": {"min_node_share": 0.9}},
        },
    )
    errors = breaches(
        spec,
        ALONE,
        placed([OPENVINO, CPU]),
        report=report_of(shares={OPENVINO: (1, 0.5), CPU: (1, 0.5)}),
        transfers=TransferTotals(count=1, bytes=1, bytes_max=1),
    )
    assert [error.code for error in errors] == ["AOTC-P001"] + ["AOTC-P002"] * 4
    assert len({error.what for error in errors}) == 5


def refused(node: str, op: str = "Relu", reason: str = "openvino did not claim it") -> RefusedNode:
    return RefusedNode(node=node, op=op, provider=OPENVINO, reason=reason)


def rows_of(error: AotcError) -> list[dict[str, str]]:
    return [dict(row) for row in error.rows]


def test_a_row_names_the_node_the_provider_the_reason_and_a_fix() -> None:
    spec = profile(fallback={"policy": "fail"})
    placement = placement_of(
        (
            NodePlacement(name="odd", op="own::Odd", provider=CPU),
            NodePlacement(name="det", op="Det", provider=CPU),
            NodePlacement(name="lost", op="Relu", provider=CPU),
        ),
        observed=True,
    )
    report = report_of(
        refusals=[refused("odd", "own::Odd"), refused("det", "Det", "no kernel for float64")]
    )
    (error,) = breaches(spec, ALONE, placement, report=report)
    odd, det, lost = rows_of(error)
    assert list(odd) == ["node", "op", "domain", "refused by", "reason", "fix"]
    assert (odd["op"], odd["domain"], odd["refused by"]) == ("Odd", "own", OPENVINO)
    assert "ONNX's own domain" in odd["fix"]
    assert (det["op"], det["domain"], det["reason"]) == ("Det", "ai.onnx", "no kernel for float64")
    assert "opset or element type" in det["fix"]
    assert (lost["refused by"], lost["reason"]) == ("-", f"ONNX Runtime put it on {CPU}")
    assert all(row["fix"] for row in (odd, det, lost))


def test_a_budget_shows_who_was_refused_though_their_nodes_are_gone() -> None:
    """Rewrites at load may rename nodes refused at build: the table lists them nevertheless."""
    spec = profile(budgets={"partitions": 1})
    report = report_of(refusals=[refused("n1"), refused("fused_away")])
    (error,) = breaches(spec, BOTH, placed([OPENVINO, CPU]), report=report)
    assert [row["node"] for row in rows_of(error)] == ["n1", "fused_away"]


def test_a_table_is_bounded_and_the_breach_counts_all() -> None:
    spec = profile(fallback={"policy": "fail"})
    (error,) = breaches(spec, ALONE, placed([CPU] * 1000), report=None)
    assert error.what.startswith("1000 nodes")
    assert 0 < len(error.rows) < 1000


def test_a_placement_without_nodes_breaches_nothing() -> None:
    spec = profile(budgets={"cpu_share": 0.0, "partitions": 1, "transfer_bytes": 0})
    assert breaches(spec, BOTH, placed([]), report=None) == []
