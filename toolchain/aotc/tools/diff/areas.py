"""Areas of a comparison that manifests and evidence state: contents, model, trust, figures."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aotc.base.records import record
from aotc.spec.attestation_kinds import kind_of
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.diff_report import Change, MeasuredRow, VariantPair
from aotc.spec.evidence import OutputError
from aotc.spec.profile import Profile
from aotc.spec.reports import Claim
from aotc.spec.variant import MemoryPlan, PassRecord
from aotc.tools.diff.opened_artifact import Pair, change, changes_of, ratio
from aotc.tools.inspect import ArtifactContents, worst_errors

# What the manifests list beside all other areas: files by digest, fixtures, and findings.


def contents_changes(
    a: ArtifactContents, b: ArtifactContents, pairs: Sequence[Pair]
) -> tuple[Change, ...]:
    """Files whose bytes differ or that one has, fixtures, findings, and what variants read."""
    one, other = a.manifest, b.manifest
    found = [
        *changes_of(one.fixtures, other.fixtures, "fixtures"),
        *changes_of(one.findings, other.findings, "findings"),
        *_pair_changes(pairs, "model", "weights", "files", "shape_nodes_dropped"),
    ]
    return (*found, *_file_changes(a, b, "sha256"))


def _file_changes(a: ArtifactContents, b: ArtifactContents, what: str) -> list[Change]:
    """Files of which the manifests state another `what`, or that one of them lacks; by path."""
    one = {entry.path: getattr(entry, what) for entry in a.manifest.files}
    other = {entry.path: getattr(entry, what) for entry in b.manifest.files}
    return [
        change(what, one.get(path), other.get(path), path)
        for path in sorted({*one, *other})
        if one.get(path) != other.get(path)
    ]


def _pair_changes(pairs: Sequence[Pair], *fields: str) -> list[Change]:
    """What differs of the fields `fields` of each two variants."""
    return [
        each
        for pair in pairs
        for each in changes_of(
            {name: getattr(pair.a, name) for name in fields},
            {name: getattr(pair.b, name) for name in fields},
            subject=pair.label,
        )
    ]


def manifest_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """Of manifests that differ where no area looks: each field, or else their digests."""
    found = changes_of(a.manifest, b.manifest)
    return found or (change("sha256", a.artifact_id, b.artifact_id, "aotc.json"),)


# Areas that the manifests state of the model: source, toolchain, profile, shapes, precision.


def source_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """The model that was imported, and the name of the artifact."""
    named = changes_of(a.manifest.name, b.manifest.name, "name")
    return named + changes_of(a.manifest.source, b.manifest.source, "source")


def toolchain_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """Versions of what built them, plugins by name, and the format of the manifest."""
    schema = changes_of(a.manifest.schema, b.manifest.schema, "schema")
    tools = changes_of(a.manifest.toolchain, b.manifest.toolchain, "toolchain")
    return (*schema, *tools, *changes_of(_by_variant(a), _by_variant(b), "merged"))


def _by_variant(artifact: ArtifactContents) -> Json:
    """Of a merged artifact, by variant, the targets and runtimes of what it was merged from."""
    merged = artifact.manifest.merged
    return {
        name: [f"{each.target}, ONNX Runtime {each.toolchain.onnxruntime}" for each in found]
        for name in sorted({name for each in merged for name in each.variants})
        if (found := artifact.manifest.origins(name))
    }


def profile_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """The resolved profile, and the target.

    A field that one aotc did not know yet has its default there.
    """
    one, other = a.manifest, b.manifest
    return changes_of(_resolved(one.profile), _resolved(other.profile), "profile") + changes_of(
        {"target": one.target, "target_sha256": one.target_sha256},
        {"target": other.target, "target_sha256": other.target_sha256},
    )


def _resolved(profile: Json) -> Json:
    try:
        known = encode(decode(Profile, profile, allow_unknown=True), full=True)
    except ParseError:
        return profile
    return _overlaid(known, profile)


def _overlaid(known: Json, stated: Json) -> Json:
    """`stated` with the fields of `known` that it lacks."""
    if not isinstance(known, Mapping) or not isinstance(stated, Mapping):
        return stated
    both = {name: _overlaid(known.get(name), value) for name, value in stated.items()}
    return {**known, **both}


def variant_changes(
    a: ArtifactContents,
    b: ArtifactContents,
    pairs: Sequence[Pair],
    alone: Sequence[VariantPair],
) -> tuple[Change, ...]:
    """Variants that one artifact alone has, their order, those that were left out, and sessions.

    The first variant that fits a host is taken, so their order matters.
    """
    found = [change("variant", row.a or None, row.b or None) for row in alone]
    places = {pair.b.name: pair.a.name for pair in pairs}
    before = [pair.a.name for pair in pairs]
    after = [places[each.name] for each in b.manifest.variants if each.name in places]
    if before != after:
        found.append(change("order", before, after))
    found += changes_of(a.manifest.dropped, b.manifest.dropped, "dropped")
    fields = ("name", "spec", "component", "buckets", "providers", "device", "session")
    return (*found, *_pair_changes(pairs, *fields))


def pass_changes(pairs: Sequence[Pair]) -> tuple[Change, ...]:
    """The order of passes, and of each its options, what it matched, and its numbers of nodes."""
    found: list[Change] = []
    for pair in pairs:
        one, other = _counted(pair.a.passes), _counted(pair.b.passes)
        if list(one) != list(other):
            found.append(change("order", list(one), list(other), pair.label))
        for name in one:
            if name in other:
                found += changes_of(one[name], other[name], name, subject=pair.label)
    return tuple(found)


def _counted(passes: Sequence[PassRecord]) -> dict[str, PassRecord]:
    """Passes by name; the second of one name is NAME#2."""
    found: dict[str, PassRecord] = {}
    seen: dict[str, int] = {}
    for each in passes:
        number = seen[each.name] = seen.get(each.name, 0) + 1
        found[each.name if number == 1 else f"{each.name}#{number}"] = each
    return found


