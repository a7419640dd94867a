"""How good a variant must stay, beyond the tolerance of its arithmetic: by output, and by task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds, Pattern, Problem
from aotc.contract.profile_terms import Share
from aotc.records import field, record

# Outputs that are not named themselves.
ANY_OUTPUT = "*"
ComparedWith = Literal["float32", "float64"]


@record
class OutputGate:
    """Limits of one output's error over all elements, each unset unless stated.

    They are judged in addition to the tolerance of the variant's arithmetic, unless
    `instead` is true.
    """

    instead: Annotated[bool, "judge these alone, and not the tolerance under parity"] = False
    max_abs: Annotated[Annotated[float, Bounds(0)] | None, "max |actual - reference|"] = None
    max_rel: Annotated[
        Annotated[float, Bounds(0)] | None, "max |actual - reference| / max |reference|"
    ] = None
    min_cosine: Annotated[Annotated[float, Bounds(-1, 1)] | None, "of the flattened tensors"] = None
    min_sqnr_db: Annotated[
        float | None, "10 log10(sum reference^2 / sum (actual - reference)^2), in decibels"
    ] = None
    top_k: Annotated[
        Annotated[int, Bounds(1, 1000)], "k of min_agreement; 1 compares the largest alone"
    ] = 1
    min_agreement: Annotated[
        Share | None,
        "share of rows along the last axis whose largest reference value is among the k largest "
        "of the variant; of integers, truth values and text: share of equal values",
    ] = None

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        found = []
        if self.instead and not any(value is not None for _, value in self.limits()):
            found.append(Problem("instead", "nothing would be judged: state a limit"))
        if self.top_k != 1 and self.min_agreement is None:
            found.append(Problem("top_k", "has no effect without min_agreement"))
        return found

    def limits(self) -> tuple[tuple[str, float | None], ...]:
        """All limits by their names, None where one is not stated."""
        return (
            ("max_abs", self.max_abs),
            ("max_rel", self.max_rel),
            ("min_cosine", self.min_cosine),
            ("min_sqnr_db", self.min_sqnr_db),
            ("min_agreement", self.min_agreement),
        )


@record
class TaskGate:
    """A labelled set, a metric, and how much worse than the original a variant may be."""

    data: Annotated[
        str,
        "path of a .npz file with inputs and labels along their first axis, or of a folder of "
        "such; relative to the profile's file",
    ]
    labels: Annotated[str, "key of the labels in each file"] = "label"
    output: Annotated[str, "output that is judged; empty: the first"] = ""
    metric: Annotated[
        str,
        Pattern(r"accuracy|top5|mean_iou|[A-Za-z_][\w.]*:[A-Za-z_]\w*"),
        "accuracy, top5, mean_iou, or module:function, called with the output and the labels of "
        "the whole set; more is better",
    ] = "accuracy"
    ignore_label: Annotated[
        int | None, "label that does not count, such as 255 for pixels of no class"
    ] = None
    max_drop: Annotated[float, Bounds(0), "of the metric, against the original model"] = 0.0

    @property
    def runs_code(self) -> bool:
        """Whether the metric is a function of the user's."""
        return ":" in self.metric

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        if self.runs_code and self.ignore_label is not None:
            text = "has no effect: a function is called with all labels"
            return [Problem("ignore_label", text)]
        return []


@record
class TaskVerdict:
    """What a variant was judged by on a labelled set; the evidence holds what was measured."""

    metric: str
    output: str
    samples: int
    max_drop: float
    data: Annotated[
        str,
        "sha256 of the file of the labelled set; of a folder, that of each .npz file's name, a "
        "zero byte and its sha256 in binary, in the order of names",
    ]


@record
class GateSpec:
    """How good every variant must stay."""

    against: Annotated[
        ComparedWith,
        "what answers are compared with: the original model as it is, or computed in float64",
    ] = "float32"
    noise: Annotated[
        bool, "measure the error of the original in float32 too; against: float64 always does"
    ] = False
    outputs: Annotated[Mapping[str, OutputGate], "by output; '*' for those not named"] = field(
        default_factory=dict
    )
    task: TaskGate | None = None

    @property
    def measures_noise(self) -> bool:
        """Whether the original is computed in float64."""
        return self.noise or self.against == "float64"

    def of_output(self, name: str) -> OutputGate | None:
        """The gate of one output, if there is one."""
        return self.outputs.get(self.key_of(name))

    def key_of(self, name: str) -> str:
        """The key under which the gate of one output stands, if there is one."""
        return name if name in self.outputs else ANY_OUTPUT
