"""What `aotc debug parity` shows: outputs, the first and the worst node, and what fails alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aotc.cli.fixture_words import fixture_in_words
from aotc.cli.render import (
    Cell,
    count,
    facts,
    findings_view,
    heading,
    listed,
    section,
    short,
)
from aotc.cli.result_styles import failed, passed
from aotc.cli.views.refusals_section import refusals_section
from aotc.contract.precision.quality_gates import OutputGate
from aotc.contract.results.nodes.node_errors import NodeError, NodeErrors
from aotc.contract.results.parity_debug import FailingSubmodel, ParityDebugReport

if TYPE_CHECKING:
    from rich.console import RenderableType

# `--json` has all.
_WORST: Final = 10
_HELD: Final = "weights of the model and values of the inputs: look before you publish them"
# What stands for an error that cannot be measured.
_LARGEST: Final = 1e300


def parity_view(report: ParityDebugReport) -> list[RenderableType]:
    """Outputs and nodes of one variant against its model."""
    status = "out of tolerance" if report.failed else "within tolerance"
    tolerance = report.tolerance
    inputs = fixture_in_words(report.fixture)
    if len(report.compared) > 1:
        inputs += f", the worst of {len(report.compared)}"
    errors = report.errors
    judged = {error.output for error in report.outputs}
    parts = [
        heading(
            f"{report.artifact} and {report.model}",
            f"{status}; nothing here was verified",
            "red" if report.failed else "green",
        ),
        facts(
            [
                ("variant", f"{report.variant}, id {short(report.artifact_id)}"),
                ("inputs", inputs),
                (
                    "tolerance",
                    f"{tolerance.atol:g} + {tolerance.rtol:g} * max|reference|, "
                    f"cosine {tolerance.min_cosine:g}",
                ),
                *(
                    (f"gate of {name}", _gate(gate))
                    for name, gate in report.gates.items()
                    if name in judged
                ),
            ]
        ),
        section(
            "outputs",
            ("", "max abs", "max rel", "1 - cosine"),
            [
                (
                    error.output,
                    passed("passed") if error.passed else failed(error.reason),
                    _number(error.max_abs),
                    _number(error.max_rel),
                    "-" if error.cosine is None else _number(1 - error.cosine),
                )
                for error in report.outputs
            ],
        ),
        node_facts(errors),
    ]
    parts += worst_nodes(errors)
    if report.submodel is not None:
        parts.append(_submodel(report.submodel))
    parts += findings_view(report.findings)
    if report.failed:
        parts.append(refusals_section("failed", report.failed))
    return parts


def _gate(gate: OutputGate) -> str:
    stated = [f"{name} {limit:g}" for name, limit in gate.limits() if limit is not None]
    return ", ".join(stated) + (", instead of the tolerance" if gate.instead else "")


def node_facts(errors: NodeErrors) -> RenderableType:
    """How much was compared, and the first and the worst node."""
    compared = f"{count(len(errors.nodes), 'value')} inside, {errors.uncompared} fused away or "
    return facts(
        [
            ("compared", compared + "not seen"),
            ("first node", _node(errors, errors.first) or "none is out of tolerance"),
            ("worst node", _node(errors, errors.worst) or "none adds an error"),
        ]
    )


def worst_nodes(errors: NodeErrors) -> list[RenderableType]:
    """The nodes that add most to the error of what they read."""
    ranked = sorted(errors.nodes, key=_added, reverse=True)
    rows = [_row(error) for error in ranked[:_WORST] if _added(error) > 0]
    columns = ("", "stands for", "", "max rel", "SQNR", "adds")
    return [section("worst nodes", columns, rows)] if rows else []


def _added(error: NodeError) -> float:
    if error.added is None:
        return 0.0 if error.passed else float("inf")
    return error.added


def _row(error: NodeError) -> tuple[Cell, ...]:
    others = [name for name in error.covers if name != error.node]
    return (
        error.node,
        error.op,
        listed(others) if others else "",
        passed("within") if error.passed else failed("out"),
        _number(error.max_rel),
        "-" if error.sqnr_db is None else f"{error.sqnr_db:.1f} dB",
        "-" if error.added is None else f"{error.added:.2g}",
    )


def _node(errors: NodeErrors, name: str) -> str:
    found = errors.of_node(name)
    if found is None:
        return ""
    by = f", by {found.variant_node}" if found.variant_node not in ("", name) else ""
    return f"{name} ({found.op}){by}"


def _number(value: float) -> str:
    return "-" if value > _LARGEST else f"{value:.2g}"


def _submodel(found: FailingSubmodel) -> RenderableType:
    title = "smallest range that fails alone" if found.accumulated else "smallest part that fails"
    return section(
        title,
        ("",),
        [
            ("nodes of the model", listed(found.nodes)),
            (
                "nodes of the variant",
                listed(
                    [f"{n} ({op})" for n, op in zip(found.variant_nodes, found.ops, strict=True)]
                ),
            ),
            ("fed with", listed(found.inputs)),
            ("error", found.error.reason),
            ("parts run alone", str(found.trials)),
            ("written", ", ".join(found.files) or "nothing: -o FOLDER does"),
            *([("which hold", _HELD)] if found.files else ()),
        ],
    )