def shape_changes(
    a: ArtifactContents, b: ArtifactContents, pairs: Sequence[Pair]
) -> tuple[Change, ...]:
    """Inputs and outputs, dims and relations, padding, buckets and captured sizes."""
    one, other = a.manifest, b.manifest
    found = [
        *changes_of(one.inputs, other.inputs, "inputs"),
        *changes_of(one.outputs, other.outputs, "outputs"),
        *changes_of(one.domain, other.domain, "domain"),
        *changes_of(one.shapes, other.shapes, "shapes"),
        *changes_of(one.padding, other.padding, "padding"),
        *changes_of(one.strict, other.strict, "strict"),
        *_pair_changes(pairs, "domain", "cuda_graphs", "shape_nodes"),
    ]
    return tuple(found)


def precision_changes(pairs: Sequence[Pair]) -> tuple[Change, ...]:
    """The precision that variants were built with, and the class of their arithmetic."""
    found: list[Change] = []
    for pair in pairs:
        found += changes_of(
            {"precision": pair.a.precision, "arithmetic": pair.a.parity.arithmetic},
            {"precision": pair.b.precision, "arithmetic": pair.b.parity.arithmetic},
            subject=pair.label,
        )
    return tuple(found)


def requirement_changes(
    a: ArtifactContents, b: ArtifactContents, pairs: Sequence[Pair]
) -> tuple[Change, ...]:
    """What hosts and readers must have: of each variant, and of the artifacts."""
    one, other = a.manifest, b.manifest
    found = [
        *changes_of(one.required_features, other.required_features, "required_features"),
        *changes_of(one.waivers, other.waivers, "waivers"),
    ]
    for pair in pairs:
        found += changes_of(pair.a.requirements, pair.b.requirements, subject=pair.label)
    return tuple(found)


# Who claims to have signed what, and what statements say that is not a time.


def trust_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """Signers, kinds of attestations with their keys, approvals, and provenance; as claimed."""
    return changes_of(_claimed(a), _claimed(b))


