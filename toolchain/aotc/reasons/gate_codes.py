"""Reasons of gates: how good outputs, and a task, must stay."""

from __future__ import annotations

from typing import Final

from aotc.reasons.reason import FINDING, INPUT, NO, Row

# fmt: off
GATING: Final[tuple[Row, ...]] = (
    ("AOTC-N020", "gate of an output breached", NO,
     "An answer of a variant keeps to the tolerance, or that was not asked, but breaches a limit that the profile "
     "states under gates.outputs. Nothing was built; '--report FILE' holds what was measured.",
     "Build in a higher precision, or keep the nodes that cause the error in float32 (keep_float32). If the error is "
     "accepted, change the limit in the profile."),
    ("AOTC-N021", "gate of an output cannot be judged", NO,
     "A limit under gates.outputs says nothing of this output: the original answers with NaN or infinity alone, with "
     "zeros of which no ratio can be taken, or with rows that are too short to disagree. What was not judged does "
     "not pass.",
     "Give real inputs with --fixtures, or name under gates.outputs only outputs that the limit makes sense for."),
    ("AOTC-N022", "values that no gate judges", FINDING,
     "Some values of the original's answer are NaN or infinite. They must be at the same places in the variant's "
     "answer; the limits of the output's gate are of the other values.",
     "Give real inputs with --fixtures."),
    ("AOTC-N023", "limit below the model's own noise", FINDING,
     "The original model in float32 is itself further from its float64 answers than a tolerance or a limit allows, "
     "so that no variant in float32 can be expected to pass. The message names both.",
     "Raise the limit above the noise, or compare with the original as it is: 'gates: {against: float32}'."),
    ("AOTC-N024", "metric of the task dropped", NO,
     "On the labelled set of gates.task the variant's metric is lower than the original's by more than max_drop. "
     "Nothing was built; '--report FILE' holds what was measured.",
     "Build in a higher precision, keep nodes in float32 (keep_float32), calibrate with more data, or allow a larger "
     "drop."),
    ("AOTC-N025", "metric of the task cannot be judged", NO,
     "The metric of gates.task has no value: every answer is NaN, no class occurs, every label is ignored, or the "
     "function returned no finite number. Or the original's own is 0, so that every variant would pass. What was not "
     "judged does not pass.",
     "Check the labels and the output that gates.task names, with the original model."),
    ("AOTC-N026", "float64 reference is in float32 in part", FINDING,
     "With 'gates: {against: float64}' expected answers are those of the model in float64. ONNX Runtime's CPU has no "
     "float64 kernel for some of its nodes, or they are control flow or quantized; these compute in float32, and "
     "their own error is part of the expected answers.",
     "Nothing to do. Where all nodes are named, the noise that is shown says nothing."),
    ("AOTC-N027", "function of the task failed", INPUT,
     "The function that gates.task names could not be imported, or raised an error. The message is its own, with the "
     "line in its file.",
     "Fix the function. It is called with the output and the labels of the whole set, as numpy arrays, and returns "
     "a number; modules are found beside the profile and in the working directory."),
    ("AOTC-I078", "gate of an unknown output", INPUT,
     "The profile states a gate for an output, or a task of one, that the model does not have.",
     "Name an output that 'aotc inspect MODEL' lists, or '*' for all that are not named."),
    ("AOTC-I079", "labelled set cannot be used", INPUT,
     "The data of gates.task is not there, cannot be read, or does not fit the model's inputs: names, types, shapes "
     "or sizes.",
     "Give a .npz file, or a folder of such, with an array for each input whose first axis counts the samples."),
    ("AOTC-I080", "labels do not match", INPUT,
     "The labels of gates.task are missing, are not as many as the samples, or do not fit the metric: their type, "
     "shape or range.",
     "Give labels along the first axis: integers from 0 to the number of classes - 1, of the output's shape without "
     "its axis of classes; for an output of text, text. Write ignore_label for values that do not count."),
    ("AOTC-I081", "metric does not fit the output", INPUT,
     "The metric of gates.task cannot be computed from the output that it names: of its type, rank or number of "
     "classes.",
     "Name another output or metric, or a function of your own as module:function."),
)
# fmt: on
