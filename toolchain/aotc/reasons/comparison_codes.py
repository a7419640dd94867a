"""Reasons of comparing artifacts."""

from __future__ import annotations

from typing import Final

from aotc.reasons.reason import FINDING, INPUT, NO, USAGE, Row

# fmt: off
COMPARING: Final[tuple[Row, ...]] = (
    ("AOTC-I059", "not an artifact that can be compared", INPUT,
     "'aotc diff' compares two artifacts. One of the two paths is an ONNX model, or another file.",
     "Build the model first, and compare what was built; 'aotc inspect MODEL' describes a model."),
    ("AOTC-I060", "unknown area of a comparison", USAGE,
     "--fail-on names an area that is not compared, or gives a ratio that is none.",
     "Name areas that 'aotc diff --help' lists; exactness, memory and size may have a ratio, such as size:1.05."),
    ("AOTC-I061", "artifacts differ", NO,
     "The two artifacts differ in an area that --fail-on names, or by more than its ratio. An area that could not be "
     "compared fails too.",
     "Look at the differences that are listed. If they are meant, leave the area out or raise its ratio."),
    ("AOTC-I062", "graph or weights cannot be compared", FINDING,
     "A model of an artifact, or a file of its weights, cannot be read as the manifest describes it. Everything else "
     "is compared.",
     "Check the artifact with 'aotc verify'."),
)
# fmt: on
