"""Areas that the manifests state of the model: source, toolchain, profile, shapes, precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotc.comparing.field_changes import change, changes_of
from aotc.comparing.opened_artifact import ArtifactContents
from aotc.comparing.variant_pairs import Pair
from aotc.contract.codec.parsing import Json, ParseError, decode, encode
from aotc.contract.manifest.toolchain import PassRecord
from aotc.contract.manifest.variant import Variant
from aotc.contract.profile import Profile
from aotc.contract.results.diff_report import Change, VariantPair


def source_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """The model that was imported, and the name of the artifact."""
    named = changes_of(a.manifest.name, b.manifest.name, "name")
    return named + changes_of(a.manifest.source, b.manifest.source, "source")


def toolchain_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """Versions of what built them, plugins by name, and the format of the manifest."""
    schema = changes_of(a.manifest.schema, b.manifest.schema, "schema")
    return schema + changes_of(a.manifest.toolchain, b.manifest.toolchain, "toolchain")


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
    for pair in pairs:
        found += changes_of(_session(pair.a), _session(pair.b), subject=pair.label)
    return tuple(found)


def _session(variant: Variant) -> Mapping[str, object]:
    return {
        "name": variant.name,
        "spec": variant.spec,
        "component": variant.component,
        "buckets": variant.buckets,
        "providers": variant.providers,
        "device": variant.device,
        "session": variant.session,
    }


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
    ]
    for pair in pairs:
        found += changes_of(
            {"domain": pair.a.domain, "graphs": pair.a.graphs, "shape_nodes": pair.a.shape_nodes},
            {"domain": pair.b.domain, "graphs": pair.b.graphs, "shape_nodes": pair.b.shape_nodes},
            subject=pair.label,
        )
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
