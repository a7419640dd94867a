"""What changed between two artifacts: the answer of `aotc diff`."""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from aotc.base.records import record
from aotc.spec.answers import SameCalls
from aotc.spec.codec import Json
from aotc.spec.reports import Refusal

Area = Literal[
    "source",
    "toolchain",
    "profile",
    "variants",
    "passes",
    "placement",
    "shapes",
    "precision",
    "exactness",
    "answers",
    "memory",
    "size",
    "weights",
    "requirements",
    "trust",
    "contents",
]
AREAS: Final[tuple[Area, ...]] = get_args(Area)
# Areas of which one number says how much: B's divided by A's.
MEASURED: Final[tuple[Area, ...]] = ("exactness", "memory", "size")


@record
class ComparedArtifact:
    """One of the two artifacts or models, as it describes itself."""

    kind: Literal["artifact", "model"] = "artifact"
    path: str
    name: str
    artifact_id: Annotated[str, "sha256 of aotc.json; empty for a model"]
    manifest: Annotated[str, "schema of its manifest; empty for a model"]
    payload_bytes: Annotated[int, "of a model, of its file and its external data"]
    sha256: Annotated[str, "of a model's file; empty for an artifact"] = ""
    built_at: Annotated[str, "UTC, ISO 8601; empty without evidence"] = ""


@record
class Change:
    """One value that differs; null where an artifact has none."""

    subject: Annotated[str, "variant, file or tensor; empty: the artifact"] = ""
    what: Annotated[str, "path of the value, as in the manifest"]
    a: Json = None
    b: Json = None
    ratio: Annotated[float | None, "b / a, if both are positive numbers"] = None


@record
class AreaDiff:
    """Everything that differs in one area."""

    area: Area
    status: Literal["same", "changed", "not-compared"]
    reason: Annotated[str, "why it was not compared, or only in part"] = ""
    ratio: Annotated[
        float | None,
        "b / a. size: of the payload; memory: of the plan that grew most; exactness: of the error "
        "that grew most",
    ] = None
    changes: tuple[Change, ...] = ()


@record
class VariantPair:
    """Two variants that are compared with each other."""

    a: Annotated[str, "name in A; empty: B alone has it"] = ""
    b: Annotated[str, "name in B; empty: A alone has it"] = ""
    matched_by: Literal["name", "providers", "buckets", "alone", ""] = ""

    @property
    def label(self) -> str:
        """How the pair is named in a report."""
        return self.a if self.a == self.b else f"{self.a} -> {self.b}"


@record
class NodeChange:
    """One node of both artifacts, or of one; fields of the artifact that lacks it are empty."""

    a: Annotated[str, "name in A"] = ""
    b: Annotated[str, "name in B"] = ""
    op_a: str = ""
    op_b: str = ""
    provider_a: str = ""
    provider_b: str = ""
    attributes: Annotated[tuple[str, ...], "of `altered`: attributes with other values"] = ()


@record
class NodesDiff:
    """The nodes of one pair of variants.

    Nodes are matched by name, then by operator and neighbours.  Nodes that are in none of the lists
    have the same name, operator and provider in both.
    """

    variant: Annotated[str, "label of the pair"]
    nodes_a: int
    nodes_b: int
    matched: int
    by_structure: Annotated[bool, "false: the graphs were not read, so only names were matched"]
    moved: Annotated[tuple[NodeChange, ...], "another provider runs it"] = ()
    added: tuple[NodeChange, ...] = ()
    removed: tuple[NodeChange, ...] = ()
    renamed: tuple[NodeChange, ...] = ()
    replaced: Annotated[tuple[NodeChange, ...], "the same name, with another operator"] = ()
    altered: Annotated[tuple[NodeChange, ...], "the same operator, with other attributes"] = ()


@record
class TensorChange:
    """One weight that differs."""

    a: Annotated[str, "name in A; empty: it is new"] = ""
    b: Annotated[str, "name in B; empty: it is gone"] = ""
    dtype_a: str = ""
    dtype_b: str = ""
    shape_a: tuple[int, ...] | None = None
    shape_b: tuple[int, ...] | None = None
    max_abs: Annotated[
        float | None,
        "max |b - a|, if both hold floating-point numbers in one shape; the largest float if a "
        "number is finite in one alone",
    ] = None
    max_rel: Annotated[float | None, "max |b - a| / max |a|"] = None


@record
class WeightsDiff:
    """The weights of variants that hold the same ones."""

    variants: Annotated[tuple[str, ...], "labels of the pairs"]
    equal: Annotated[int, "tensors with the same name, type, shape and bytes"]
    renamed: Annotated[int, "tensors with other names, and the same type, shape and bytes"] = 0
    changed: Annotated[
        tuple[TensorChange, ...],
        "of one name, or one made of the other, or of one shape and read by the same node",
    ] = ()
    added: tuple[TensorChange, ...] = ()
    removed: tuple[TensorChange, ...] = ()


@record
class MeasuredRow:
    """A measurement of both builds: shown, and never a difference by itself."""

    variant: str
    what: Annotated[str, "load, first run, run of a fixture, or peak memory"]
    unit: Literal["seconds", "bytes"]
    a: float | None = None
    b: float | None = None
    ratio: float | None = None
    spread_a: Annotated[
        float | None, "of a run, the distance of the quartiles by the median; None: not known"
    ] = None
    spread_b: float | None = None


@record
class AllowedDiff:
    """An area that must not differ (`--fail-on`), or not by more than a ratio."""

    area: Area
    max_ratio: Annotated[float | None, "greatest b / a; None: nothing may differ"] = None


@record
class DiffReport:
    """`aotc diff --json`: what changed from A to B, artifacts or models; nothing is verified."""

    schema: Literal["aotc.diff/1"] = "aotc.diff/1"
    status: Literal["UNVERIFIED"] = "UNVERIFIED"
    a: ComparedArtifact
    b: ComparedArtifact
    same_id: Annotated[
        bool,
        "both manifests have the same bytes, so they list the same payload; of two models, both "
        "have the same bytes",
    ]
    built_from: Annotated[
        bool | None,
        "of an artifact and a model: the artifact says that it was built from the very bytes of it",
    ] = None
    areas: tuple[AreaDiff, ...]
    variants: tuple[VariantPair, ...] = ()
    nodes: tuple[NodesDiff, ...] = ()
    weights: tuple[WeightsDiff, ...] = ()
    measured: tuple[MeasuredRow, ...] = ()
    answers: Annotated[SameCalls | None, "null: inputs or outputs differ"] = None
    allowed: Annotated[tuple[AllowedDiff, ...], "what --fail-on named"] = ()
    failed: Annotated[tuple[Refusal, ...], "areas of --fail-on that differ by more"] = ()
    problems: Annotated[tuple[Refusal, ...], "what could not be read"] = ()

    def area(self, name: Area) -> AreaDiff:
        """The differences of one area."""
        return next(each for each in self.areas if each.area == name)
