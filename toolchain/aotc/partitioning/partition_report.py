"""The record of a division: partitions, shares of compute, and what crosses the borders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from aotc.contract.manifest.divided_graph import (
    Certainty,
    Compute,
    Partition,
    PartitionReport,
    ProviderShare,
    RefusedNode,
    Transfer,
)
from aotc.contract.manifest.variant import TransferTotals
from aotc.partitioning.assignment import Assignment
from aotc.partitioning.compute import Sizes
from aotc.partitioning.crossings import crossed
from aotc.partitioning.graph import PartitionGraph


def report(
    graph: PartitionGraph,
    assignment: Assignment,
    sizes: tuple[Sizes, Sizes],
    *,
    names: Sequence[str],
    compiled: Mapping[int, str],
    devices: Mapping[str, str],
    refusals: Iterable[RefusedNode],
    how: Certainty,
) -> PartitionReport:
    """Describe `assignment`; `sizes` are those at the optimal and at the largest shape.

    `names` and `compiled` (file by index) are of its parts, `devices` (`cpu` or `gpu`) of its
    providers, first choice first.
    """
    parts = assignment.parts
    return PartitionReport(
        how=how,
        providers=_shares(graph, assignment, sizes, tuple(devices)),
        partitions=(
            *(
                Partition(
                    name=name,
                    provider=part.provider,
                    nodes=len(part.nodes),
                    ops=_ops(graph.nodes[index].op for index in part.nodes),
                    file=compiled.get(number),
                    compiled=number in compiled,
                )
                for number, (name, part) in enumerate(zip(names, parts, strict=True))
            ),
            *_body_partitions(graph, assignment),
        ),
        alternations=max(0, sum(a.provider != b.provider for a, b in pairwise(parts))),
        transfers=tuple(crossings(graph, assignment, sizes, devices)),
        refusals=tuple(refusals),
    )


def transfers(found: Sequence[Transfer]) -> TransferTotals:
    """The sums of `found`; crossings of unknown size count, and add no bytes."""
    return TransferTotals(
        count=len(found),
        bytes=sum(each.bytes or 0 for each in found),
        bytes_max=sum(each.bytes_max or 0 for each in found),
    )


def crossings(
    graph: PartitionGraph,
    assignment: Assignment,
    sizes: tuple[Sizes, Sizes],
    devices: Mapping[str, str],
) -> list[Transfer]:
    """Each value that one provider makes and another reads, once for each reader's provider.

    What callers give and get crosses too where the provider's device is not the CPU.  In bodies of
    control flow, which count as one iteration, and both branches of an `If`, it is the same.
    """
    opt, largest = sizes
    return [
        Transfer(
            value=value,
            source=maker,
            target=reader,
            dtype=graph.dtypes.get(value, ""),
            bytes=opt.values.get(value),
            bytes_max=largest.values.get(value),
        )
        for value, maker, reader in crossed(graph, assignment, devices)
    ]


def _shares(
    graph: PartitionGraph,
    assignment: Assignment,
    sizes: tuple[Sizes, Sizes],
    providers: Sequence[str],
) -> tuple[ProviderShare, ...]:
    named = assignment.providers
    nodes = [each.name for each in graph.nodes] + [each.name for each in graph.body_nodes]
    own = {p: [name for name in nodes if named[name] == p] for p in providers}
    total_flops = sum(cost.flops for cost in sizes[0].nodes.values())
    counts = Counter(named.values())
    parts = Counter(part.provider for part in assignment.parts)
    result = []
    for provider in providers:
        opt, largest = (_compute(own[provider], one) for one in sizes)
        result.append(
            ProviderShare(
                provider=provider,
                nodes=counts[provider],
                partitions=parts[provider],
                node_share=round(counts[provider] / max(1, len(named)), 4),
                flops_share=round(opt.flops / total_flops, 4) if total_flops else 0.0,
                opt=opt,
                max=largest,
            )
        )
    return tuple(result)


def _compute(names: Sequence[str], sizes: Sizes) -> Compute:
    costs = [sizes.nodes[name] for name in names if name in sizes.nodes]
    return Compute(
        flops=sum(cost.flops for cost in costs),
        bytes=sum(cost.bytes for cost in costs),
        unknown=sum(not cost.known for cost in costs),
    )


def _ops(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _body_partitions(graph: PartitionGraph, assignment: Assignment) -> list[Partition]:
    """Runs of one provider inside of bodies, where the body is not one part with its owner."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in graph.body_nodes:
        provider = assignment.providers[each.name]
        if provider != assignment.providers[each.owner]:
            found.setdefault((each.body, provider), []).append(each.op)
    return [
        Partition(
            name=f"body{number}",
            provider=provider,
            nodes=len(names),
            ops=_ops(names),
            subgraph=body,
        )
        for number, ((body, provider), names) in enumerate(found.items())
    ]
