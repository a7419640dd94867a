"""The payload of a merged artifact: its variants with their names, weights once, fixtures."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import onnx

from aotc.base.errors import AotcError
from aotc.base.files.names import file_name
from aotc.base.files.reading import open_plain
from aotc.base.progress import BYTES, Tally
from aotc.base.records import record, replace
from aotc.graph import values, weights
from aotc.pipeline.package import digest_weights, file_entry, move_weights, ort_manifest
from aotc.pipeline.specialize import cpu_name, store_weights
from aotc.runtime.answers import original_tolerance
from aotc.runtime.routing import spec_of
from aotc.session.parity import compare
from aotc.session.sessions import WEIGHTS_PLACEHOLDER
from aotc.spec.codec import Json, encode
from aotc.spec.json import canonical_json, canonical_sha256
from aotc.spec.manifest import AcceptedWaiver, ControlPath, Manifest, MergedBuild
from aotc.spec.payload import FileEntry, Finding, Fixture, FixtureTensor
from aotc.spec.profile import profile_of
from aotc.spec.providers import BY_ORT_NAME, CPU
from aotc.spec.target import ISA_FEATURES
from aotc.spec.variant import DroppedVariant, Requirements, Variant
from aotc.spec.versions import MANIFEST_SCHEMA, release
from aotc.tools.merge_agreement import (
    Input,
    built_alike,
    built_as,
    joined_profile,
    joined_target,
    joined_toolchain,
    renamed_profile,
    require_one_name,
)

# Of a file that one graph reads alone, more is taken over than this share: it is used as it is.
_WHOLE: Final = 0.95
# Says of a variant of the profile that it was not built, as another host's build may have done.
_NOT_BUILT_HERE: Final = "AOTC-O002"
_RENAMED: Final = "AOTC-I180"


@record
class MergedPayload:
    """A payload that was written: its manifest, digests by path, and where each variant is from.

    `names` are those of each input's variants here, by the name that they have in it, in the order
    of the inputs.
    """

    manifest: Manifest
    artifact_id: str
    digests: Mapping[str, str]
    names: tuple[Mapping[str, str], ...]
    findings: tuple[Finding, ...]


@record(kw_only=False)
class _Form:
    """A variant of one input, read: its graph, and what its content is, wherever that stands."""

    variant: Variant
    graph: onnx.ModelProto
    keys: tuple[str, ...]
    content: str


@record(frozen=False, kw_only=False)
class _Kept:
    """A variant of the merged artifact, with the form that is taken, and its new name and place."""

    form: _Form
    source: Input
    name: str
    spec: str
    component: str = ""

    @property
    def folder(self) -> str:
        """Its folder in the payload."""
        return f"{self.component}/{self.name}"


def write_merged(inputs: Sequence[Input], payload: Path, work: Path) -> MergedPayload:
    """Write one payload of `inputs`, which agree and are in their canonical order, to `payload`.

    `work` is an empty folder on the same file system.  Raises AOTC-I179 if fixtures contradict,
    I182 as `require_one_name` does, and S017 as `joined_profile` does.
    """
    forms = [[_form(each, variant) for variant in each.manifest.variants] for each in inputs]
    specs, findings = _spec_names(inputs, forms)
    kept, names = _kept_variants(inputs, forms, specs)
    require_one_name(inputs, names)
    _place_in_components(kept)
    payload.mkdir()
    variants, entries = _write_variants(kept, payload, work)
    fixtures = _write_fixtures(inputs, names, payload)
    shipped = {tensor.path for each in fixtures for tensor in (*each.inputs, *each.outputs)}
    entries += [file_entry(payload / path, payload, "fixture") for path in shipped]
    name = inputs[0].manifest.name
    (payload / "manifest.json").write_bytes(canonical_json(ort_manifest(name, variants)))
    entries.append(file_entry(payload / "manifest.json", payload, "package"))
    entries.sort(key=lambda entry: entry.path)
    manifest = _manifest(inputs, specs, names, variants, fixtures, entries)
    text = canonical_json(encode(manifest))
    (payload / "aotc.json").write_bytes(text)
    digests = {entry.path: entry.sha256 for entry in entries}
    digests["aotc.json"] = hashlib.sha256(text).hexdigest()
    return MergedPayload(
        manifest=manifest,
        artifact_id=digests["aotc.json"],
        digests=digests,
        names=tuple(names),
        findings=findings,
    )


# Which variants are the same, and how those are called that are not.


def _form(source: Input, variant: Variant) -> _Form:
    """The content of a variant: its record without names and places, its graph, and its files."""
    graph = onnx.load(source.folder / variant.model, load_external_data=False)
    keys = _tensor_keys(source, variant, graph)
    bare = onnx.ModelProto()
    bare.CopyFrom(graph)
    for tensor, _, _ in weights.external_tensors(bare):
        del tensor.external_data[:]
    folder = f"{variant.model.rpartition('/')[0]}/"
    digests = {entry.path: entry.sha256 for entry in source.manifest.files}
    placed = replace(
        variant,
        component="-",
        model="-",
        weights=None if not _reads_by_offset(variant) else variant.weights,
        files=(),
        partitioning=_moved(variant, folder, "").partitioning,
    )
    content = {
        "variant": encode(placed),
        "graph": hashlib.sha256(bare.SerializeToString(deterministic=True)).hexdigest(),
        "tensors": keys,
        "files": {
            path.removeprefix(folder): digests[path]
            for path in variant.files
            if path != variant.model and path.startswith(folder)
        },
    }
    return _Form(variant, graph, keys, canonical_sha256(content))


def _tensor_keys(source: Input, variant: Variant, graph: onnx.ModelProto) -> tuple[str, ...]:
    """The sha256 of each external tensor of a graph, in order."""
    if variant.weights is None:
        return ()
    found: dict[tuple[str, int, int], str] = {}
    for tensor, offset, length in weights.external_tensors(graph):
        place = (weights.location(tensor), offset, length)
        if place not in found:
            with open_plain(source.folder / variant.weights / place[0]) as file:
                found[place] = weights.digest(file, offset, length)
    return tuple(
        found[weights.location(tensor), offset, length]
        for tensor, offset, length in weights.external_tensors(graph)
    )


def _reads_by_offset(variant: Variant) -> bool:
    """Whether compiled parts of it read the weights, so that these must stay as they are."""
    options = variant.session.provider_options.values()
    return any(WEIGHTS_PLACEHOLDER in text for stated in options for text in stated.values())


def _spec_names(
    inputs: Sequence[Input], forms: Sequence[Sequence[_Form]]
) -> tuple[list[dict[str, str]], tuple[Finding, ...]]:
    """By input, the new name of each of its profile's variants; AOTC-I180 for each that changed.

    A name that has one content stays.  Else no input keeps it, so that it never depends on the
    order of the inputs which variant a name means: what tells the inputs apart is added.
    """
    contents: dict[str, list[tuple[int, str]]] = {}
    for index, of_input in enumerate(forms):
        every: dict[str, list[str]] = {}
        for form in of_input:
            every.setdefault(spec_of(form.variant), []).append(form.content)
        for spec, parts in every.items():
            contents.setdefault(spec, []).append((index, canonical_sha256(parts)))
    taken = set(contents)
    found: list[dict[str, str]] = [{} for _ in inputs]
    findings = []
    for spec, of_spec in sorted(contents.items()):
        # Of those that are the same, the first stands for all.
        first = {content: index for index, content in reversed(of_spec)}
        labels = _labels([(inputs[index], forms[index]) for index in first.values()], spec)
        called = dict(zip(first, labels, strict=True))
        for index, content in of_spec:
            name = spec
            if len(first) > 1:
                name = f"{spec}-{called[content]}"
                if name in taken:
                    name = f"{name}-{inputs[first[content]].artifact_id[:8]}"
            found[index][spec] = name
        if len(first) > 1:
            new = ", ".join(sorted({found[index][spec] for index, _ in of_spec}))
            what = f"the inputs have different variants of this name, which are now {new}"
            findings.append(Finding(code=_RENAMED, what=what, where=f"variant {spec}"))
    return found, tuple(findings)


def _labels(sources: Sequence[tuple[Input, Sequence[_Form]]], spec: str) -> list[str]:
    """What tells each of `sources` from the others.

    That is the first of their providers, targets, CPUs, ONNX Runtimes and profiles that differs
    among all of them; else several of these together, or at last their ids.
    """
    described = []
    for source, forms in sources:
        first = next(each.variant for each in forms if spec_of(each.variant) == spec)
        described.append(
            (
                _provider_name(first.providers[0]),
                "-".join(source.manifest.target.split(", ")),
                _cpu_name(first.requirements),
                f"ort{'.'.join(map(str, source.runtime))}",
                str(source.profile["name"]),
            )
        )
    traits = list(zip(*described, strict=True))
    differing = [trait for trait in traits if len(set(trait)) > 1]
    together = ["-".join(filter(None, parts)) for parts in zip(*differing, strict=True)]
    for labels in (*traits, together):
        if all(labels) and len(set(labels)) == len(sources):
            return [label[:64] for label in labels]
    return [source.artifact_id[:8] for source, _ in sources]


def _provider_name(ort_name: str) -> str:
    known = BY_ORT_NAME.get(ort_name)
    return known.name if known is not None else ort_name


def _cpu_name(needs: Requirements) -> str:
    """The name for CPUs with the features that a variant requires; empty if it requires none."""
    known = ISA_FEATURES.get(needs.architecture, ())
    features = [name for name in known if name in needs.isa]
    return cpu_name(features) or (features[-1] if features else "")


def _kept_variants(
    inputs: Sequence[Input], forms: Sequence[Sequence[_Form]], specs: Sequence[Mapping[str, str]]
) -> tuple[list[_Kept], list[Mapping[str, str]]]:
    """Each variant once, in the order of the merged artifact; and the new names by input."""
    by_spec: dict[str, list[_Kept]] = {}
    names: list[Mapping[str, str]] = []
    chains = []
    for source, of_input, renamed in zip(inputs, forms, specs, strict=True):
        new: dict[str, str] = {}
        fresh: dict[str, list[_Kept]] = {}
        for form in of_input:
            old = spec_of(form.variant)
            spec = renamed[old]
            name = f"{spec}{form.variant.name.removeprefix(old)}"
            new[form.variant.name] = name
            fresh.setdefault(spec, []).append(_Kept(form, source, name, spec))
        names.append(new)
        chains.append(list(fresh))
        for spec, kept in fresh.items():
            by_spec.setdefault(spec, kept)
    ranks = {spec: _rank(kept[0]) for spec, kept in by_spec.items()}
    order = in_merged_order(chains, lambda spec: ranks[spec])
    return [each for spec in order for each in by_spec[spec]], names


def _rank(kept: _Kept) -> tuple[object, ...]:
    """What comes first where no input says so: accelerators, what runs anywhere, new runtimes."""
    variant = kept.form.variant
    own = variant.providers[0] == CPU
    newest = tuple(-number for number in release(variant.requirements.onnxruntime_min))
    exact = variant.requirements.isa_exact
    return variant.device != "gpu", own, exact, variant.requirements.isa, newest, kept.spec


def in_merged_order(
    chains: Sequence[Sequence[str]], rank: Callable[[str], tuple[object, ...]]
) -> list[str]:
    """All names of `chains`, in the order of each of them; where these leave it open, by rank.

    By rank alone, if the chains contradict each other.
    """
    left = {name: rank(name) for chain in chains for name in chain}
    found: list[str] = []
    while left:
        heads = {next((name for name in chain if name in left), "") for chain in chains} - {""}
        ready = [
            name
            for name in heads
            if all(
                name == next(each for each in chain if each in left)
                for chain in chains
                if name in chain
            )
        ]
        if not ready:
            return sorted({name for chain in chains for name in chain}, key=rank)
        best = min(ready, key=lambda name: left[name])
        found.append(best)
        del left[best]
    return found


def _place_in_components(kept: Sequence[_Kept]) -> None:
    """Give each variant its component: that of its build, unless another has it for the provider.

    ONNX Runtime takes the first variant of a provider in a component, so `model` gets the one that
    the oldest runtime loads, which later ones do too.
    """
    taken: dict[tuple[str, str], str] = {}
    oldest = sorted(kept, key=lambda each: release(each.form.variant.requirements.onnxruntime_min))
    for each in oldest:
        variant = each.form.variant
        suffix = variant.component.removeprefix("model")
        own = f".{spec_of(variant)}"
        if suffix == own or suffix.startswith(f"{own}."):
            suffix = suffix.removeprefix(own)
        provider = variant.providers[0]
        component = f"model{suffix}"
        if taken.setdefault((component, provider), each.spec) != each.spec:
            component = f"model.{each.spec}{suffix}"
            taken[component, provider] = each.spec
        each.component = component


# Graphs, compiled parts and weights.


def _write_variants(
    kept: Sequence[_Kept], payload: Path, work: Path
) -> tuple[list[Variant], list[FileEntry]]:
    """Write all variants; the weights are stored as a build stores those of its variants."""
    shared = [each for each in kept if not _reads_by_offset(each.form.variant)]
    folder = work / "weights"
    folder.mkdir()
    graphs = {each.name: each.form.graph for each in kept}
    with_data = [each for each in shared if each.form.keys]
    if with_data:
        store_weights(
            [graphs[each.name] for each in with_data],
            [_one_file(each, graphs[each.name], work) for each in with_data],
            [each.form.keys for each in with_data],
            [(each.spec, each.name) for each in with_data],
            folder,
        )
    asset, entries = move_weights(folder, digest_weights(folder, Tally(None, BYTES)), payload)
    variants = []
    for each in kept:
        variant, graph = each.form.variant, graphs[each.name]
        by_offset = _reads_by_offset(variant)
        weights_folder = variant.weights if by_offset else asset
        moved = _moved(variant, f"{variant.model.rpartition('/')[0]}/", f"{each.folder}/")
        place = payload / each.folder
        place.mkdir(parents=True)
        if by_offset:
            shutil.copyfile(each.source.folder / variant.model, place / "model.onnx")
        else:
            (place / "model.onnx").write_bytes(graph.SerializeToString(deterministic=True))
        read = [file for file in moved.files if not file.startswith("shared_assets/")]
        own = [file for file in moved.files if file.startswith("shared_assets/")]
        if not by_offset:
            own = [f"{asset}/{name}" for name in weights.external_locations(graph)]
        files = (read[0], *own, *read[1:])
        variants.append(
            replace(
                moved,
                name=each.name,
                spec=each.spec if variant.spec or each.spec != each.name else variant.spec,
                component=each.component,
                model=f"{each.folder}/model.onnx",
                weights=weights_folder,
                files=files,
            )
        )
        entries += _copied_files(each, files, payload, {entry.path for entry in entries})
    return variants, entries


def _copied_files(
    each: _Kept, files: Iterable[str], payload: Path, known: set[str]
) -> Iterator[FileEntry]:
    """The files of a variant that its input has under the same name, or in its own folder."""
    old = each.form.variant.model.rpartition("/")[0]
    roles = {entry.path: entry.role for entry in each.source.manifest.files}
    for path in files:
        if path in known:
            continue
        own = path.startswith(f"{each.folder}/")
        source = f"{old}/{path.removeprefix(f'{each.folder}/')}" if own else path
        if not (payload / path).exists():
            (payload / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each.source.folder / source, payload / path)
        yield file_entry(payload / path, payload, roles[source])


def _one_file(each: _Kept, graph: onnx.ModelProto, work: Path) -> Path:
    """The external data of one graph in a file of its own, to which `graph` refers then."""
    variant = each.form.variant
    source = each.source.folder / (variant.weights or "")
    names = weights.external_locations(graph)
    place = work / f"{file_name(each.name)}.data"
    read = {(offset, length) for _, offset, length in weights.external_tensors(graph)}
    packed = any(weights.packed_forms(tensor) for tensor, _, _ in weights.external_tensors(graph))
    size = sum((source / name).stat().st_size for name in names)
    if len(names) == 1 and (packed or sum(length for _, length in read) >= _WHOLE * size):
        os.link(source / names[0], place)
    else:
        weights.gather_tensors(graph, source, place)
    return place


def _moved(variant: Variant, before: str, after: str) -> Variant:
    """The variant whose own files are in the folder `after`, and were in `before`."""

    def moved(path: str) -> str:
        return f"{after}{path.removeprefix(before)}" if path.startswith(before) else path

    report = variant.partitioning
    if report is not None:
        parts = (
            replace(part, file=moved(part.file)) if part.file is not None else part
            for part in report.partitions
        )
        report = replace(report, partitions=tuple(parts))
    return replace(variant, partitioning=report, files=tuple(moved(file) for file in variant.files))


# Fixtures: equal ones once; those with other answers of the original each for its own variants.


def _write_fixtures(
    inputs: Sequence[Input], names: Sequence[Mapping[str, str]], payload: Path
) -> tuple[Fixture, ...]:
    """Copy the fixtures of all inputs into the payload; raises AOTC-I179.

    The original's answers may differ in a few bits from CPU to CPU, or by the runtime.  Each
    variant is then judged by those of the host that proved it.
    """
    found: dict[tuple[str, str], tuple[int, Fixture]] = {}
    speaks_of: dict[tuple[str, str], set[str]] = {}
    for index, source in enumerate(inputs):
        digests = {entry.path: entry.sha256 for entry in source.manifest.files}
        for fixture in source.manifest.fixtures:
            asked = _asked_as(source, fixture)
            answers = canonical_sha256({one.name: digests[one.path] for one in fixture.outputs})
            for (name, _), (other, theirs) in found.items():
                if name == asked:
                    _require_same_question(inputs[other], theirs, source, fixture)
                    _require_close(inputs[other], theirs, source, fixture)
            key = (asked, answers)
            found.setdefault(key, (index, fixture))
            compared = names[index].keys() - set(fixture.excluded_variants)
            speaks_of.setdefault(key, set()).update(names[index][name] for name in compared)
    every = dict.fromkeys(name for of_input in names for name in of_input.values())
    shipped: dict[str, Fixture] = {}
    for (name, answers), (index, fixture) in found.items():
        new = f"{name[:54]}-{answers[:8]}" if name in shipped else name
        place = inputs[index].folder
        shipped[new] = replace(
            fixture,
            name=new,
            excluded_variants=tuple(each for each in every if each not in speaks_of[name, answers]),
            inputs=(
                shipped[name].inputs
                if name in shipped
                else _copied(fixture.inputs, place, new, payload)
            ),
            outputs=_copied(fixture.outputs, place, new, payload),
        )
    return tuple(shipped.values())


def _asked_as(source: Input, fixture: Fixture) -> str:
    """The name of the first fixture of an input with the same files of inputs.

    In what was merged those have them in common that differ in the answers alone.
    """
    return next(each.name for each in source.manifest.fixtures if each.inputs == fixture.inputs)


def _copied(
    tensors: Iterable[FixtureTensor], source: Path, fixture: str, payload: Path
) -> tuple[FixtureTensor, ...]:
    result = []
    for tensor in tensors:
        path = f"fixtures/{file_name(fixture)}/{tensor.path.rpartition('/')[2]}"
        (payload / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / tensor.path, payload / path)
        result.append(replace(tensor, path=path))
    return tuple(result)


def _require_same_question(one: Input, ours: Fixture, other: Input, theirs: Fixture) -> None:
    def asked(source: Input, fixture: Fixture) -> Json:
        digests = {entry.path: entry.sha256 for entry in source.manifest.files}
        return {each.name: digests[each.path] for each in fixture.inputs}, fixture.origin

    if asked(one, ours) != asked(other, theirs):
        raise AotcError(
            "AOTC-I179",
            f"the fixture {ours.name} has other inputs in each",
            where=f"{one.path}, {other.path}",
            expected="the same inputs, generated or the user's, where the name is the same",
            found=f"{ours.origin} and {theirs.origin}",
        )


def _require_close(one: Input, ours: Fixture, other: Input, theirs: Fixture) -> None:
    """The original's answers on two hosts must be those of one model, within its own tolerance."""
    manifest = one.manifest
    tolerance = original_tolerance(manifest, profile_of(manifest).parity)
    paths = {each.name: other.folder / each.path for each in theirs.outputs}
    for each in ours.outputs:
        if each.name not in paths:
            reason = "the output is missing in one of them"
        else:
            expected = values.load(one.folder / each.path, refusal="AOTC-G014")
            found = values.load(paths[each.name], refusal="AOTC-G014")
            reason = compare(expected, found, tolerance, each.name).reason
        if reason:
            raise AotcError(
                "AOTC-I179",
                f"the original's answers to the fixture {ours.name} differ between the hosts",
                where=f"{one.path}, {other.path}: output {each.name}",
                expected=f"at most {tolerance.atol:g} + {tolerance.rtol:g} of the largest value",
                found=reason,
            )


