"""Exports of a variant: verified files in a form that other software opens without aotc."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import ATTESTATIONS, EXPORTED, MANIFEST, PAYLOAD
from aotc.base.files.reading import file_sha256, read_at_most
from aotc.base.files.replacing import EXPORT, put_in_place
from aotc.base.files.work_folders import draft_path, prepare_output
from aotc.base.interruptions import uninterrupted
from aotc.base.progress import BYTES, Progress, Reporter, Tally
from aotc.base.records import field, record, replace
from aotc.base.registry import Registry
from aotc.base.text import did_you_mean
from aotc.runtime.routing import spec_of, variants_named
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX
from aotc.spec.codec import ParseError, decode, encode
from aotc.spec.command_reports import Exported, ExportReport
from aotc.spec.json import MAX_JSON_BYTES, document, strict_json
from aotc.spec.manifest import Manifest, unproven_findings
from aotc.spec.payload import Finding
from aotc.spec.providers import CPU, GRAPH_OPTION
from aotc.spec.shapes import Domain
from aotc.spec.variant import Variant
from aotc.spec.versions import artifact_name, artifact_path, stated_reference
from aotc.trust.compatibility import by_preference, error_of, judge, probe_host
from aotc.trust.container import Container, reread
from aotc.trust.dsse import MAX_BUNDLE_BYTES
from aotc.trust.gate import AuthenticArtifact, authenticate, remember_release
from aotc.trust.opening import copy_files, identified, open_container
from aotc.trust.policy.host_trust import Trust, resolve

# Each is a function of an `ExportSource` that says what the export has, as a `Layout`.
FORMATS: Final = Registry(
    "format",
    (
        ("onnx", "aotc.tools.onnx_folder:layout"),
        ("triton", "aotc.tools.triton:layout"),
        ("kserve", "aotc.tools.kserve:layout"),
    ),
)

_FIX: Final = "Choose another folder with -o, or remove it; --force replaces only an export."
# In an export that has another one within: where that is, and its format.
MODELS: Final = "models"
MODELS_FORMAT: Final = "triton"
ONNX: Final = "onnx"
# Of a payload file that bytes are taken out of.
MAX_TAKEN_BYTES: Final = 16 << 20
# ORT's own manifest, which the gate compares with ours.
PACKAGE: Final = "manifest.json"


@record
class ExportSource:
    """What a format is laid out from: one variant of an artifact, and what was asked for.

    `name` is that under which a server knows the model, if the format has one.  `reference` is
    `HOST/REPOSITORY@sha256:…` of an artifact in a registry, which has it in the `form`; else both
    are empty.  With `reverify`, the export can be verified where it lies.
    """

    manifest: Manifest
    variant: Variant
    described: Exported
    name: str = ""
    reference: str = ""
    form: str = ""
    reverify: bool = False


@record(kw_only=False)
class Taken:
    """Bytes of an export that `take` makes of the content of the payload file `path`."""

    path: str
    take: Callable[[bytes], bytes]


@record
class Layout:
    """What an export has, by path in it; it follows from the manifest alone.

    `files` are payload files as they are.  `evidence` is the folder for what verifies the export in
    place.  `models` is a whole export of the format `MODELS_FORMAT`, in the folder `MODELS`.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    taken: Mapping[str, Taken] = field(default_factory=dict)
    evidence: str = ""
    models: Layout | None = None
    findings: tuple[Finding, ...] = ()

    def payload_files(self) -> dict[str, None]:
        """The payload files that it is made of."""
        inner = self.models.payload_files() if self.models is not None else {}
        return inner | dict.fromkeys(
            (*self.files.values(), *(taken.path for taken in self.taken.values()))
        )


@record(kw_only=False)
class _Choice:
    """The variant that is exported, why this one, and whether there were others."""

    variant: Variant
    reason: str
    findings: tuple[Finding, ...]


@record
class _Verified:
    """What was copied out of a verified artifact, and how an export is laid out from it."""

    authentic: AuthenticArtifact
    choice: _Choice
    source: ExportSource
    layout: Layout
    evidence: Mapping[str, bytes]


