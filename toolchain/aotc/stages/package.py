"""Package: the payload as an ORT model package, with our manifest."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from aotc.contract.codec.canonical import canonical_json
from aotc.contract.codec.parsing import encode
from aotc.contract.finding import Finding
from aotc.contract.manifest.payload_files import FileEntry, Fixture
from aotc.contract.manifest.variant import DroppedVariant
from aotc.contract.results.run_report import Figure, Gate
from aotc.errors import EXIT_NO, AotcError
from aotc.records import replace
from aotc.stages.assembling.file_entries import file_entry
from aotc.stages.assembling.manifests import manifest_of, ort_manifest
from aotc.stages.assembling.shipped_fixtures import ship_fixtures
from aotc.stages.assembling.variant_entry import variant_entry
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import Artifact, ProvenModel
from aotc.watching import BYTES, Tally


def package(
    proven: Sequence[ProvenModel],
    dropped: Sequence[DroppedVariant],
    findings: Sequence[Finding],
    weights: Sequence[FileEntry],
    folder: Path,
    options: BuildOptions,
) -> Artifact:
    """Write the payload of all variants to `folder/payload`; raises AOTC-M001.

    `weights` are the entries of the shared asset's files, hashed while the variants were proven.
    """
    payload = folder / "payload"
    payload.mkdir(parents=True)
    analyzed = proven[0].lowered.analyzed
    asset, entries = _move_weights(proven[0].lowered.weights, weights, payload)
    for old_weights in {item.lowered.partitioned.claimed.weights for item in proven}:
        # Unchanged files have a hard link there, which no artifact may contain.
        shutil.rmtree(old_weights, ignore_errors=True)
    variants = []
    for item in proven:
        variant = variant_entry(item, asset, options)
        place = payload / variant.model
        place.parent.mkdir(parents=True)
        shutil.move(item.lowered.model, place)
        entries.append(file_entry(place, payload, "model"))
        for context in item.lowered.contexts:
            shutil.move(context, place.with_name(context.name))
            entries.append(file_entry(place.with_name(context.name), payload, "ep-context"))
        variants.append(variant)
    fixtures = ship_fixtures(analyzed, [item.plan for item in proven], payload, options)
    findings = (*findings, *_without_fixture(fixtures, proven, options))
    for fixture in fixtures:
        for tensor in (*fixture.inputs, *fixture.outputs):
            entries.append(file_entry(payload / tensor.path, payload, "fixture"))
    (payload / "manifest.json").write_bytes(canonical_json(ort_manifest(analyzed, variants)))
    entries.append(file_entry(payload / "manifest.json", payload, "package"))
    entries.sort(key=lambda entry: entry.path)
    document = encode(
        manifest_of(analyzed, variants, dropped, fixtures, entries, findings, options)
    )
    text = canonical_json(document)
    (payload / "aotc.json").write_bytes(text)
    digests = {entry.path: entry.sha256 for entry in entries}
    digests["aotc.json"] = hashlib.sha256(text).hexdigest()
    total = sum(entry.size for entry in entries) + len(text)
    _judge_size(total, options)
    return Artifact(
        folder=folder,
        artifact_id=digests["aotc.json"],
        digests=digests,
        payload_bytes=total,
        proven=tuple(proven),
        findings=tuple(findings),
    )


def _judge_size(total: int, options: BuildOptions) -> None:
    """Compare the payload's bytes with their budget; raises AOTC-M001."""
    subject = "payload"
    options.journal.measured((Figure(name="size", subject=subject, value=total, unit="B"),))
    budget = options.profile.budgets.artifact_bytes
    if budget is None:
        return
    place = options.places.of("budgets.artifact_bytes")
    gate = Gate(
        name="budgets.artifact_bytes",
        subject=subject,
        status="failed" if total > budget else "passed",
        limit=f"<= {budget} bytes",
        measured=f"{total} bytes",
        place=place,
    )
    options.journal.judged((gate,))
    if total > budget:
        raise AotcError(
            "AOTC-M001",
            "the payload is larger than its budget",
            where="budgets.artifact_bytes",
            expected=gate.limit,
            found=gate.measured,
            place=place,
        )


def size_breach(
    variants: Sequence[ProvenModel],
    weights: Sequence[FileEntry],
    folder: Path,
    options: BuildOptions,
) -> AotcError | None:
    """The AOTC-M001 of a build that other gates refuse, if the profile limits its size.

    Its payload is made to be measured, in `folder`, and never published.
    """
    if options.profile.budgets.artifact_bytes is None or not variants:
        return None
    try:
        package(variants, (), (), weights, folder, options)
    except AotcError as error:
        if error.exit_status != EXIT_NO:
            raise
        return error
    return None


def weight_bytes(folder: Path) -> Tally:
    """Counts the bytes that `digest_weights` goes through."""
    return Tally(sum(file.stat().st_size for file in folder.iterdir()), BYTES)


def digest_weights(folder: Path, tally: Tally) -> tuple[FileEntry, ...]:
    """Entries of the shared asset's files, by name, relative to `folder`."""
    return tuple(
        file_entry(file, folder, "weights", tally.add) for file in sorted(folder.iterdir())
    )


def _move_weights(
    source: Path, entries: Sequence[FileEntry], payload: Path
) -> tuple[str | None, list[FileEntry]]:
    """Move the shared asset to the URI that ORT's package library computes for it."""
    if not entries:
        return None, []
    lines = "".join(f"{entry.sha256}  {entry.path}\n" for entry in entries)
    name = f"shared_assets/sha256-{hashlib.sha256(lines.encode()).hexdigest()}"
    (payload / name).parent.mkdir()
    shutil.move(source, payload / name)
    return name, [replace(entry, path=f"{name}/{entry.path}") for entry in entries]


def _without_fixture(
    fixtures: Sequence[Fixture], proven: Sequence[ProvenModel], options: BuildOptions
) -> Iterator[Finding]:
    """AOTC-N006 for each variant that no shipped fixture speaks of; one if none is shipped."""
    spec = options.profile.fixtures
    if not spec.max_count:
        return
    unfit = []
    for item in proven:
        name = item.plan.name
        if any(name not in fixture.without for fixture in fixtures):
            continue
        runs = item.lowered.analyzed.references_of(item.plan)
        if not options.embed_fixtures and all(run.origin == "user" for run in runs):
            yield Finding(
                code="AOTC-N006",
                what="it was compared on the user's data alone, which is not in the artifact "
                "without --embed-fixtures: loads are not accepted by example",
                where=f"variant {name}",
            )
        else:
            unfit.append(f"variant {name}")
    limits = f"fixtures.max_bytes ({spec.max_bytes} bytes)"
    if fixtures:
        limits = f"fixtures.max_count ({spec.max_count}) and {limits}"
    elif len(unfit) == len(proven):
        unfit = [""]
    for where in unfit:
        yield Finding(
            code="AOTC-N006",
            what=f"none fits {limits}: loads are not accepted by example",
            where=where,
        )
