"""Where the nodes of two variants run, and what moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aotc.comparing.field_changes import changes_of
from aotc.comparing.node_matching import Node, match_nodes
from aotc.comparing.variant_pairs import Pair
from aotc.contract.manifest.variant import Variant
from aotc.contract.results.diff_report import Change, NodeChange, NodesDiff
from aotc.records import record

if TYPE_CHECKING:
    from aotc.comparing.stored_graph import StoredGraph


def placement_changes(pairs: Sequence[Pair]) -> tuple[Change, ...]:
    """Shares of providers, partitions, transfers and refusals of each pair."""
    found: list[Change] = []
    for pair in pairs:
        found += changes_of(_stated(pair.a), _stated(pair.b), subject=pair.label)
    return tuple(found)


def _stated(variant: Variant) -> Mapping[str, Any]:
    divided = variant.partitioning
    stated: dict[str, Any] = {
        "how": variant.placement.how,
        "share": variant.placement.share,
        "partitions": variant.placement.partitions,
        "transfers": variant.transfers,
    }
    if divided is not None:
        stated["providers"] = {share.provider: share for share in divided.providers}
        stated["alternations"] = divided.alternations
        stated["refusals"] = len(divided.refusals)
    return stated


@record
class MatchedNodes:
    """The nodes of a pair of variants, and the index in B of each node of A that is in both."""

    label: str
    a: Sequence[Node]
    b: Sequence[Node]
    found: Mapping[int, int]
    by_structure: bool

    def weight_names(self) -> Mapping[str, str]:
        """Names in B of what the same nodes read in A at the same input."""
        return {
            one: other
            for index, same in self.found.items()
            for one, other in zip(self.a[index].inputs, self.b[same].inputs, strict=False)
            if one and other
        }

    def diff(self) -> NodesDiff:
        """What moved, came, went, or has another name."""
        both = [_both(self.a[index], self.b[self.found[index]]) for index in sorted(self.found)]
        taken = set(self.found.values())
        return NodesDiff(
            variant=self.label,
            nodes_a=len(self.a),
            nodes_b=len(self.b),
            matched=len(self.found),
            by_structure=self.by_structure,
            moved=tuple(each for each in both if each.provider_a != each.provider_b),
            renamed=tuple(each for each in both if each.a != each.b),
            replaced=tuple(each for each in both if each.op_a != each.op_b),
            altered=tuple(each for each in both if each.attributes),
            removed=tuple(
                NodeChange(a=node.name, op_a=node.op, provider_a=node.provider)
                for index, node in enumerate(self.a)
                if index not in self.found
            ),
            added=tuple(
                NodeChange(b=node.name, op_b=node.op, provider_b=node.provider)
                for index, node in enumerate(self.b)
                if index not in taken
            ),
        )


def matched_nodes(
    pair: Pair, a: StoredGraph | None = None, b: StoredGraph | None = None
) -> MatchedNodes:
    """The nodes of a pair; without both graphs, nodes are matched by name alone."""
    if a is None or b is None:
        one, other = _placed(pair.a, None), _placed(pair.b, None)
        return MatchedNodes(
            label=pair.label, a=one, b=other, found=match_nodes(one, other), by_structure=False
        )
    one, other = _placed(pair.a, a), _placed(pair.b, b)
    found = match_nodes(one, other, a.outputs, b.outputs)
    return MatchedNodes(label=pair.label, a=one, b=other, found=found, by_structure=True)


def _placed(variant: Variant, graph: StoredGraph | None) -> list[Node]:
    """The variant's nodes as its placement lists them, with their values where these are known."""
    stored = {node.name: node for node in graph.nodes} if graph is not None else {}
    found = []
    for node in variant.placement.nodes:
        known = stored.get(node.name)
        found.append(
            Node(node.name, node.op, node.provider, known.inputs, known.outputs, known.attributes)
            if known is not None
            else Node(node.name, node.op, node.provider)
        )
    return found


def _both(a: Node, b: Node) -> NodeChange:
    names = sorted({*a.attributes, *b.attributes}) if a.op == b.op else ()
    return NodeChange(
        a=a.name,
        b=b.name,
        op_a=a.op,
        op_b=b.op,
        provider_a=a.provider,
        provider_b=b.provider,
        attributes=tuple(n for n in names if a.attributes.get(n) != b.attributes.get(n)),
    )


def is_moved(nodes: NodesDiff) -> bool:
    """Whether nodes run elsewhere, or are not the same; other names alone are no difference."""
    return bool(nodes.moved or nodes.added or nodes.removed or nodes.replaced or nodes.altered)
