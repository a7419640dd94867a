"""On which provider ONNX Runtime placed each node, and differences from what was promised."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from aotc.contract.manifest.variant import NodePlacement, Placement
from aotc.contract.operator_domains import STANDARD

if TYPE_CHECKING:
    import onnxruntime as ort

_MAX_NAMED = 5


def observe(session: ort.InferenceSession) -> Placement:
    """The placement of a session that was created with `record_placement`.

    Nodes are in ONNX Runtime's order and include those of control-flow subgraphs.
    """
    nodes = []
    for subgraph in session.get_provider_graph_assignment_info():
        for node in subgraph.get_nodes():
            nodes.append(
                NodePlacement(
                    name=node.name,
                    op=op_name(node.domain, node.op_type),
                    provider=subgraph.ep_name,
                )
            )
    return placement_of(tuple(nodes), observed=True)


def placement_of(nodes: tuple[NodePlacement, ...], *, observed: bool) -> Placement:
    """A placement with its shares and partitions counted."""
    counts = Counter(node.provider for node in nodes)
    return Placement(
        how="observed" if observed else "predicted",
        nodes=nodes,
        share={name: round(count / len(nodes), 4) for name, count in sorted(counts.items())},
        partitions=sum(1 for _ in groupby(nodes, key=lambda node: node.provider)),
    )


def op_name(domain: str, op_type: str) -> str:
    """`domain::op_type`; without the domain for ONNX's own operators."""
    return op_type if domain in STANDARD else f"{domain}::{op_type}"


def differences(promised: Placement, observed: Placement) -> tuple[str, ...]:
    """The differences in any order, one line per node; empty if there are none."""
    if promised.nodes == observed.nodes:
        return ()
    before = Counter((node.name, node.op, node.provider) for node in promised.nodes)
    after = Counter((node.name, node.op, node.provider) for node in observed.nodes)
    missing, added = before - after, after - before
    lines = []
    for name, op, provider in list(missing.elements()):
        moved = next((key for key in added if key[:2] == (name, op)), None)
        if moved is not None:
            lines.append(f"node {name!r} ({op}) runs on {moved[2]}, promised {provider}")
            added = added - Counter([moved])
        else:
            lines.append(f"node {name!r} ({op}) is gone, promised on {provider}")
    lines.extend(
        f"node {name!r} ({op}) runs on {provider}, and was not promised"
        for name, op, provider in added.elements()
    )
    return tuple(lines)


def summary(lines: tuple[str, ...]) -> str:
    """The first few differences in one line, with the number of the others."""
    more = len(lines) - _MAX_NAMED
    return "; ".join(lines[:_MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")