def _claimed(artifact: ArtifactContents) -> dict[str, Any]:
    signed = [claim for claim in artifact.claims if _usage(claim) == "oms"]
    found: dict[str, Any] = {"signers": sorted(claim.key_id for claim in signed)}
    found["attestations"] = sorted(
        f"{_usage(claim)} by {claim.key_id or 'a key that is not named'}"
        for claim in artifact.claims
    )
    for usage in ("approval", "qualification"):
        found[usage] = sorted(claim.summary for claim in artifact.claims if _usage(claim) == usage)
    found["provenance"] = [
        {
            "builder": _at(predicate, "runDetails", "builder", "id"),
            "release": _at(predicate, "buildDefinition", "externalParameters", "version"),
            "type": _at(predicate, "buildDefinition", "buildType"),
        }
        for predicate in artifact.predicates("provenance")
    ]
    return found


def _usage(claim: Claim) -> str:
    kind = kind_of(claim.predicate_type)
    return kind.usage if kind is not None else claim.predicate_type


def _at(data: Json, *path: str) -> Json:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else None


# Areas with a number: exactness, memory and size; and measurements, which are only shown.


# Errors of two runs of one graph differ by the order of sums on more than one thread.
_SAME_ERROR: Final = 1.1
_SAME_SQNR_DB: Final = 20 * math.log10(_SAME_ERROR)


@record
class Measured:
    """What differs in an area with a number, that number, and what the number does not tell."""

    changes: tuple[Change, ...]
    ratio: float | None
    reason: str = ""


def exactness(a: ArtifactContents, b: ArtifactContents, pairs: Sequence[Pair]) -> Measured:
    """Verdicts, tolerances and compared shapes, and the worst error of each output.

    Errors count as different from a factor of 1.1 on.  The ratio is that of the output whose error
    grew most, the largest float if an error appeared; None if no output was measured in both.  The
    reason names verdicts that differ, and outputs that were measured in A alone or in neither.
    """
    found: list[Change] = []
    ratios: list[float] = []
    reasons: list[str] = []
    for pair in pairs:
        found += changes_of(
            pair.a.parity, pair.b.parity, "parity", subject=pair.label, without=("arithmetic",)
        )
        one, other = _errors(a, pair.a.name), _errors(b, pair.b.name)
        if pair.a.parity.status != pair.b.parity.status:
            words = f"{pair.a.parity.status} in A and {pair.b.parity.status} in B"
            reasons.append(f"{pair.label}: parity {words}")
        # Of one payload, errors are the same whether somebody wrote them down or not.
        if not one and not other and a.artifact_id != b.artifact_id:
            reasons.append(f"{pair.label}: neither artifact has measured errors")
        missing = [output for output in one if output not in other]
        reasons += [f"{pair.label}: output {output} is not measured in B" for output in missing]
        reasons += [
            f"{pair.label}: output {output} passed in {'A' if one[output].passed else 'B'} alone"
            for output in one
            if output in other and one[output].passed != other[output].passed
        ]
        for output in dict.fromkeys((*one, *other)):
            before, after = one.get(output), other.get(output)
            if before is not None and after is not None:
                ratios.append(_error_ratio(before.max_abs, after.max_abs))
            found += _error_changes(before, after, output, pair.label)
        found += _task_changes(a, b, pair)
    worst = max(ratios, default=None)
    return Measured(changes=tuple(found), ratio=worst, reason="; ".join(reasons))


def _task_changes(a: ArtifactContents, b: ArtifactContents, pair: Pair) -> list[Change]:
    """The metric on a labelled set, where both builds judged by the same one."""
    one, other = (
        measured.task if (measured := artifact.measured(variant)) is not None else None
        for artifact, variant in ((a, pair.a.name), (b, pair.b.name))
    )
    if one is None or other is None or one.metric != other.metric or one.variant == other.variant:
        return []
    return [change(f"task.{one.metric}", one.variant, other.variant, pair.label)]


def _errors(artifact: ArtifactContents, variant: str) -> Mapping[str, OutputError]:
    measured = artifact.measured(variant)
    found = worst_errors(measured) if measured is not None else ()
    return {error.output: error for error in found}


