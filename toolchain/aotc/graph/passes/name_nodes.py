"""Give every node a unique name.

ONNX Runtime reports placement by node name, and does not name unnamed nodes.
Cases: an empty name; a name that an earlier node has, also in another subgraph or function.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aotc.base.records import record
from aotc.graph.passes.base import Pass
from aotc.graph.view import every_node

if TYPE_CHECKING:
    import onnx


@record
class NameNodes(Pass):
    """Name nodes by operator type and position; unique names are kept."""

    name = "name-nodes"

    def apply(self, model: onnx.ModelProto) -> None:
        taken = {node.name for node in every_node(model)}
        seen: set[str] = set()
        numbers: Counter[str] = Counter()
        for node in every_node(model):
            if not node.name or node.name in seen:
                stem = node.name or node.op_type
                while (name := f"{stem}_{numbers[stem]}") in taken:
                    numbers[stem] += 1
                taken.add(name)
                node.name = name
            seen.add(node.name)

    def ensures(self, model: onnx.ModelProto) -> str:
        names = [node.name for node in every_node(model)]
        return "" if "" not in names and len(set(names)) == len(names) else "names are not unique"
