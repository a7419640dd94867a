"""Whether ONNX Runtime can capture a variant's runs as CUDA graphs, and the option that allows it.

ONNX Runtime refuses a session with that option if a node with a subgraph remains, or if values are
copied between the GPU and the CPU.  Nodes on the CPU that compute shapes do no harm: their values
are read there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnx

from aotc.contract.cuda_options import SIZED_BY_VALUES
from aotc.contract.finding import Finding
from aotc.contract.known_providers import CAPTURING, GRAPH_OPTION
from aotc.contract.manifest.variant import SessionSpec
from aotc.errors import AotcError, Place
from aotc.graphs.shape_nodes import shape_nodes
from aotc.passes.base import walk_nodes
from aotc.records import replace
from aotc.stages.variant_plan import VariantPlan

_CAPTURING: Final = CAPTURING.ort_name
_MAX_NAMED: Final = 5


def session_with_graphs(
    session: SessionSpec,
    plan: VariantPlan,
    model: onnx.ModelProto,
    providers: Mapping[str, str],
) -> tuple[SessionSpec, tuple[Finding, ...]]:
    """`session` with CUDA graphs if `plan` wants them; `providers` are those of the nodes by name.

    If `model` cannot be captured, the session stays as it is, and a finding AOTC-P014 says why; or
    that is raised, if the plan says so.
    """
    if not plan.wants_graphs:
        return session, ()
    obstacles = uncapturable(model, providers)
    if not obstacles:
        options = {
            **session.provider_options,
            _CAPTURING: {**session.provider_options.get(_CAPTURING, {}), GRAPH_OPTION: "1"},
        }
        return replace(session, provider_options=options), ()
    where, nodes = f"variant {plan.name}", _listed(obstacles)
    if plan.cuda.graphs.refused == "fail":
        raise not_capturable(where, nodes)
    return session, (without_graphs(where, nodes),)


def not_capturable(where: str, why: str, place: Place | None = None) -> AotcError:
    """AOTC-P014, of a variant that is refused for it."""
    return AotcError(
        "AOTC-P014",
        "the graph cannot be captured as CUDA graphs",
        where=where,
        expected="every node on CUDA, except those that compute shapes, and no control flow",
        found=why,
        place=place,
    )


def without_graphs(where: str, why: str) -> Finding:
    """AOTC-P014, of a variant that runs without graphs."""
    what = f"no CUDA graphs are captured: {why}"
    return Finding(code="AOTC-P014", what=what[:500], where=where)


def uncapturable(model: onnx.ModelProto, providers: Mapping[str, str]) -> dict[str, str]:
    """The nodes that prevent a capture, each with the reason."""
    shapes = shape_nodes(model)
    found = {}
    for node in walk_nodes(model):
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            found[node.name] = f"{node.op_type} is control flow"
        elif not node.domain and node.op_type in SIZED_BY_VALUES:
            found[node.name] = f"the size of {node.op_type} depends on values"
        elif node.name not in shapes and (provider := providers.get(node.name, "")) != _CAPTURING:
            found[node.name] = f"{node.op_type} is on {provider or 'no provider'}"
    return found


def _listed(obstacles: Mapping[str, str]) -> str:
    named = [f"{name} ({why})" for name, why in list(obstacles.items())[:_MAX_NAMED]]
    more = len(obstacles) - len(named)
    return ", ".join(named) + (f", and {more} more" if more else "")
