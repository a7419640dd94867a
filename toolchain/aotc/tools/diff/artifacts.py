"""Artifacts and models compared, area by area, and the areas in which they must not differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import hint
from aotc.spec.diff_report import (
    AREAS,
    MEASURED,
    AllowedDiff,
    Area,
    AreaDiff,
    Change,
    ComparedArtifact,
    DiffReport,
    NodesDiff,
    VariantPair,
)
from aotc.spec.reports import Refusal
from aotc.spec.versions import artifact_name
from aotc.tools.diff import areas, models
from aotc.tools.diff.answers import compared_answers, exactness_of
from aotc.tools.diff.graphs import (
    GraphComparison,
    Weights,
    by_name_alone,
    compare_graphs,
    placement_changes,
)
from aotc.tools.diff.model_side import is_model
from aotc.tools.diff.opened_artifact import Pair, change, open_side, pair_variants
from aotc.tools.inspect import ArtifactContents


def diff(
    a: str | Path,
    b: str | Path,
    *,
    fail_on: Iterable[str] = (),
    weights: bool = True,
    run: bool = True,
) -> DiffReport:
    """What changed from artifact or model `a` to artifact or model `b`.

    Each is the path of a folder or packed artifact, `sha256-<id>` for an entry of a store, a
    reference `oci://…`, or the path of a model, NAME.onnx.  Of a model, what only a build knows is
    not compared; `built_from` of the report says whether an artifact was built from the very bytes
    of it.

    Nothing is verified, and the digests that the manifests state are believed.  But both are run on
    the same inputs, which is what the area `answers` compares, only if both verify as `load` has it
    by default; else, and with `run` false, the golden outputs that ship with them are compared.
    A model is run in a sandbox, as it is, on the fixtures of the artifact, else on made inputs.

    `areas` of the report holds what changed in each area, such as placement, precision or weights;
    `weights` the tensors that differ, by name, dtype (ONNX's name) and shape, with the largest
    absolute and relative difference; sizes are in bytes and times in seconds.  `fail_on` names
    areas that must not differ, or not by more than a ratio (`size:1.05`): `failed` of the report
    holds those that do.  Without onnx and numpy, weights are not compared, and nodes are matched by
    name alone.  With `weights` false, weights are not read, unless `fail_on` names them.

    Raises AOTC-I059 for what is neither, I060 for an unknown area, I019 if `fail_on` names
    weights that cannot be read for want of a package, and what `aotc inspect` does for an artifact
    or a model that cannot be read.
    """
    allowed = read_allowed(fail_on)
    asked: Weights = "where-possible" if weights else "never"
    if any(each.area == "weights" for each in allowed):
        asked = "always"
    with ExitStack() as stack:
        one = open_side(a)
        stack.callback(one.container.close)
        other = open_side(b)
        stack.callback(other.container.close)
        compared = _with_model if is_model(one) or is_model(other) else _compared
        report = compared(one, other, asked, run=run)
    where = f"{one.path} and {other.path}"
    return replace(report, allowed=allowed, failed=failures(allowed, report.areas, where))


def _compared(
    a: ArtifactContents, b: ArtifactContents, weights: Weights, *, run: bool
) -> DiffReport:
    pairs, alone = pair_variants(a.manifest.variants, b.manifest.variants)
    same = a.artifact_id == b.artifact_id
    # Of one manifest: both list the same files, so there is nothing to read.
    graphs = by_name_alone(pairs) if same else compare_graphs(a, b, pairs, weights)
    left_out = _left_out(alone)
    same_calls, answers = compared_answers(a, b, run=run)
    found = [
        _area("source", areas.source_changes(a, b)),
        _area("toolchain", areas.toolchain_changes(a, b)),
        _area("profile", areas.profile_changes(a, b)),
        _area("variants", areas.variant_changes(a, b, pairs, alone)),
        _area("passes", areas.pass_changes(pairs), left_out),
        _area("placement", _placement(pairs, graphs.nodes), left_out),
        _area("shapes", areas.shape_changes(a, b, pairs), left_out),
        _area("precision", areas.precision_changes(pairs), left_out),
        exactness_of(_measured("exactness", areas.exactness(a, b, pairs), left_out), answers),
        answers,
        _measured("memory", areas.memory(pairs), left_out),
        _measured("size", areas.size(a, b)),
        _weights(graphs, left_out),
        _area("requirements", areas.requirement_changes(a, b, pairs), left_out),
        _area("trust", areas.trust_changes(a, b)),
        _area("contents", areas.contents_changes(a, b, pairs)),
    ]
    if not same and not any(area.changes for area in found):
        found[-1] = _area("contents", areas.manifest_changes(a, b))
    return DiffReport(
        a=_described(a),
        b=_described(b),
        same_id=same,
        areas=tuple(found),
        variants=(*(pair.row() for pair in pairs), *alone),
        nodes=graphs.nodes,
        weights=graphs.weights,
        measured=areas.measured_rows(a, b, pairs),
        answers=same_calls,
        problems=(*a.problems, *b.problems, *graphs.problems),
    )


def _with_model(
    a: ArtifactContents, b: ArtifactContents, weights: Weights, *, run: bool
) -> DiffReport:
    """Two models, or an artifact and a model: what a model's file states, and what both answer."""
    pairs = models.pairs_with(a, b)
    graphs = compare_graphs(a, b, pairs, weights)
    same_calls, answers = compared_answers(a, b, run=run)
    built_from = models.built_from(a, b)
    names = [name for name, side in (("A", a), ("B", b)) if is_model(side)]
    unknown = f"{' and '.join(names)} {'is a model' if len(names) == 1 else 'are models'}"
    precision = models.precision_changes(pairs) if len(names) == 1 else ()
    compared = {
        "source": _area("source", () if built_from else models.source_changes(a, b)),
        "placement": _area("placement", _node_changes(graphs.nodes), unknown),
        "shapes": _area("shapes", models.shape_changes(a, b)),
        "precision": _area("precision", precision, unknown if len(names) == 2 else ""),
        "answers": answers,
        "size": _measured("size", areas.size(a, b, files=False)),
        "weights": _weights(graphs, ""),
    }
    return DiffReport(
        a=_described(a),
        b=_described(b),
        same_id=a.artifact_id == b.artifact_id,
        built_from=built_from,
        areas=tuple(compared.get(name) or _area(name, (), unknown) for name in AREAS),
        variants=tuple(pair.row() for pair in pairs),
        nodes=graphs.nodes,
        weights=graphs.weights,
        answers=same_calls,
        problems=(*a.problems, *b.problems, *graphs.problems),
    )


def _described(artifact: ArtifactContents) -> ComparedArtifact:
    if is_model(artifact):
        return ComparedArtifact(
            kind="model",
            path=artifact_name(artifact.path),
            name=artifact.manifest.name,
            artifact_id="",
            manifest="",
            payload_bytes=artifact.payload_bytes,
            sha256=artifact.manifest.source.sha256,
        )
    return ComparedArtifact(
        path=artifact_name(artifact.path),
        name=artifact.manifest.name,
        artifact_id=artifact.artifact_id,
        manifest=artifact.manifest.schema,
        payload_bytes=artifact.payload_bytes,
        built_at=artifact.evidence.built_at if artifact.evidence is not None else "",
    )


def _left_out(alone: Sequence[VariantPair]) -> str:
    """Why areas of variants are compared in part: which variants there is no other of."""
    found = [f"{row.a} of A" if row.a else f"{row.b} of B" for row in alone]
    return f"nothing to compare with {', '.join(found)}" if found else ""


def _area(
    area: Area, changes: Sequence[Change], reason: str = "", ratio: float | None = None
) -> AreaDiff:
    """One area; with a `reason` it was compared in part at most, so it is never the same."""
    status: Literal["same", "changed", "not-compared"] = "same"
    if changes:
        status = "changed"
    elif reason:
        status = "not-compared"
    return AreaDiff(area=area, status=status, reason=reason, ratio=ratio, changes=tuple(changes))


def _measured(area: Area, found: areas.Measured, left_out: str = "") -> AreaDiff:
    reason = "; ".join(filter(None, (found.reason, left_out)))
    return _area(area, found.changes, reason, found.ratio)


def _placement(pairs: Sequence[Pair], nodes: Sequence[NodesDiff]) -> Sequence[Change]:
    return (*placement_changes(pairs), *_node_changes(nodes))


def _node_changes(nodes: Sequence[NodesDiff]) -> list[Change]:
    changes = []
    for each in nodes:
        # Other names alone are no difference.
        for what in ("moved", "added", "removed", "replaced", "altered"):
            if count := len(getattr(each, what)):
                changes.append(change(f"nodes {what}", None, count, each.variant))
    return changes


def _weights(graphs: GraphComparison, left_out: str) -> AreaDiff:
    if graphs.why_no_weights:
        return AreaDiff(area="weights", status="not-compared", reason=graphs.why_no_weights)
    changes = []
    for each in graphs.weights:
        for what in ("changed", "added", "removed"):
            if count := len(getattr(each, what)):
                changes.append(change(f"tensors {what}", None, count, ", ".join(each.variants)))
    return _area("weights", changes, left_out)


# `--fail-on`: areas in which two artifacts must not differ, or not by more than a ratio.


_RATIO = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


def read_allowed(words: Iterable[str]) -> tuple[AllowedDiff, ...]:
    """`AREA` or `AREA:RATIO` words as records; raises AOTC-I060 for another area or no ratio."""
    found: dict[str, AllowedDiff] = {}
    for word in words:
        name, colon, number = word.partition(":")
        area = next((each for each in AREAS if each == name), None)
        if area is None:
            raise _refused(f"no area is called {name!r}{hint(name, AREAS, 0)}", word)
        if area in found:
            raise _refused(f"{area} is named twice", word)
        if colon and area not in MEASURED:
            raise _refused(f"{area} has no ratio; those with one: {', '.join(MEASURED)}", word)
        if colon and not (_RATIO.fullmatch(number) and float(number) > 0):
            raise _refused(f"{number!r} is not a ratio such as 1.05", word)
        found[area] = AllowedDiff(area=area, max_ratio=float(number) if colon else None)
    return tuple(found.values())


def _refused(what: str, word: str) -> AotcError:
    return AotcError("AOTC-I060", what, where="--fail-on", found=word)


def failures(
    allowed: Sequence[AllowedDiff], compared: Sequence[AreaDiff], measured_from: str
) -> tuple[Refusal, ...]:
    """One AOTC-I061 for each area that differs by more than is allowed, with what was measured."""
    by_name = {area.area: area for area in compared}
    found = []
    for each in allowed:
        why = _exceeded(each, by_name[each.area])
        if why is not None:
            expected, measured = why
            found.append(
                Refusal(
                    code="AOTC-I061",
                    what=f"A and B differ in their {each.area}",
                    where=measured_from,
                    expected=expected,
                    found=measured,
                )
            )
    return tuple(found)


def _exceeded(allowed: AllowedDiff, area: AreaDiff) -> tuple[str, str] | None:
    """What was expected and what was found; None if the area is as allowed."""
    if area.status == "not-compared":
        return "a comparison", f"not compared: {area.reason}"
    if allowed.max_ratio is None:
        if area.status == "same":
            return None
        count = len(area.changes)
        first = f", the first of {area.changes[0].what}" if area.changes else ""
        return "no difference", f"{count or 'some'} difference{'' if count == 1 else 's'}{first}"
    expected = f"at most {allowed.max_ratio:g} times A's"
    if area.reason:
        # The number is not of all that is promised.
        return expected, area.reason
    if area.status == "same" or (area.ratio is not None and area.ratio <= allowed.max_ratio):
        return None
    if area.ratio is None:
        return expected, "a ratio that is not known"
    return expected, f"{area.ratio:.4g} times A's"