# The manifest: what all agree on, and what each adds.


def _manifest(
    inputs: Sequence[Input],
    specs: Sequence[Mapping[str, str]],
    names: Sequence[Mapping[str, str]],
    variants: Sequence[Variant],
    fixtures: Sequence[Fixture],
    entries: Sequence[FileEntry],
) -> Manifest:
    first = inputs[0].manifest
    merged = [
        replace(each, profile=renamed_profile(each.profile, renamed))
        for each, renamed in _with_specs(built_as(inputs, names), inputs, specs)
    ]
    alike = built_alike(merged)
    target = first.target if alike else joined_target(merged)
    targets = sorted({each.target_sha256 for each in merged})
    profiles = [
        renamed_profile(each.profile, renamed) for each, renamed in zip(inputs, specs, strict=True)
    ]
    ranks = {spec_of(each): at for at, each in enumerate(variants)}

    def in_order(chains: Sequence[Sequence[str]]) -> list[str]:
        return in_merged_order(chains, lambda name: (ranks.get(name, len(ranks)), name))

    profile = joined_profile(profiles, target, in_order)
    features = {name for each in inputs for name in each.manifest.required_features}
    features -= {"fixture-variants", "merged-hosts"}
    features |= {"fixture-variants"} if any(each.excluded_variants for each in fixtures) else set()
    features |= set() if alike else {"merged-hosts"}
    built = {(spec_of(each), tuple(sorted(each.buckets.items()))) for each in variants}
    return replace(
        first,
        schema=MANIFEST_SCHEMA,
        required_features=tuple(sorted(features)),
        profile=profile,
        profile_sha256=canonical_sha256(profile),
        target=target,
        target_sha256=targets[0] if len(targets) == 1 else canonical_sha256(targets),
        toolchain=joined_toolchain(inputs),
        findings=_findings(inputs, specs, names, built),
        variants=tuple(variants),
        dropped=_dropped(inputs, specs, built),
        waivers=_waivers(inputs, specs),
        branches=_branches(inputs),
        fixtures=tuple(fixtures),
        input_ranges={} if fixtures else first.input_ranges,
        merged=() if alike else tuple(merged),
        files=tuple(entries),
    )


