"""One artifact of many: variants of one model that were built and proven on different hosts."""

from __future__ import annotations

import datetime
import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import translated_errors
from aotc.base.files.replacing import NEW
from aotc.base.files.work_folders import work_folder
from aotc.base.interruptions import uninterrupted
from aotc.base.progress import BYTES, Progress, Reporter, Tally, watched
from aotc.base.records import replace
from aotc.pipeline.output import Output
from aotc.runtime.rehearsal import Staged, rehearse
from aotc.runtime.routing import spec_of
from aotc.session.worker_pool import Workers
from aotc.spec.attestation_kinds import KINDS, Usage
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.command_reports import MergedVariant, MergeReport
from aotc.spec.evidence import Evidence, MergedProof, VariantEvidence
from aotc.spec.manifest import unproven_findings
from aotc.spec.profile import WorkerLimits, profile_of
from aotc.spec.trust_anchors import Anchor
from aotc.spec.trust_policy import Sealer, Signer
from aotc.spec.versions import artifact_name, artifact_path
from aotc.tools.merge_agreement import Input, in_canonical_order, require_agreement
from aotc.tools.merged_payload import MergedPayload, write_merged
from aotc.trust import dsse, provenance, sbom, statements
from aotc.trust.compatibility import judge, probe_host
from aotc.trust.container import Container, reread
from aotc.trust.gate import authenticate, remember_release
from aotc.trust.opening import copy_files, open_container
from aotc.trust.policy.host_trust import Trust, resolve
from aotc.trust.sealing import sign_all
from aotc.trust.signers import findings_of, load_signer, own_anchors

# What of each input is taken over, and has to be there; each reads what a merge needs of it.
_TAKEN: Final[Mapping[Usage, Callable[[Json], object]]] = {
    "evidence": lambda stated: decode(Evidence, stated),
    "provenance": lambda stated: [*stated["buildDefinition"]["resolvedDependencies"]],
    "sbom": lambda stated: (
        {each["bom-ref"] for each in stated["components"]},
        {**stated["metadata"]["component"]},
    ),
}


