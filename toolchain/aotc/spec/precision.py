"""Precision as profiles ask for it: tolerances, gates, quantization, and nodes that are kept."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

from aotc.base.records import field, record, replace
from aotc.spec.codec import Bounds, Pattern, Problem

# How good a variant must stay, beyond the tolerance of its arithmetic: by output, and by task.


# Outputs that are not named themselves.
ANY_OUTPUT = "*"
ComparedWith = Literal["float32", "float64"]

QUANTIZED: Final = frozenset({"int8", "int4", "auto"})


@record
class OutputGate:
    """Limits of one output's error over all elements, each unset unless stated.

    They are judged in addition to the tolerance of the variant's arithmetic, unless
    `instead` is true.
    """

    replaces_tolerance: Annotated[bool, "judge these alone, and not the tolerance under parity"] = (
        False
    )
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
    axis: Annotated[
        int | None, "the axis by whose slices the output is judged; unset: by those of every axis"
    ] = None

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        found = []
        if self.replaces_tolerance and not any(value is not None for _, value in self.limits()):
            found.append(Problem("replaces_tolerance", "nothing would be judged: state a limit"))
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
    data_sha256: Annotated[
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
    branches: Annotated[
        Literal["all"] | None,
        "all: a build fails where a branch of an If, or the body of a loop, was not run by the "
        "proof; unset: that is a finding",
    ] = None

    dims: Annotated[
        Literal["dynamic"] | None,
        "dynamic: a build from a framework's source fails where a dim that was asked to be dynamic "
        "became static, or no dim is free; unset: that is a finding",
    ] = None

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


# How a profile wants a model quantized, and on which data activations are observed.


Form = Literal["auto", "static", "dynamic", "weights", "mixed"]
# What `auto` may stand for.
QuantizedForm = Literal["static", "dynamic", "weights", "mixed"]
Integers = Literal["auto", "int8", "uint8"]
Activations = Literal["auto", "int8", "uint8", "float16", "bfloat16"]
RangeMethod = Literal["auto", "minmax", "entropy", "percentile"]
BlockSize = Literal[16, 32, 64, 128, 256]
# Level 1 of ONNX Runtime is what 0 is on CPUs: the same answers in the same time.
AccuracyLevel = Literal[0, 4]
TableBits = Literal[4, 8]


@record
class BlockSettings:
    """How a trial stores weights alone, as fields of `QuantizationSpec` do."""

    block_size: BlockSize
    symmetric: bool
    accuracy_level: AccuracyLevel

    def in_words(self) -> str:
        """Such as `128`, `32 with zero points`, `32 in float32`."""
        zeros = "" if self.symmetric else " with zero points"
        return f"{self.block_size}{zeros}{'' if self.accuracy_level else ' in float32'}"


@record
class QuantizationSpec:
    """How `precision: int8` and `int4` change a model; without effect for other precisions."""

    form: Annotated[
        Form,
        "static: ranges of activations are observed on calibration data; dynamic: they are found "
        "in each call; weights: activations stay in floating point; mixed: static where that "
        "gains, else dynamic, and of int4 weights, of the last products in 8 bits.  auto is static "
        "for int8 if there is calibration data, else dynamic; int4 is of weights alone",
    ] = "auto"
    per_channel: Annotated[bool, "a scale for each channel of weights, not one for all"] = True
    activations: Annotated[
        Activations,
        "type of quantized activations; float16 and bfloat16 are of the form weights on CUDA, for "
        "what products multiply and all else that is not quantized, which is float32 there unset",
    ] = "auto"
    weights: Annotated[Integers, "type of quantized weights"] = "auto"
    reduce_range: Annotated[
        bool | None,
        "weights of products in 7 bits: their sums fit into 16 bits on every x86-64 CPU.  Unset: "
        "where the variant must mean the same on CPUs with and without VNNI",
    ] = None
    block_size: Annotated[
        BlockSize | None, "weights that share a scale, in the form weights.  Unset: 32"
    ] = None
    symmetric: Annotated[
        bool | None,
        "blocks of weights without zero points, in the form weights; with them, int4 is a little "
        "more exact and a fortieth larger.  Unset: true",
    ] = None
    accuracy_level: Annotated[
        AccuracyLevel | None,
        "what products multiply in the form weights, as ONNX Runtime numbers it.  4: integers of 8 "
        "bits, for which activations are quantized in each call; 0: float32.  Unset: 4 on the CPU "
        "provider, where its answers are exact enough, else 0.  CUDA takes no account of it",
    ] = None
    table_bits: Annotated[
        TableBits | None,
        "bits of tables of embeddings in the form weights.  Unset: those of products on the CPU "
        "provider, where that is exact enough, else 8, as always on other providers",
    ] = None
    operators: Annotated[
        tuple[str, ...], "operators that are quantized; none: all that gain by it"
    ] = ()


_OF_BLOCKS: Final = ("block_size", "symmetric", "accuracy_level", "table_bits")


@record
class CalibrationSpec:
    """Data on which activations are observed, and how their ranges follow from it."""

    data: Annotated[
        str,
        "path of a .npz file, or of a folder of such or of ONNX test data; relative to "
        "the profile's file.  Empty: that of --calibration, else of --fixtures",
    ] = ""
    method: Annotated[
        RangeMethod,
        "how ranges follow from the values.  auto: from the smallest to the largest, but for "
        "values with outliers where cutting these off is more exact; minmax never cuts off",
    ] = "auto"
    percentile: Annotated[float, Bounds(50, 100), "of the values, with method percentile"] = 99.99
    max_samples: Annotated[int, Bounds(1, 1_000_000), "samples that are used, the first ones"] = 512


# What manifests of earlier releases state of what was not stated.
_FORMER: Final[Mapping[str, int]] = {"block_size": 32}


def _states_nothing(spec: QuantizationSpec) -> bool:
    unset = spec if spec.block_size != _FORMER["block_size"] else replace(spec, block_size=None)
    return unset == QuantizationSpec()


def quantization_problems(
    shared: QuantizationSpec,
    variants: Sequence[tuple[WantedPrecision, QuantizationSpec | None]],
    tuned: Collection[Precision],
) -> list[Problem]:
    """Statements of a profile that have no effect, and forms that int4 does not have.

    `variants` are their precisions and what they state themselves, `tuned` the precisions that
    tuning may choose.
    """
    found: dict[Problem, None] = {}
    possible = {*(precision for precision, _ in variants), *tuned}
    if not _states_nothing(shared) and not possible & QUANTIZED:
        text = "has no effect: no variant has the precision int8, int4 or auto"
        found[Problem("quantization", text)] = None
    for index, (precision, own) in enumerate(variants):
        where = "quantization" if own is None else f"variants[{index}].quantization"
        form = (own or shared).form
        if precision == "int4" and form in ("static", "dynamic"):
            text = f"int4 is of weights alone: {form} is a form of int8"
            found[Problem(f"{where}.form", text)] = None
        elif form in ("static", "dynamic") and "int4" not in tuned:
            for name in _OF_BLOCKS:
                if getattr(own or shared, name) not in (None, _FORMER.get(name)):
                    text = f"has no effect: it is of the form weights, not of {form}"
                    found[Problem(f"{where}.{name}", text)] = None
        if own is not None and not _states_nothing(own) and not {precision, *tuned} & QUANTIZED:
            found[Problem(where, f"has no effect: its precision is {precision}")] = None
    return list(found)


@record
class BlameSpec:
    """The search for the nodes to blame, which a build does only where it fails otherwise."""

    trials: Annotated[
        int,
        Bounds(0, 1000),
        "sessions that searches for the smallest set of nodes to keep in float32 may make and run, "
        "together for a variant, or for one candidate of its tuning; 0: it is not searched",
    ] = 15


@record
class RepeatSpec:
    """Repeated calls of every variant that the build host runs; AOTC-N040 tells of other bytes."""

    runs: Annotated[
        int, Bounds(0, 10_000), "calls of one fixture after the first; 0: none are repeated"
    ] = 3


# Parts of a profile that artifacts and reports repeat, and read without the profile's records.


Share = Annotated[float, Bounds(0, 1)]

# The precision that a variant computes in; `keep` is that of the model's own types.
Precision = Literal["keep", "tf32", "float16", "bfloat16", "int8", "int4"]
# What a profile may ask for; `auto` is the quickest one that passes all gates.
WantedPrecision = Literal["keep", "tf32", "float16", "bfloat16", "int8", "int4", "auto"]
# What a lower precision is for.
Goal = Literal["speed", "size", "memory"]
# What other tools call them; manifests hold the names above.
PRECISION_ALIASES: Final[Mapping[str, Precision]] = {"fp16": "float16", "bf16": "bfloat16"}
_OTHER_WORDS: Final[Mapping[WantedPrecision, str]] = {
    "keep": "fp32 float32 f32 float full single",
    "float16": "float16 fp16 f16 half",
    "bfloat16": "bfloat16 bf16",
    "int8": "int8 i8 uint8 quantize quantised quantized",
    "int4": "int4 i4 uint4",
    "tf32": "tf32",
    "auto": "best",
}
# Classes of arithmetic, each of which has a tolerance in `ParitySpec`.
Arithmetic = Literal["float32", "float16", "quantized", "tf32", "bfloat16", "int8", "int4"]
Isa = Literal["baseline", "host"]
Prepack = Literal["at-load", "saved", "off"]
Level = Literal["auto", "basic", "extended"]
Name = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")]


@record
class Tolerance:
    """|actual - reference| <= atol + rtol * max|reference| over an output; cosine >= min_cosine.

    And of every slice of an output, judged by its own scale, an error within `max_slice`.
    """

    atol: Annotated[float, Bounds(0)]
    rtol: Annotated[float, Bounds(0)]
    min_cosine: Annotated[float, Bounds(-1, 1)] = 0.0
    max_slice: Annotated[
        Annotated[float, Bounds(0)] | None,
        "root mean square of the error of a slice (an index of an axis, or a part that the graph "
        "joins) / its scale; unset: rtol, and at least 0.01",
    ] = None
    max_differing: Annotated[
        Share | None,
        "share of whole numbers and truth values that may differ, if floats decided them narrowly; "
        "unset: 0.001 in float32, 0.01 in float16 and tf32, 0.02 in bfloat16, 0.05 in quantized, "
        "0.1 in int8, 0.15 in int4",
    ] = None


# How floats decide the values of an output: an index of the best (`choice`) or of each of the best
# in their order (`ranking`), a rounding, a comparison (`threshold`), the places where one is true,
# or a `count` of them.
# `other`: in a way that cannot be read, as inside of control flow.
Decided = Literal["choice", "ranking", "rounded", "threshold", "places", "count", "other"]

_SHARES: Final[Mapping[str, float]] = {
    **{"float32": 0.001, "float16": 0.01, "tf32": 0.01, "bfloat16": 0.02},
    **{"quantized": 0.05, "int8": 0.1, "int4": 0.15},
}


@record
class DecidedOutput:
    """What an output of whole numbers or truth values is, which floats decide in the model."""

    kind: Decided
    axis: Annotated[int, Bounds(0, 1), "of places: the axis along which they are listed"] = 0
    max_differing: Annotated[Share, "share of its values that may differ"] = 0.0


def allowed_share(arithmetic: Arithmetic, tolerance: Tolerance) -> float:
    """The share of decided values that may differ, stated or by arithmetic."""
    stated = tolerance.max_differing
    return _SHARES[arithmetic] if stated is None else stated


@record
class Traffic:
    """The requests that the shapes were learned from, as `aotc profile learn` writes them."""

    requests: Annotated[int, Bounds(1), "requests in the file"]
    sha256: Annotated[str, Pattern(r"[0-9a-f]{64}"), "of the file"]
    coverage: Annotated[Share, "of requests that the profile accepts"]
    padding: Annotated[float, Bounds(0), "elements added, for each element of the requests"]
    plan: Annotated[str, "what was chosen, in words"] = ""


@record
class ParitySpec:
    """How exact a variant must be, by its class of arithmetic, and how many shapes are compared."""

    float32: Tolerance = Tolerance(atol=1e-5, rtol=1e-3, min_cosine=0.9999)
    float16: Tolerance = Tolerance(atol=1e-3, rtol=2e-2, min_cosine=0.999)
    quantized: Annotated[Tolerance, "models with quantized operators"] = Tolerance(
        atol=1e-2, rtol=0.1, min_cosine=0.99, max_slice=0.2
    )
    tf32: Annotated[Tolerance, "float32 models that compute in TF32"] = Tolerance(
        atol=1e-3, rtol=2e-2, min_cosine=0.999
    )
    bfloat16: Annotated[Tolerance, "models that compute in bfloat16"] = Tolerance(
        atol=1e-2, rtol=5e-2, min_cosine=0.995, max_slice=0.04
    )
    int8: Annotated[Tolerance, "models that aotc quantizes to 8 bits"] = Tolerance(
        atol=1e-2, rtol=0.1, min_cosine=0.99, max_slice=0.12
    )
    int4: Annotated[Tolerance, "models that aotc quantizes to 4 bits"] = Tolerance(
        atol=2e-2, rtol=0.2, min_cosine=0.98, max_slice=0.25
    )
    random_shapes: Annotated[int, Bounds(0, 64), "shapes drawn at random between the corners"] = 2
    seed: Annotated[int, Bounds(0, 2**32 - 1), "seed of generated fixtures"] = 1729


def kept_line(names: Iterable[str]) -> str:
    """`keep_float32: [...]` in YAML, in one line and in ASCII, whatever the names contain."""
    quoted = (f'"{"".join(map(_escaped, name))}"' for name in names)
    return f"keep_float32: [{', '.join(quoted)}]"


def _escaped(character: str) -> str:
    """A character of a double-quoted scalar (YAML 1.1, section 5.7)."""
    if character in '"\\':
        return f"\\{character}"
    if " " <= character <= "~":
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\U{number:08x}"


def matching_names(names: Collection[str], patterns: Iterable[str]) -> frozenset[str]:
    """Those of `names` that one of `patterns` matches; only `*` is special, for any characters."""
    found: set[str] = set()
    known = frozenset(names)
    for pattern in patterns:
        if pattern in known:
            found.add(pattern)
            continue
        if "*" in pattern:
            parts = map(re.escape, pattern.split("*"))
            matched = re.compile(".*".join(parts), re.DOTALL).fullmatch
            found.update(name for name in known if matched(name))
    return frozenset(found)


def unmatched(names: Collection[str], patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns that match none of `names`, in order."""
    return tuple(pattern for pattern in patterns if not matching_names(names, (pattern,)))


def precision_meant(word: str) -> str:
    """The precision that a word of other tools, in whichever case, is for; empty for no such."""
    bare = re.sub("[-_]", "", word).lower()
    return next((name for name, words in _OTHER_WORDS.items() if bare in words.split()), "")