def _with_specs(
    merged: Sequence[MergedBuild],
    inputs: Sequence[Input],
    specs: Sequence[Mapping[str, str]],
) -> Iterator[tuple[MergedBuild, Mapping[str, str]]]:
    """Each with the new names of its profile's variants: those of the input that it is from."""
    for each in merged:
        for source, renamed in zip(inputs, specs, strict=True):
            held = {source.artifact_id, *(one.artifact_id for one in source.manifest.merged)}
            if each.artifact_id in held:
                yield each, renamed
                break


def _findings(
    inputs: Sequence[Input],
    specs: Sequence[Mapping[str, str]],
    names: Sequence[Mapping[str, str]],
    built: Iterable[tuple[str, object]],
) -> tuple[Finding, ...]:
    """Those of all inputs, each once; none that says that a variant is missing which is here."""
    have = {spec for spec, _ in built}
    found: dict[Finding, None] = {}
    for source, renamed, called in zip(inputs, specs, names, strict=True):
        for finding in source.manifest.findings:
            kind, _, name = finding.where.rpartition(" ")
            if kind == "variant":
                new = called.get(name) or renamed.get(name) or name
                finding = replace(finding, where=f"variant {new}")
            if finding.code != _NOT_BUILT_HERE or name not in have:
                found.setdefault(finding)
    return tuple(found)


