"""The manifest `payload/aotc.json`: everything that the artifact promises.

It holds no time, host name, user name, absolute path or measurement, so that equal inputs give
equal bytes; measurements are in the evidence attestation (`spec.evidence`).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal

from aotc.base.records import field, record, replace
from aotc.base.text import listed
from aotc.spec.allowed_values import STATABLE, AllowedValues
from aotc.spec.codec import Bounds, Json, Pattern, Problem
from aotc.spec.framework_capture import FrameworkCapture
from aotc.spec.payload import (
    CHUNK_BYTES,
    NAME,
    FileEntry,
    Finding,
    Fixture,
    PlainName,
    Sha256,
    Value,
    ValueShapes,
    fixture_problems,
    value_problems,
)
from aotc.spec.providers import CAPTURING, GRAPH_OPTION
from aotc.spec.shapes import Crop, Domain, Padding
from aotc.spec.target import CustomOps
from aotc.spec.variant import DroppedVariant, Toolchain, Variant

_CAPTURING: Final = CAPTURING.ort_name
_MAX_SIZE = 2**31
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "bool": 1}
_LARGEST = {"float16": 65504.0, "float32": 3.4028234663852886e38}

LEVEL_OPTION = "session.graph_optimization_level"
WEIGHTS_OPTION = "session.model_external_initializers_file_folder_path"
# Our names of the optimization levels, and those of ONNX Runtime's model packages.
_LEVELS = {
    "disable": "disable_all",
    "basic": "enable_basic",
    "extended": "enable_extended",
    "layout": "enable_layout",
    "all": "enable_all",
}


@record
class AcceptedWaiver:
    """A refusal at load that the builder of the artifact accepted."""

    code: Annotated[str, Pattern(r"AOTC-[A-Z]\d{3}")]
    variant: Annotated[str, "variant of the profile; empty: all"] = ""
    reason: str


@record
class Manifest:
    """The content of `aotc.json`."""

    schema: str
    required_features: tuple[str, ...] = ()
    name: Annotated[str, Bounds(1, 255), Pattern(NAME), "name of the model; hosts remember it"]
    source: Capture
    profile: Annotated[Json, "the resolved profile, as written in aotc.profile/1"]
    profile_sha256: Sha256
    target: Annotated[str, "name of the target it was built for"]
    target_sha256: Annotated[
        Sha256, "of the target's OS, architecture, libc and ISA, as canonical JSON"
    ]
    toolchain: Toolchain
    inputs: tuple[Value, ...]
    outputs: Annotated[tuple[Value, ...], Bounds(1)]
    domain: Domain = Domain()
    shapes: Annotated[tuple[ValueShapes, ...], "shapes of the outputs"] = ()
    padding: Padding | None = None
    strict: Annotated[bool, "calls outside probed ranges are refused, too"] = False
    findings: tuple[Finding, ...] = ()
    variants: Annotated[tuple[Variant, ...], Bounds(1)]
    dropped: Annotated[
        tuple[DroppedVariant, ...], "variants that the fallback policy left out"
    ] = ()
    waivers: tuple[AcceptedWaiver, ...] = ()
    fixtures: tuple[Fixture, ...] = ()
    input_ranges: Annotated[
        Mapping[str, AllowedValues],
        "by input, where there are no fixtures: what values it had in the proof at the optimal "
        "sizes, within which runs without inputs draw theirs",
    ] = field(default_factory=dict)
    branches: Annotated[
        tuple[ControlPath, ...], "what of the model's control flow the proof's fixtures ran"
    ] = ()
    random: Annotated[Randomness | None, "unset: the model draws no random numbers"] = None
    merged: Annotated[
        tuple[MergedArtifact, ...],
        "artifacts whose variants it has, by id, where they were built for other targets, by other "
        "versions or by other profiles; none: all were built alike",
    ] = ()
    files: Annotated[tuple[FileEntry, ...], "every payload file except aotc.json, sorted by path"]

    @property
    def custom_ops(self) -> tuple[CustomOps, ...]:
        """The libraries of custom operators that its variants register."""
        every = (each for variant in self.variants for each in variant.requirements.custom_ops)
        return tuple({each.sha256: each for each in every}.values())

    def origins(self, variant: str) -> tuple[MergedArtifact, ...]:
        """The merged artifacts that had a variant, whatever they called it."""
        return tuple(each for each in self.merged if variant in each.variants)

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        found = []
        paths = [entry.path for entry in self.files]
        if paths != sorted(set(paths)):
            found.append(Problem("files", "paths are not sorted and unique"))
        known = set(paths)
        for index, variant in enumerate(self.variants):
            if variant.model not in known:
                found.append(Problem(f"variants[{index}].model", "is not among files"))
            if variant.model not in variant.files or not known.issuperset(variant.files):
                what = "do not list all files of the variant"
                found.append(Problem(f"variants[{index}].files", what))
            parts = variant.partitioning.partitions if variant.partitioning is not None else ()
            if any(part.file is not None and part.file not in variant.files for part in parts):
                what = "names a file that is not listed in files of the variant"
                found.append(Problem(f"variants[{index}].partitioning", what))
        if not isinstance(self.profile, Mapping):
            found.append(Problem("profile", "is not a mapping"))
        found += merged_problems(self.variants, self.merged)
        found += custom_op_problems(self.variants, self.files)
        found += domain_problems(self.domain, self.variants)
        found += bucket_problems(self.domain, self.variants, self.dropped)
        found += capture_problems(self.domain, self.variants)
        found += padding_problems(
            self.padding, self.domain, self.inputs, self.outputs, self.fixtures
        )
        found += value_problems(self.inputs, self.outputs)
        found += range_problems(self.inputs, self.input_ranges)
        found += fixture_problems(self.fixtures, self.inputs, self.outputs, self.files)
        for index, entry in enumerate(self.files):
            wanted = -(-entry.size // CHUNK_BYTES) if entry.chunks else 0
            if entry.chunks and len(entry.chunks) != wanted:
                found.append(Problem(f"files[{index}].chunks", f"expected {wanted} digests"))
        return found


@record
class MergedArtifact:
    """An artifact whose variants were taken into this one, and how it says that it was built."""

    artifact_id: Annotated[Sha256, "sha256 of its aotc.json"]
    target: str
    target_sha256: Sha256
    profile: Annotated[Json, "its profile, with the names that variants have here"]
    toolchain: Toolchain
    variants: Annotated[
        Mapping[PlainName, PlainName], Bounds(1), "what it calls each variant, by the name here"
    ]


def merged_problems(
    variants: Iterable[Variant], merged: Sequence[MergedArtifact]
) -> Iterator[Problem]:
    """Variants that no merged artifact had, and those of merged ones that are not here."""
    names = {variant.name for variant in variants}
    taken = {name for each in merged for name in each.variants}
    for name in sorted(names ^ taken) if merged else ():
        what = "is a variant of no merged artifact" if name in names else "is not a variant"
        yield Problem(f"merged.{name}", what)
    for index, each in enumerate(merged):
        if not isinstance(each.profile, Mapping):
            yield Problem(f"merged[{index}].profile", "is not a mapping")


def range_problems(
    inputs: Iterable[Value], ranges: Mapping[str, AllowedValues]
) -> Iterator[Problem]:
    """Recorded ranges of what is no input, or with values that its type does not have."""
    by_name = {value.name: value for value in inputs}
    for name, seen in ranges.items():
        if name not in by_name:
            yield Problem(f"input_ranges.{name}", "is not an input")
        elif by_name[name].dtype in STATABLE or not all(
            isinstance(end, int | float) for end in seen.ends
        ):
            problems = seen.problems_of(by_name[name].kind, by_name[name].dtype)
            yield from (replace(each, path=f"input_ranges.{name}") for each in problems)


def custom_op_problems(
    variants: Iterable[Variant], files: Sequence[FileEntry]
) -> Iterator[Problem]:
    """Libraries of custom operators that are not the files that they are said to be."""
    entries = {entry.path: entry for entry in files}
    shipped = set()
    for index, variant in enumerate(variants):
        for number, library in enumerate(variant.requirements.custom_ops):
            if library.path is None:
                continue
            where = f"variants[{index}].requirements.custom_ops[{number}]"
            shipped.add(library.path)
            entry = entries.get(library.path)
            if library.path not in variant.files or entry is None or entry.role != "custom-ops":
                yield Problem(where, "is not among the files of the variant, as such a library")
            elif (entry.sha256, entry.size) != (library.sha256, library.size):
                yield Problem(where, "is another file than the one that is listed")
    for index, entry in enumerate(files):
        if entry.role == "custom-ops" and entry.path not in shipped:
            yield Problem(f"files[{index}]", "is a library of operators that no variant registers")


# The source model that was imported, as the manifest describes it.


@record
class ExternalFile:
    """A file of external data of the source model."""

    location: str
    size: int
    sha256: Sha256


@record
class ControlFlow:
    """One control flow node, and its subgraphs with their node counts."""

    node: str
    op_type: str
    subgraphs: Annotated[Mapping[str, int], "number of nodes, by attribute"]


@record
class ControlPath:
    """A branch of an If, or a number of trips of a loop, and whether the proof ran it."""

    node: str
    op_type: str
    path: Annotated[str, "attribute of the branch; of a loop 0 trips, 1 trip or many trips"]
    fixtures: Annotated[int, Bounds(0), "fixtures whose run of the original model reached it"]
    named: Annotated[tuple[str, ...], "the first of them"] = ()
    missing: Annotated[bool, "a call may run it, and no fixture did"] = False


@record
class RandomNode:
    """A node that draws random numbers: which, how, and what depends on them."""

    node: str
    op_type: str
    distribution: Annotated[
        Literal["normal", "uniform"], "of what it draws; of masks and samples, what decides them"
    ]
    parameters: Annotated[Mapping[str, float], "mean and scale, or low and high"]
    seed: Annotated[int | None, "policies seed and free: from which it draws"] = None
    given: Annotated[bool, "the build gave the seed, as the model has none"] = False
    input: Annotated[str, "policy as-input: which input has the numbers"] = ""
    outputs: Annotated[tuple[str, ...], "outputs that depend on them"] = ()

    def drawn(self) -> str:
        """What it draws: `normal, mean 0, scale 1`."""
        stated = (f"{name} {value:g}" for name, value in self.parameters.items())
        return ", ".join((self.distribution, *stated))

    def in_words(self) -> str:
        """What it draws, what depends on it, and what was settled, if that is known."""
        what = f"{self.op_type} draws random numbers ({self.drawn()})"
        if not self.outputs:
            return f"{what}, on which no output depends"
        what += f", on which {listed(self.outputs)} depend{'' if self.outputs[1:] else 's'}"
        if self.input:
            return f"{what}; a call passes them as input {self.input}"
        by = "that the build gave it" if self.given else "of the model"
        return what if self.seed is None else f"{what}; it draws from seed {self.seed} {by}"


@record
class Randomness:
    """What holds for the random numbers of a model, and its nodes that draw some.

    `seed`: every call draws anew from the seeds, so that equal inputs give equal bytes.
    `free`: the first call of a loaded model draws from the seeds, and later ones go on.
    `as-input`: a call passes the numbers as inputs, and the graph draws none.
    """

    policy: Literal["seed", "free", "as-input"]
    nodes: Annotated[tuple[RandomNode, ...], Bounds(1)]

    @property
    def draws(self) -> bool:
        """Whether an output depends on numbers that the graph draws."""
        return self.policy != "as-input" and any(node.outputs for node in self.nodes)


@record
class Capture:
    """Description of the model that was imported."""

    sha256: Annotated[Sha256, "of the model file as given"]
    size: int
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    graph_name: str = ""
    ir_version: int
    opsets: Mapping[str, int]
    nodes: Annotated[int, "in the main graph"]
    nodes_total: Annotated[int, "including subgraphs and functions"]
    op_types: Annotated[Mapping[str, int], "nodes by domain::op_type, including subgraphs"]
    initializers: int
    initializer_bytes: int
    constants: Annotated[int, "Constant nodes"] = 0
    functions: Annotated[tuple[str, ...], "domain::name of model-local functions"] = ()
    custom_ops: Annotated[
        tuple[str, ...], "domain::op_type of domains other than ONNX's and ORT's"
    ] = ()
    contrib_ops: Annotated[tuple[str, ...], "domain::op_type of ORT's own domains"] = ()
    control_flow: tuple[ControlFlow, ...] = ()
    outer_scope_values: Annotated[
        tuple[str, ...], "outer values that subgraphs read, as node: value"
    ] = ()
    external_data: tuple[ExternalFile, ...] = ()
    quantized: Annotated[bool, "has quantized operators"] = False
    half_precision: Annotated[bool, "has float16 or bfloat16 tensors"] = False
    metadata_bytes: Annotated[
        Mapping[str, int], "removed from the graphs: bytes of doc_string and metadata_props"
    ] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    framework: Annotated[
        FrameworkCapture | None, "how a framework's source became this model; unset: it was given"
    ] = None


# Consistency of the shapes of a manifest: buckets, relations, padding and fixtures.
#
# The types do not express these rules; without the check, a call could fail, or allocate more
# memory than there is.


def domain_problems(domain: Domain, variants: Iterable[Variant]) -> Iterator[Problem]:
    """Contradictions among the sizes of dims and the relations between them."""
    yield from _problems_of_domain(domain, "domain")
    for index, variant in enumerate(variants):
        if variant.domain is not None:
            yield from _problems_of_domain(variant.domain, f"variants[{index}].domain")


def _problems_of_domain(domain: Domain, path: str) -> Iterator[Problem]:
    for name, dim in domain.dims.items():
        where = f"{path}.dims.{name}"
        if not dim.min <= dim.opt <= dim.max <= _MAX_SIZE:
            yield Problem(where, f"{dim.min}, {dim.opt}, {dim.max} are not increasing")
        increasing = list(dim.buckets) == sorted(set(dim.buckets))
        if not increasing or not all(dim.min <= size <= dim.max for size in dim.buckets):
            yield Problem(f"{where}.buckets", "are not increasing within the bounds")
        if dim.pad_from is not None and dim.pad_from > dim.max:
            yield Problem(f"{where}.pad_from", f"{dim.pad_from} is more than max {dim.max}")
    known = set(domain.dims)
    for index, relation in enumerate(domain.relations):
        where = f"{path}.relations[{index}]"
        if relation.dim in known:
            yield Problem(where, f"{relation.dim} is free, or has a relation already")
        if not known.issuperset(relation.terms):
            yield Problem(
                where, "has a term that is neither free nor the dim of an earlier relation"
            )
        if abs(relation.constant) > _MAX_SIZE:
            yield Problem(where, f"adds {relation.constant}")
        known.add(relation.dim)
    for index, further in enumerate(domain.further()):
        where = f"{path}.also[{index}]"
        if further.dims.keys() != domain.dims.keys():
            yield Problem(where, "does not have the free dims")
        else:
            yield from _problems_of_domain(replace(further, relations=()), where)


def bucket_problems(
    domain: Domain, variants: Iterable[Variant], dropped: Iterable[DroppedVariant]
) -> Iterator[Problem]:
    """Variants for buckets that the domain does not have, or for the same buckets."""
    dims = domain.dims
    bucketed = {name for name, dim in dims.items() if dim.buckets}
    seen = set()
    for index, variant in enumerate(variants):
        where = f"variants[{index}].buckets"
        if variant.buckets and variant.buckets.keys() != bucketed:
            yield Problem(where, "do not name the bucketed dims of the domain")
        elif any(size not in dims[name].buckets for name, size in variant.buckets.items()):
            yield Problem(where, "are not buckets of the domain")
        key = (variant.spec or variant.name, *sorted(variant.buckets.items()))
        if key in seen:
            yield Problem(where, "are also those of another variant")
        seen.add(key)
    for index, variant_left_out in enumerate(dropped):
        if not bucketed.issuperset(variant_left_out.buckets):
            yield Problem(f"dropped[{index}].buckets", "name dims without buckets")


def capture_problems(domain: Domain, variants: Iterable[Variant]) -> Iterator[Problem]:
    """Captured sizes outside the domain, or without the provider option that allows captures."""
    for index, variant in enumerate(variants):
        where = f"variants[{index}].cuda_graphs"
        allowed = {
            provider
            for provider, options in variant.session.provider_options.items()
            if options.get(GRAPH_OPTION, "0") != "0"
        }
        if allowed - {_CAPTURING}:
            yield Problem(where, f"{', '.join(sorted(allowed))} has no CUDA graphs")
        if bool(allowed) != (variant.cuda_graphs is not None):
            yield Problem(where, f"must be stated exactly if {GRAPH_OPTION} is 1")
        if variant.cuda_graphs is None:
            continue
        if _CAPTURING not in variant.providers:
            yield Problem(where, "are for CUDA, which is not among the providers")
        sizes = variant.cuda_graphs.sizes
        if domain.dims and not sizes:
            yield Problem(f"{where}.sizes", "name no sizes of the free dims")
        if len(sizes) > variant.cuda_graphs.max_count:
            yield Problem(
                f"{where}.sizes", f"are more than max_count {variant.cuda_graphs.max_count}"
            )
        if len({tuple(sorted(captured.items())) for captured in sizes}) < len(sizes):
            yield Problem(f"{where}.sizes", "name one combination twice")
        for number, captured in enumerate(sizes):
            if what := _capture_problem(domain, variant.buckets, captured):
                yield Problem(f"{where}.sizes[{number}]", what)


def _capture_problem(
    domain: Domain, buckets: Mapping[str, int], captured: Mapping[str, int]
) -> str:
    if captured.keys() != domain.dims.keys():
        return "does not name exactly the free dims"
    for name, size in captured.items():
        dim = domain.dims[name]
        # A dim with buckets is captured at these only: other sizes are not expected there.
        inside = size in dim.buckets if dim.buckets else dim.spans(size)
        if not inside or buckets.get(name, size) != size:
            return f"has {name}={size}, which the variant does not take"
    return ""


def padding_problems(
    padding: Padding | None,
    domain: Domain,
    inputs: Sequence[Value],
    outputs: Iterable[Value],
    fixtures: Iterable[Fixture],
) -> Iterator[Problem]:
    """Padding rules that are missing, or that name values or dims that do not exist."""
    if padding is None:
        if any(dim.pad_from is not None for dim in domain.dims.values()):
            yield Problem("padding", "is missing, and a dim is padded")
        return
    given = {value.name: value for value in inputs}
    produced = {value.name: value for value in outputs}
    named = {dim for value in inputs for dim in value.shape or () if isinstance(dim, str)}
    for name, spec in padding.inputs.items():
        if name not in given:
            yield Problem(f"padding.inputs.{name}", "is not an input")
        elif not _fits(spec.value, given[name].dtype):
            yield Problem(
                f"padding.inputs.{name}.value", f"is not a value of type {given[name].dtype}"
            )
    for index, crop in enumerate(padding.crops):
        if what := _crop_problem(crop, produced.get(crop.output), named):
            yield Problem(f"padding.crops[{index}]", what)
    for index, fixture in enumerate(fixtures):
        if not named.issubset(fixture.sizes):
            yield Problem(f"fixtures[{index}].sizes", "do not name every dim of the inputs")


def _fits(value: bool | int | float | str, dtype: str) -> bool:
    if dtype == "string" or isinstance(value, str):
        return dtype == "string" and isinstance(value, str)
    if dtype in _BITS:
        return value == int(value) and -(2 ** _BITS[dtype]) <= value < 2 ** _BITS[dtype]
    if dtype in _UNSIGNED:
        return value == int(value) and 0 <= value < 2 ** _UNSIGNED[dtype]
    return abs(value) <= _LARGEST.get(dtype, math.inf)


def _crop_problem(crop: Crop, output: Value | None, named: set[str]) -> str:
    if output is None or output.kind != "tensor":
        return "does not name an output that is a tensor"
    if crop.axis >= (64 if output.shape is None else len(output.shape)):
        return f"has axis {crop.axis}, which the output does not have"
    if not named.issuperset(crop.dims):
        return "names a dim that no input has"
    return f"adds {crop.constant}" if abs(crop.constant) > _MAX_SIZE else ""


# What ORT's manifest.json states about a variant: the build writes it, the gate requires it.


def provider_options(variant: Variant) -> dict[str, str]:
    """`executor_info.ort.provider_options`: the options of the variant's first provider.

    Empty if an option names the folder of the weights, which ORT's manifest cannot express.  Only
    `aotc.load` can load such a variant; other applications of ORT fail to load its compiled parts.
    Without captured CUDA graphs: an application that does not name one for each size would get the
    answers of another size.
    """
    first = variant.providers[0] if variant.providers else ""
    stated = variant.session.provider_options.get(first, {})
    if any("${" in value for value in stated.values()):
        return {}
    return {key: value for key, value in stated.items() if key != GRAPH_OPTION}


def session_options(variant: Variant) -> dict[str, str]:
    """`executor_info.ort.session_options`: level, config, and the URI of the shared weights."""
    options = {LEVEL_OPTION: _LEVELS[variant.session.optimization], **variant.session.config}
    if variant.weights is not None:
        options[WEIGHTS_OPTION] = variant.weights.rpartition("/")[2].replace(
            "sha256-", "sha256:", 1
        )
    return options


def unproven_findings(
    manifest: Manifest, artifact: str, qualified: Collection[str] = ()
) -> tuple[Finding, ...]:
    """AOTC-N002 for each of the profile's variants that was not proven, with what proves it.

    `artifact` is the name of its file or folder.  Those `qualified` were accepted on the host.
    """
    found: dict[str, list[Variant]] = {}
    for variant in manifest.variants:
        if variant.parity.status != "passed" and variant.name not in qualified:
            found.setdefault(variant.spec or variant.name, []).append(variant)
    command = shlex.join(("aotc", "attest", artifact, "--qualify"))
    findings = []
    for name, variants in found.items():
        names = listed([variant.name for variant in variants])
        was = "was" if len(variants) == 1 else "were"
        why = variants[0].parity.reason or "no reason given"
        findings.append(
            Finding(
                code="AOTC-N002",
                what=f"{names} {was} not proven: {why}; on the device, '{command}' proves it",
                where=f"variant {name}",
            )
        )
    return tuple(findings)
