"""How far the values inside of a variant are from those of its model, node by node."""

from __future__ import annotations

from typing import Annotated

from aotc.records import record


@record
class NodeError:
    """The error of one value that both graphs compute, on one fixture."""

    node: Annotated[str, "node of the source model that makes it"]
    op: Annotated[str, "domain::op_type; without domain for ONNX's own"]
    value: Annotated[str, "name of the value in the source model"]
    variant_node: Annotated[str, "node of the variant that makes it"] = ""
    covers: Annotated[
        tuple[str, ...], "source nodes from the compared values that it reads to this one, in order"
    ] = ()
    max_abs: float
    max_rel: Annotated[float, "max |actual - reference| / max |reference|"]
    cosine: float | None = None
    sqnr_db: Annotated[float | None, "signal to error, in decibels; None if either is zero"] = None
    added: Annotated[
        float | None,
        "energy of the error by that of the signal, less the largest such of the compared values "
        "that it reads; None if that cannot be measured, as where NaN or infinities differ",
    ] = None
    passed: Annotated[bool, "within the tolerance of the variant's outputs"] = True
    reason: Annotated[str, "what failed, in words; empty if it passed"] = ""


@record
class NodeErrors:
    """The errors of all values that could be compared, in the order of the source model."""

    fixture: str = ""
    nodes: tuple[NodeError, ...] = ()
    uncompared: Annotated[int, "values of the source that the variant does not have"] = 0
    first: Annotated[str, "first node out of tolerance whose inputs are within it"] = ""
    worst: Annotated[str, "node that adds most to the error of its inputs"] = ""
    outputs_changed: Annotated[
        bool, "the variant answers with other bits while its inner values are read"
    ] = False

    def of_node(self, name: str) -> NodeError | None:
        """The error of the value that a source node makes; the worst if it makes several."""
        found = [error for error in self.nodes if error.node == name]
        return max(found, key=lambda error: error.max_rel, default=None)