def _error_changes(
    a: OutputError | None, b: OutputError | None, output: str, subject: str
) -> list[Change]:
    found = []
    for name in ("max_abs", "max_rel"):
        one, other = getattr(a, name, None), getattr(b, name, None)
        if one is None or other is None:
            is_same = one == other
        else:
            is_same = 1 / _SAME_ERROR <= _error_ratio(one, other) <= _SAME_ERROR
        if not is_same:
            found.append(change(f"{output}.{name}", one, other, subject))
    if a is not None and b is not None:
        one, other = a.sqnr_db, b.sqnr_db
        # None: nothing could be measured.
        if one is not None and other is not None and abs(one - other) > _SAME_SQNR_DB:
            found.append(change(f"{output}.sqnr_db", one, other, subject))
        one, other = a.agreement, b.agreement
        if one is not None and other is not None and one != other:
            found.append(change(f"{output}.agreement", one, other, subject))
    if a is not None and b is not None and a.passed != b.passed:
        found.append(change(f"{output}.passed", a.passed, b.passed, subject))
    return found


def _error_ratio(a: float, b: float) -> float:
    if a == b:
        return 1.0
    return b / a if a > 0 else sys.float_info.max


def memory(pairs: Sequence[Pair]) -> Measured:
    """Planned memory by purpose; the ratio of the variant whose total grew most.

    Activations that neither plan counts are left out of the total.  None if one plan alone counts
    them, or there is no pair.
    """
    found: list[Change] = []
    ratios: list[float | None] = []
    for pair in pairs:
        one, other = pair.a.memory, pair.b.memory
        found += changes_of(one, other, subject=pair.label)
        is_known = (one.activation_bytes_max is None) == (other.activation_bytes_max is None)
        ratios.append(ratio(_total(one), _total(other)) if is_known else None)
    known = [each for each in ratios if each is not None]
    is_complete = bool(known) and len(known) == len(ratios)
    return Measured(changes=tuple(found), ratio=max(known) if is_complete else None)


def _total(plan: MemoryPlan) -> int:
    return plan.weights_bytes + plan.input_bytes_max + (plan.activation_bytes_max or 0)


def size(a: ArtifactContents, b: ArtifactContents, *, files: bool = True) -> Measured:
    """The payload's size, by role and with `files` by file, and its ratio."""
    found = [
        *changes_of(a.payload_bytes, b.payload_bytes, "payload"),
        *changes_of(_by_role(a), _by_role(b)),
        *(_file_changes(a, b, "size") if files else ()),
    ]
    return Measured(changes=tuple(found), ratio=ratio(a.payload_bytes, b.payload_bytes))


def _by_role(artifact: ArtifactContents) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for entry in artifact.manifest.files:
        sizes[entry.role] = sizes.get(entry.role, 0) + entry.size
    return sizes


def measured_rows(
    a: ArtifactContents, b: ArtifactContents, pairs: Sequence[Pair]
) -> tuple[MeasuredRow, ...]:
    """Times and peaks of memory of both builds, which say as much of their hosts as of them."""
    rows = []
    for pair in pairs:
        one, other = _measurements(a, pair.a.name), _measurements(b, pair.b.name)
        spreads = (_spreads(a, pair.a.name), _spreads(b, pair.b.name))
        for what in dict.fromkeys((*one, *other)):
            before, after = one.get(what), other.get(what)
            rows.append(
                MeasuredRow(
                    variant=pair.label,
                    what=what,
                    unit="bytes" if what == "peak memory" else "seconds",
                    a=before,
                    b=after,
                    ratio=ratio(before, after),
                    spread_a=spreads[0].get(what),
                    spread_b=spreads[1].get(what),
                )
            )
    return tuple(rows)


def _spreads(artifact: ArtifactContents, variant: str) -> dict[str, float | None]:
    measured = artifact.measured(variant)
    found = measured.run_spread.items() if measured is not None else ()
    return {
        f"run {name}": spread.share_of(measured.run_seconds[name])
        for name, spread in found
        if measured is not None and name in measured.run_seconds
    }


def _measurements(artifact: ArtifactContents, variant: str) -> dict[str, float]:
    measured = artifact.measured(variant)
    if measured is None:
        return {}
    found = {
        "load": measured.load_seconds,
        "first run": measured.first_run_seconds,
        **{f"run {name}": seconds for name, seconds in measured.run_seconds.items()},
        "peak memory": measured.peak_memory_bytes,
        "device memory": measured.device_bytes,
    }
    return {what: float(value) for what, value in found.items() if value is not None}
