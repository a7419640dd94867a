"""Nodes that the profile keeps in float32: each name must be that of a node of the model."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from aotc.contract.codec.spelling import nearest
from aotc.contract.precision.kept_names import unmatched
from aotc.errors import AotcError
from aotc.passes.base import walk_nodes
from aotc.stages.types import SourceModel
from aotc.stages.variant_plan import VariantPlan


def require_kept_nodes(source: SourceModel, plans: Iterable[VariantPlan]) -> None:
    """Raise AOTC-N016 if a name or a pattern under `keep_float32` matches no node.

    Nodes are those of the imported graph, in its bodies too.
    """
    names: list[str] = []
    for plan in plans:
        if not plan.keep_float32:
            continue
        if not names:
            graph = onnx.load(source.graph, load_external_data=False)
            names = [node.name for node in walk_nodes(graph)]
        for pattern in unmatched(names, plan.keep_float32)[:1]:
            raise AotcError(
                "AOTC-N016",
                f"no node has the name {pattern!r}",
                where=f"variant {plan.name}: keep_float32",
                expected=_like(pattern, names),
                found=pattern,
            )


def _like(pattern: str, names: list[str]) -> str:
    """A name that resembles the one that there is not, else one that there is."""
    return f"the name of a node, such as {nearest(pattern, tuple(names)) or names[0]}"
