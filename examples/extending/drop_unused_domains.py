"""Drop operator sets that no node uses, which a reader would ask for in vain.

Cases: a domain that no node of the graph, of its subgraphs or of functions names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.base.records import record
from aotc.graph.passes.base import Pass
from aotc.graph.view import every_node

if TYPE_CHECKING:
    import onnx


@record
class DropUnusedDomains(Pass):
    """Takes no options; the default domain stays."""

    name = "drop-unused-domains"

    def apply(self, model: onnx.ModelProto) -> None:
        used = {node.domain for node in every_node(model)}
        kept = [each for each in model.opset_import if not each.domain or each.domain in used]
        del model.opset_import[:]
        model.opset_import.extend(kept)

    def ensures(self, model: onnx.ModelProto) -> str:
        used = {node.domain for node in every_node(model)}
        left = [each.domain for each in model.opset_import if each.domain]
        return "" if set(left) <= used else f"{left} are left"
