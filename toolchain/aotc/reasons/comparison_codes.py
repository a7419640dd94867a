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
    ("AOTC-I083", "not the model that the artifact was built from", INPUT,
     "Values inside of an artifact are compared with those of its own model, and this is another file, or its external "
     "data is.",
     "Give the model that 'aotc inspect' states as the source, by its sha256."),
    ("AOTC-I084", "no inputs to compare on", INPUT,
     "The artifact holds no fixture, and none was given.",
     "Give inputs with --fixtures, or build with a larger fixtures.max_bytes."),
    ("AOTC-I085", "the variant takes none of the inputs", INPUT,
     "None of the fixtures has sizes that the variant accepts, or that may be padded to its buckets.",
     "Give inputs of its sizes with --fixtures, or name another variant with --variant."),
    ("AOTC-N037", "out of tolerance on these inputs", NO,
     "An output of a variant differs from the model's by more than the tolerance in the manifest, or breaches its gate "
     "there (gates.outputs of the profile), on this host and on these inputs. The first and the worst node are shown.",
     "Keep the nodes that are shown in float32, or lower 'optimization' in the profile. With -o FOLDER the smallest "
     "failing part is written: report it to ONNX Runtime if it is a single kernel."),
    ("AOTC-N038", "errors add up", FINDING,
     "An output is out of tolerance, and no single node is where it is fed the model's own values: each adds a little.",
     "Look at the nodes that add most. A tolerance for the variant's arithmetic may be too narrow for so deep a model."),
    ("AOTC-N039", "reading inner values changed the answers", FINDING,
     "A value that is read from inside of a graph is not fused away and not computed in place. With such values as "
     "outputs the variant gave other bits than without, so errors by node are those of another form of the graph.",
     "Take the errors by node as a hint. The errors of outputs are those of the variant as it is."),
    ("AOTC-I062", "graph or weights cannot be compared", FINDING,
     "A model of an artifact, or a file of its weights, cannot be read as the manifest describes it. Everything else "
     "is compared.",
     "Check the artifact with 'aotc verify'."),
)
# fmt: on