@uninterrupted
def export(
    artifact: str | Path,
    output: str | Path,
    *,
    format: str = "onnx",
    variant: str | None = None,
    trust: str | Path | Trust | None = None,
    key: str | Path | None = None,
    channel: str | None = None,
    unsafe_no_trust_state: bool = False,
    name: str | None = None,
    reverify: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> ExportReport:
    """Verify an artifact, and write one of its variants for software that knows nothing of it.

    `artifact` is the path of a folder or packed artifact, `sha256-<id>` of an entry of a store, or
    a reference `oci://…`, of which only the variant's files are fetched; `trust`, `key`, `channel`
    and `unsafe_no_trust_state` are as in `load`.  The folder `output` appears when it is complete,
    and depends on the artifact and the variant alone; with `force` it replaces an earlier export
    with nothing else in it.  The format `onnx` is `model.onnx` with its weights and compiled parts
    beside it, a README.md, and `export.json` with the options that the variant was proven with;
    `triton` is a model repository for Triton's ONNX Runtime; `kserve` adds the manifests of a
    service, or consists of them alone for an artifact in a registry, which its pods then export
    themselves.  From then on nobody verifies the files, or checks host, placement, sizes and
    answers.  With `reverify`, the export also has the signed manifest and the signatures, by which
    `verify_export` verifies the files where they lie.  `name` is that of the model in the server,
    by default the artifact's.

    `variant` names one; by default the one that `load` would take here, else the first that needs
    no CPU feature, which a finding says where there are several.  That it does not run on this host
    is no refusal.  Neither onnx nor ONNX Runtime is needed.

    Raises the gate's refusals (AOTC-G, I001), AOTC-I027 (no such format or variant), I119 (it is
    not one model), I225 (the server cannot run it), I226 (the name), I229 (no name in this format),
    I017, I018 and I026 (the folder).
    """
    if format not in FORMATS:
        known = FORMATS.names()
        what = f"there is no format {format!r}{did_you_mean(format, known)}"
        raise AotcError("AOTC-I027", what, expected=" or ".join(known), found=format)
    if name is not None and format == ONNX:
        what = f"an export of the format {format} has no name of a model"
        raise AotcError("AOTC-I229", what, where="--name", found=name)
    place = Path(output)
    prepare_output(place, folder=True, kind=EXPORT, force=force, fix=_FIX)
    _require_nothing_else(place)
    trusted = resolve(trust, key, channel=channel, unsafe_no_trust_state=unsafe_no_trust_state)
    path = artifact_path(artifact)
    with draft_path(place) as draft:
        payload = draft.with_name("payload")

        def lay_out(container: Container) -> _Verified:
            authentic = authenticate(container, trusted, files_to_read=lambda _: ())
            choice = _choice(authentic, variant)
            accepted = choice.variant.name in authentic.accepted
            served = "" if format == ONNX else name or authentic.manifest.name
            source = ExportSource(
                manifest=authentic.manifest,
                variant=choice.variant,
                described=describe(
                    authentic.manifest,
                    authentic.id,
                    choice.variant,
                    format=format,
                    model=served,
                    unproven="" if accepted else unproven_reason(choice.variant),
                ),
                name=served,
                reference=container.origin,
                form=getattr(container, "form", ""),
                reverify=reverify,
            )
            layout = laid_out(source)
            evidence = _evidence(container, authentic) if reverify else {}
            return _Verified(
                authentic=authentic, choice=choice, source=source, layout=layout, evidence=evidence
            )

        found = reread(path, lambda: _verified_copy(path, lay_out, payload, progress))
        authentic, choice, layout = found.authentic, found.choice, found.layout
        draft.mkdir()
        described = _write(found, layout, found.source.described, payload, draft)
        files = (*described.files, EXPORTED)
        size = sum((draft / each).stat().st_size for each in files)
        remember_release(authentic)
        put_in_place(draft, place, kind=EXPORT, force=force, fix=_FIX)
    named = stated_reference(path) or path.name
    unproven = unproven_findings(authentic.manifest, named, authentic.accepted)
    return ExportReport(
        artifact=artifact_name(artifact),
        artifact_id=authentic.id,
        output=str(place),
        format=format,
        variant=choice.variant.name,
        chosen=choice.reason,
        files=files,
        bytes=size,
        findings=(
            *authentic.findings,
            *choice.findings,
            *layout.findings,
            *(each for each in unproven if each.where == f"variant {spec_of(choice.variant)}"),
        ),
    )


def laid_out(source: ExportSource) -> Layout:
    """What an export has, with what verifies it in place if that is wanted.

    Raises what the format does: AOTC-I119, I225, I226.
    """
    lay_out: Callable[[ExportSource], Layout] = FORMATS.load(source.described.format)
    layout = lay_out(source)
    return _with_evidence(layout) if source.reverify else layout


def _with_evidence(layout: Layout) -> Layout:
    """The same with the payload files that its own bytes were taken of, and ORT's manifest."""
    if layout.models is not None:
        return replace(layout, models=_with_evidence(layout.models))
    if not layout.evidence:
        return layout
    kept = {PACKAGE, *(taken.path for taken in layout.taken.values())}
    added = {f"{layout.evidence}/{PAYLOAD}/{path}": path for path in sorted(kept)}
    return replace(layout, files={**layout.files, **added})


def _evidence(container: Container, authentic: AuthenticArtifact) -> dict[str, bytes]:
    """The signed manifest and all bundles, as they are in the artifact."""
    content, found = identified(container, container.root)
    if found != authentic.id:
        what = "the manifest changed while the artifact was read"
        raise AotcError("AOTC-G005", what, where=MANIFEST, expected=authentic.id, found=found)
    bundles = container.listing(ATTESTATIONS).files
    return {MANIFEST: content} | {
        path: container.read(path, MAX_BUNDLE_BYTES)
        for path in sorted(bundles)
        if path.endswith(BUNDLE_SUFFIX)
    }


def _verified_copy(
    path: Path,
    lay_out: Callable[[Container], _Verified],
    folder: Path,
    progress: Progress | None,
) -> _Verified:
    """The payload files of an export in the new `folder`, by digests that a signature vouches for.

    They are hashed while they are copied, so the gate hashes none.
    """
    with open_container(path) as container:
        found = lay_out(container)
        manifest = found.authentic.manifest
        wanted = found.layout.payload_files()
        sizes = {entry.path: entry.size for entry in manifest.files}
        tally = Tally(sum(sizes[each] for each in wanted), BYTES)
        with Reporter(progress).counting("export", found.choice.variant.name, tally):
            copy_files(container, manifest, wanted, folder, tally)
    return found


def _write(
    found: _Verified, layout: Layout, described: Exported, payload: Path, folder: Path
) -> Exported:
    """Fill the new `folder`, with its `export.json` last, which is returned."""
    signed = {entry.path: entry.sha256 for entry in found.authentic.manifest.files}
    digests = {}
    if layout.models is not None:
        (folder / MODELS).mkdir()
        inner = replace(described, format=MODELS_FORMAT)
        inner = _write(found, layout.models, inner, payload, folder / MODELS)
        digests = {f"{MODELS}/{path}": digest for path, digest in inner.files.items()}
        digests[f"{MODELS}/{EXPORTED}"] = file_sha256(folder / MODELS / EXPORTED)
    written = {path: text.encode("utf-8") for path, text in layout.texts.items()}
    for path, taken in layout.taken.items():
        written[path] = taken.take(read_at_most(payload / taken.path, MAX_TAKEN_BYTES))
    if layout.evidence:
        written |= {f"{layout.evidence}/{path}": data for path, data in found.evidence.items()}
    for path, data in written.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        digests[path] = hashlib.sha256(data).hexdigest()
    for path, source in layout.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (payload / source).rename(folder / path)
        digests[path] = signed[source]
    described = replace(described, files=dict(sorted(digests.items())))
    (folder / EXPORTED).write_bytes(export_document(described))
    return described


def export_document(described: Exported) -> bytes:
    """The content of `export.json`."""
    return document(encode(described, full=True)).encode("utf-8")


def _choice(authentic: AuthenticArtifact, wanted: str | None) -> _Choice:
    """Raises AOTC-I027 for an unknown variant, I119 for several graphs, G033 as the policy says."""
    manifest = authentic.manifest
    allowed = authentic.decision.qualified if authentic.decision is not None else None
    verdicts = {
        verdict.name: verdict
        for verdict in judge(manifest, probe_host(manifest), allowed, authentic.accepted).variants
    }
    fitting = [each for each in by_preference(manifest.variants) if verdicts[each.name].runs]
    plain = [each for each in manifest.variants if _is_portable(each)]
    if wanted is not None:
        chosen, reason = _graph_of(variants_named(manifest, (wanted,)), wanted), "as asked for"
    elif fitting:
        chosen, reason = _graph_like(fitting[0], fitting), "the one that this host would load"
    else:
        first = (plain or by_preference(manifest.variants))[0]
        chosen = _graph_like(first, manifest.variants)
        reason = "the first that needs no CPU feature" if plain else "the first"
    # The policy is no question of the host that exports.
    for refusal in verdicts[chosen.name].reasons:
        if refusal.code == "AOTC-G033":
            raise error_of(refusal)
    names = [each.name for each in manifest.variants]
    findings: tuple[Finding, ...] = ()
    if wanted is None and len(names) > 1:
        others = ", ".join(name for name in names if name != chosen.name)
        what = f"{chosen.name} is exported, {reason}; not {others}"
        findings = (Finding(code="AOTC-I118", what=what, where=f"variant {chosen.name}"),)
    return _Choice(chosen, reason if len(names) > 1 else "the only one", findings)


def _graph_like(first: Variant, among: Iterable[Variant]) -> Variant:
    return _graph_of([each for each in among if spec_of(each) == spec_of(first)], spec_of(first))


def _graph_of(variants: Collection[Variant], name: str) -> Variant:
    """The one of a profile's variant that takes all sizes; raises AOTC-I119 if there is none."""
    found = [each for each in variants if not each.buckets] or list(variants)
    if len(found) > 1:
        raise AotcError(
            "AOTC-I119",
            "the variant consists of a graph for each bucket, and one model is exported",
            where=f"variant {name}",
            expected="one of " + ", ".join(each.name for each in found),
            found=name,
        )
    return found[0]


def _is_portable(variant: Variant) -> bool:
    return variant.providers == (CPU,) and not variant.requirements.isa


def unproven_reason(variant: Variant) -> str:
    """Why the answers of a variant were not compared with the model's; empty: they were."""
    parity = variant.parity
    return "" if parity.status == "passed" else parity.reason or "no reason given"


def describe(
    manifest: Manifest,
    artifact_id: str,
    variant: Variant,
    *,
    format: str,
    model: str,
    unproven: str,
) -> Exported:
    """What `export.json` says, but for the files."""
    # Only who names a captured graph for each size may use one.
    options = {
        name: {key: value for key, value in stated.items() if key != GRAPH_OPTION}
        for name, stated in variant.session.provider_options.items()
    }
    return Exported(
        format=format,
        name=manifest.name,
        artifact_id=artifact_id,
        variant=variant.name,
        model=model,
        unproven=unproven,
        providers=variant.providers,
        session=replace(variant.session, provider_options=options),
        requirements=variant.requirements,
        sizes=_sizes(variant.domain or manifest.domain, variant.buckets),
        files={},
    )


def _sizes(domain: Domain, buckets: Mapping[str, int]) -> dict[str, str]:
    """The sizes that the graph itself takes, of each free dim; padding is left to the caller."""
    found = {}
    for name, dim in domain.dims.items():
        plain = replace(dim, pad_from=None, buckets=())
        found[name] = str(buckets[name]) if name in buckets else plain.text()
    return found


def _require_nothing_else(place: Path) -> None:
    """Raise AOTC-I017 if an export that is to be replaced holds a file that no export wrote."""
    if not EXPORT.is_at(place):
        return
    own = {EXPORTED}
    # Of what cannot be read nothing is known to be ours.
    with suppress(OSError, AotcError, ParseError):
        data = strict_json(read_at_most(place / EXPORTED, MAX_JSON_BYTES))
        own.update(decode(Exported, data, allow_unknown=True).files)
    found = {each.relative_to(place).as_posix() for each in place.rglob("*") if not each.is_dir()}
    if foreign := sorted(found - own):
        what = f"the output exists and contains {foreign[0]!r}, which is not part of the export"
        raise AotcError("AOTC-I017", what, where=str(place), fix=_FIX)