@uninterrupted
def merge_artifacts(
    paths: Sequence[str | Path],
    output: str | Path,
    *,
    key: str | Path | Sealer | Signer | None = None,
    trust: str | Path | Trust | None = None,
    channel: str | None = None,
    unsafe_no_trust_state: bool = False,
    force: bool = False,
    builder_id: str | None = None,
    invocation_id: str = "",
    release: str = "",
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> MergeReport:
    """Merge the artifacts at `paths`, of one model, into one at `output`, signed anew.

    Each is a folder, a packed artifact, `sha256-<id>` or `oci://…`, and is verified completely
    first: by `trust`, a policy or a file of public keys, for `channel`; by default this user's
    development key and the signing key are trusted.  They have the same model, ranges and promises;
    variants that are the same become one, and different ones of one name are renamed (AOTC-I180).
    Weights are stored once.  The result depends on the artifacts alone, and not on their order: its
    payload is the one of a build on one host, where one could have made it.  Every variant keeps
    its measurements, with the host where they were made; evidence, provenance and bill of materials
    of each input are materials of the new one.  `key`, `builder_id`, `invocation_id`, `release`,
    `force` and `output` are as in `build`.  The whole gate is passed before the output gets its
    name, and what runs on this host is loaded, and its fixtures run, by `workers` or new ones.

    Raises AOTC-I176 to I179 (they contradict each other), I181, I182, I183 and S017, the gate's
    refusals
    of an input (AOTC-G, I001), I017, I018, I026 and I027 (the output), and G040 (the result fails).
    """
    started, began = datetime.datetime.now(datetime.UTC), time.perf_counter()
    label = provenance.build_label(builder_id, invocation_id, release)
    sbom.require_library()
    signer = load_signer(key) if key is None or isinstance(key, str | Path) else key
    own = own_anchors(signer, "the key of this merge")
    trusted = _trusted(trust, own, channel, unsafe_no_trust_state=unsafe_no_trust_state)
    places = [artifact_path(path) for path in paths]
    place = Path(output)
    _require_two(places, place)
    told = Reporter(progress)
    with watched(progress), translated_errors(str(place)), work_folder(place) as work:
        inputs = []
        for index, path in enumerate(places):
            inputs.append(_verified(path, trusted, work / f"input-{index}", told))
        inputs = in_canonical_order(inputs)
        require_agreement(inputs)
        written = Output(place, inputs[0].manifest.source, force=force)
        written.require_signer(own)
        folder = work / NEW
        folder.mkdir()
        (work / "parts").mkdir()
        made = write_merged(inputs, folder / "payload", work / "parts")
        # Files of theirs that are used as they are have a second name, which no artifact may have.
        for source in (work / "parts", *(each.folder for each in inputs)):
            shutil.rmtree(source)
        by = sign_all(folder, made.digests, _predicates(inputs, made, label, started), signer)
        ran = _runs_here(made)
        size = sum(entry.size for entry in made.manifest.files)
        staged = Staged(
            folder=folder,
            signers=own,
            target=None,
            ran=ran,
            libraries={},
            custom_ops=(),
            bytes=size,
        )
        with nullcontext(workers) if workers is not None else Workers(_limits(inputs)) as running:
            rehearse(staged, running, work / "check")
        written.deliver(folder, made.manifest, work, progress)
    loaded = {name for names in ran.values() for name in names}
    # As they were named, and not in the order of the merge.
    given = sorted(
        zip(inputs, made.names, strict=True), key=lambda each: places.index(each[0].path)
    )
    return MergeReport(
        artifact=str(place),
        artifact_id=made.artifact_id,
        merged={artifact_name(source.path): source.artifact_id for source, _ in given},
        variants=tuple(
            MergedVariant(
                name=variant.name,
                artifacts={
                    artifact_name(source.path): old
                    for source, names in given
                    for old, new in names.items()
                    if new == variant.name
                },
                runs_here=variant.name in loaded,
            )
            for variant in made.manifest.variants
        ),
        payload_bytes=size,
        input_bytes=sum(entry.size for each in inputs for entry in each.manifest.files),
        built_alike=not made.manifest.merged,
        key_id=by.key_id,
        identity=by.identity,
        development_key=by.development_key,
        findings=(
            *made.findings,
            *findings_of(signer),
            *unproven_findings(made.manifest, place.name),
        ),
        seconds=time.perf_counter() - began,
    )


def _require_two(places: Sequence[Path], output: Path) -> None:
    if len(places) < 2:
        raise AotcError(
            "AOTC-I182",
            "a merge needs two artifacts or more",
            expected="two artifacts or more",
            found=", ".join(map(str, places)) or "none",
        )
    there = (output, *output.absolute().parents)
    standing = [each for each in there if each.exists()]
    if any(place.exists() and any(map(place.samefile, standing)) for place in places):
        raise AotcError(
            "AOTC-I182",
            "the output is one of the artifacts that are merged, or stands in it",
            where=str(output),
        )


def _trusted(
    trust: str | Path | Trust | None,
    own: Iterable[Anchor],
    channel: str | None,
    *,
    unsafe_no_trust_state: bool,
) -> Trust:
    if trust is None and channel is None:
        found = resolve(unsafe_no_trust_state=unsafe_no_trust_state)
        if found.policy is None:
            return Trust.of((*found.anchors(), *own))
        return found
    return resolve(trust, channel=channel, unsafe_no_trust_state=unsafe_no_trust_state)


def _verified(path: Path, trusted: Trust, folder: Path, told: Reporter) -> Input:
    """An input that passed steps 1 to 7 of the gate, with its payload copied to the new `folder`.

    Its files are hashed while they are copied, so the gate hashes none.
    """

    def read() -> Input:
        with open_container(path) as container:
            authentic = authenticate(container, trusted, files_to_read=lambda _: ())
            files = [entry.path for entry in authentic.manifest.files]
            tally = Tally(sum(entry.size for entry in authentic.manifest.files), BYTES)
            with told.counting("verify", path.name, tally):
                copy_files(container, authentic.manifest, files, folder, tally)
            found = {
                usage: _statement(container, usage, authentic.id, authentic.trust, path)
                for usage in _TAKEN
            }
        remember_release(authentic)
        evidence = decode(Evidence, found["evidence"][0])
        names = {variant.name for variant in authentic.manifest.variants}
        if unknown := {name for proof in evidence.merged for name in proof.variants} - names:
            raise _lacking(path, "evidence", f"it is of {min(unknown)}, which is not a variant")
        return Input(
            path=path,
            artifact_id=authentic.id,
            manifest=authentic.manifest,
            evidence=evidence,
            provenance=found["provenance"][0],
            sbom=found["sbom"][0],
            statements={usage: digest for usage, (_, digest) in found.items()},
            folder=folder,
        )

    return reread(path, read)


def _statement(
    container: Container, usage: Usage, artifact_id: str, trusted: Trust, path: Path
) -> tuple[Json, str]:
    """The predicate that a trusted signer stated, and the sha256 of its bundle; raises I183."""
    kind = KINDS[usage]
    try:
        bundle = container.read(kind.path, dsse.MAX_BUNDLE_BYTES)
        found = statements.verify(bundle, trusted.anchors(), predicate_type=kind.predicate_type)
    except AotcError as error:
        raise _lacking(path, usage, error.what) from None
    if artifact_id not in found.subjects.values():
        raise _lacking(path, usage, "it is about another artifact")
    try:
        _TAKEN[usage](found.predicate)
    except ParseError as error:
        raise _lacking(path, usage, str(error.problems[0])) from None
    except (LookupError, TypeError):
        raise _lacking(path, usage, "it does not tell what one of a build tells") from None
    return found.predicate, hashlib.sha256(bundle).hexdigest()


def _lacking(path: Path, usage: Usage, why: str) -> AotcError:
    return AotcError(
        "AOTC-I183",
        f"the artifact has no usable {usage}",
        where=f"{artifact_name(path)}: {KINDS[usage].path}",
        expected="signed by a trusted key, as a build writes it",
        found=why,
    )


def _limits(inputs: Sequence[Input]) -> WorkerLimits:
    """Those of the profiles that allow the most, within which each variant was proven."""
    stated = [profile_of(each.manifest).limits for each in inputs]
    return WorkerLimits(
        seconds=max(each.seconds for each in stated),
        memory_bytes=max(each.memory_bytes for each in stated),
        processes=max(each.processes for each in stated),
        parallel=min(each.parallel for each in stated),
    )


def _runs_here(made: MergedPayload) -> dict[str, list[str]]:
    """The proven variants that this host runs, by the profile's variant that they belong to."""
    manifest = made.manifest
    verdicts = judge(manifest, probe_host(manifest)).variants
    runs = {verdict.name for verdict in verdicts if verdict.runs and not verdict.unproven}
    found: dict[str, list[str]] = {}
    for variant in manifest.variants:
        if variant.name in runs:
            found.setdefault(spec_of(variant), []).append(variant.name)
    return found


# What is stated about it: everything that was stated about the inputs.


def _predicates(
    inputs: Sequence[Input],
    made: MergedPayload,
    label: provenance.BuildLabel,
    started: datetime.datetime,
) -> dict[Usage, Json]:
    evidence = merged_evidence(inputs, made.names)
    hosts: dict[str, list[str]] = {}
    for proof in evidence.merged:
        text = f"{proof.host.get('architecture', '')} {proof.host.get('isa', '')}".strip()
        for name in proof.variants:
            told = f"{text}, ONNX Runtime {proof.onnxruntime}, target {proof.target}"
            hosts.setdefault(name, []).append(told)
    return {
        "evidence": encode(evidence),
        "provenance": provenance.merge_predicate(
            {each.artifact_id: each.statements for each in inputs},
            {each.statements["provenance"]: each.provenance for each in inputs},
            label,
            started,
        ),
        "sbom": sbom.merged_bill(
            made.manifest,
            made.artifact_id,
            [each.sbom for each in inputs],
            {name: "; ".join(dict.fromkeys(told)) for name, told in hosts.items()},
        ),
    }


def merged_evidence(inputs: Sequence[Input], names: Sequence[Mapping[str, str]]) -> Evidence:
    """What was measured of every variant, with the hosts; `names` are the new ones, by input.

    It holds no time of the merge: equal inputs give equal bytes.
    """
    measured: dict[str, VariantEvidence] = {}
    proofs: list[MergedProof] = []
    for source, renamed in zip(inputs, names, strict=True):
        evidence = source.evidence
        own: dict[str, VariantEvidence] = {
            renamed[each.name]: _renamed(each, renamed)
            for each in evidence.variants
            if each.name in renamed
        }
        further = tuple(own[name] for name in sorted(own) if name in measured)
        measured = {**own, **measured}
        if evidence.merged:
            for proof in evidence.merged:
                here = {renamed[name]: old for name, old in proof.variants.items()}
                kept = tuple(_renamed(each, renamed) for each in proof.further)
                # What stood above is of the first that has the variant.
                above = tuple(each for each in further if each.name in here)
                further = tuple(each for each in further if each.name not in here)
                if proof.statement_sha256 not in {each.statement_sha256 for each in proofs}:
                    proofs.append(replace(proof, variants=here, further=(*above, *kept)))
            continue
        proofs.append(
            MergedProof(
                artifact_id=source.artifact_id,
                statement_sha256=source.statements["evidence"],
                host=evidence.host,
                target=source.manifest.target,
                onnxruntime=source.manifest.toolchain.onnxruntime,
                built_at=evidence.built_at,
                stages=evidence.stages,
                variants={new: old for old, new in renamed.items()},
                further=further,
                noise=evidence.noise,
                notes=evidence.notes,
                tuning=evidence.tuning,
                tuned_model_sha256=evidence.tuned_model_sha256,
                exported=evidence.exported,
            )
        )
    first = inputs[0].evidence
    order = dict.fromkeys(name for of_input in names for name in of_input.values())
    return Evidence(
        built_at=max(each.evidence.built_at for each in inputs),
        stages={},
        variants=tuple(measured[name] for name in order if name in measured),
        noise=first.noise,
        host={},
        model_sha256=first.model_sha256,
        exported=first.exported,
        merged=tuple(proofs),
    )


def _renamed(evidence: VariantEvidence, names: Mapping[str, str]) -> VariantEvidence:
    """The same measurements under the variant's new name."""
    timed, blamed = evidence.timed_against, evidence.blamed
    if timed is not None:
        timed = replace(timed, other=names.get(timed.other, timed.other))
    if blamed is not None:
        blamed = replace(blamed, variant=names.get(blamed.variant, blamed.variant))
    name = names.get(evidence.name, evidence.name)
    return replace(evidence, name=name, timed_against=timed, blamed=blamed)
