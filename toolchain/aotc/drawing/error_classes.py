"""Errors of nodes as colours and words of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from aotc.contract.results.nodes.node_errors import NodeError, NodeErrors
from aotc.drawing.graph_reading import DrawnGraph
from aotc.drawing.markup import tag

# From the least to the largest error: the class, its lower bound in decibels, and its words.
CLASSES: Final = (
    ("e0", 120.0, "exact to rounding"),
    ("e1", 60.0, "60 dB and more"),
    ("e2", 30.0, "30 to 60 dB"),
    ("e3", -1e9, "below 30 dB"),
)
OUT: Final = ("e4", "out of tolerance")
# What stands for an error that cannot be measured.
_LARGEST: Final = 1e300


def error_class(error: NodeError) -> str:
    """The class of a node: by its ratio of signal to error, or that of nodes out of tolerance."""
    if not error.passed:
        return OUT[0]
    if error.max_abs == 0.0 or error.sqnr_db is None:
        return CLASSES[0][0]
    return next(name for name, bound, _ in CLASSES if error.sqnr_db >= bound)


def error_text(error: NodeError) -> str:
    """The error of a node in words."""
    if error.max_abs == 0.0 and error.passed:
        return "no error"
    if error.max_abs > _LARGEST:
        return f"error: {error.reason}"
    ratio = "" if error.sqnr_db is None else f", {error.sqnr_db:.0f} dB"
    out = "" if error.passed else ", out of tolerance"
    return f"relative error {error.max_rel:.2g}{ratio}{out}"


def errors_by_index(graph: DrawnGraph, errors: NodeErrors) -> dict[int, NodeError]:
    """The errors of drawn nodes, by index: of what they make, or of what they are part of.

    Where ONNX Runtime fuses at load, several drawn nodes have the error of one value.
    """
    values = {error.value: error for error in errors.nodes}
    names = {error.variant_node: error for error in errors.nodes}
    covered: dict[str, NodeError] = {}
    for error in errors.nodes:
        for name in error.covers:
            covered.setdefault(name, error)
    found: dict[int, NodeError] = {}
    for index, node in enumerate(graph.nodes):
        own = next((values[value] for value in node.outputs if value in values), None)
        own = own or names.get(node.name) or covered.get(node.name)
        if own is not None:
            found[index] = own
    return found


def error_key(found: Mapping[int, NodeError]) -> Element:
    """The switch that colours the graph by error, and what the colours mean."""
    present = {error_class(error) for error in found.values()}
    words = [*((name, text) for name, _, text in CLASSES), OUT]
    return tag(
        "p",
        tag(
            "label",
            tag("input", type="checkbox", class_="by-error", checked=""),
            " colour by error: ",
        ),
        *(
            tag(
                "span",
                tag("span", class_=f"swatch {name}s", aria_hidden="true"),
                text,
                class_="key",
            )
            for name, text in words
            if name in present
        ),
        tag("span", "grey: not compared", class_="key quiet"),
        class_="legend",
    )
