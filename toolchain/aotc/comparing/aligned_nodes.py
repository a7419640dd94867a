"""The nodes of both graphs side by side, in the order of execution."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from aotc.comparing.opened_artifact import open_artifact
from aotc.contract.manifest.variant import NodePlacement
from aotc.contract.results.diff_report import DiffReport, NodeChange, NodesDiff


def aligned_nodes(
    a: str | Path, b: str | Path, report: DiffReport
) -> Mapping[str, tuple[NodeChange, ...]]:
    """All nodes of each pair of variants, by its label; `report` is that of the two artifacts.

    A row holds a node of both, or of one.  Rows are in A's order, and what B alone has stands
    before the next node of both.  Raises what `compare` does.
    """
    found = []
    for path in (a, b):
        artifact = open_artifact(path)
        artifact.container.close()
        found.append({each.name: each.placement.nodes for each in artifact.manifest.variants})
    pairs = {pair.label: pair for pair in report.variants if pair.a and pair.b}
    return {
        nodes.variant: _aligned(
            found[0][pairs[nodes.variant].a], found[1][pairs[nodes.variant].b], nodes
        )
        for nodes in report.nodes
    }


def _aligned(
    a: Sequence[NodePlacement], b: Sequence[NodePlacement], diff: NodesDiff
) -> tuple[NodeChange, ...]:
    renamed = {each.a: each.b for each in diff.renamed}
    gone = _counted(each.a for each in diff.removed)
    new = _counted(each.b for each in diff.added)
    waiting: dict[str, deque[int]] = defaultdict(deque)
    alone = []
    for index, node in enumerate(b):
        if new[node.name]:
            new[node.name] -= 1
            alone.append(index)
        else:
            waiting[node.name].append(index)
    rows: list[NodeChange] = []
    next_alone = 0
    for node in a:
        partners = waiting[renamed.get(node.name, node.name)]
        if gone[node.name] or not partners:
            gone[node.name] -= 1
            rows.append(NodeChange(a=node.name, op_a=node.op, provider_a=node.provider))
            continue
        index = partners.popleft()
        while next_alone < len(alone) and alone[next_alone] < index:
            rows.append(_of_b(b[alone[next_alone]]))
            next_alone += 1
        rows.append(
            NodeChange(
                a=node.name,
                op_a=node.op,
                provider_a=node.provider,
                b=b[index].name,
                op_b=b[index].op,
                provider_b=b[index].provider,
            )
        )
    return (*rows, *(_of_b(b[index]) for index in alone[next_alone:]))


def _of_b(node: NodePlacement) -> NodeChange:
    return NodeChange(b=node.name, op_b=node.op, provider_b=node.provider)


def _counted(names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for name in names:
        found[name] += 1
    return found