def _dropped(
    inputs: Sequence[Input],
    specs: Sequence[Mapping[str, str]],
    built: Iterable[tuple[str, object]],
) -> tuple[DroppedVariant, ...]:
    """The variants that a build left out, and no other host's build has."""
    have = set(built)
    found: dict[tuple[str, object], DroppedVariant] = {}
    for source, renamed in zip(inputs, specs, strict=True):
        for each in source.manifest.dropped:
            spec = renamed.get(each.spec, each.spec)
            key = (spec, tuple(sorted(each.buckets.items())))
            if key not in have:
                name = f"{spec}{each.name.removeprefix(each.spec)}"
                found.setdefault(key, replace(each, name=name, spec=spec))
    return tuple(found.values())


def _waivers(
    inputs: Sequence[Input], specs: Sequence[Mapping[str, str]]
) -> tuple[AcceptedWaiver, ...]:
    """Those of all inputs, each for the variants of its own input alone."""
    if all(each.manifest.waivers == inputs[0].manifest.waivers for each in inputs):
        everywhere = {each for each in inputs[0].manifest.waivers if not each.variant}
    else:
        everywhere = set()
    found: dict[AcceptedWaiver, None] = {}
    for source, renamed in zip(inputs, specs, strict=True):
        for each in source.manifest.waivers:
            if each in everywhere:
                found.setdefault(each)
                continue
            for name in [each.variant] if each.variant else sorted(renamed):
                found.setdefault(replace(each, variant=renamed.get(name, name)))
    return tuple(found)


def _branches(inputs: Sequence[Input]) -> tuple[ControlPath, ...]:
    """Of each path of the control flow what the proof tells that ran it with the fewest fixtures.

    It holds for every variant then.
    """
    found: dict[tuple[str, str], ControlPath] = {}
    for source in inputs:
        for path in source.manifest.branches:
            known = found.setdefault((path.node, path.path), path)
            if (not path.missing, path.fixtures) < (not known.missing, known.fixtures):
                found[path.node, path.path] = path
    return tuple(found.values())
