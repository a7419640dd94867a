"""Exports of a variant: verified files in a form that other software opens without aotc."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import EXPORTED
from aotc.base.files.reading import file_sha256, read_at_most
from aotc.base.files.replacing import EXPORT, put_in_place
from aotc.base.files.work_folders import draft_path, prepare_output
from aotc.base.interruptions import uninterrupted
from aotc.base.progress import BYTES, Progress, Reporter, Tally
from aotc.base.records import record, replace
from aotc.base.registry import Registry
from aotc.base.text import did_you_mean
from aotc.runtime.routing import spec_of, variants_named
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
from aotc.trust.container import reread
from aotc.trust.gate import AuthenticArtifact, authenticate, remember_release
from aotc.trust.opening import copy_files, open_container
from aotc.trust.policy.host_trust import Trust, resolve

# Each is a function of an `ExportSource` and the new folder that it fills.
FORMATS: Final = Registry("format", (("onnx", "aotc.tools.onnx_folder:write"),))

_FIX: Final = "Choose another folder with -o, or remove it; --force replaces only an export."


@record(kw_only=False)
class ExportSource:
    """What a format writes from: verified files of one variant, which it may take away.

    `payload` holds them under their paths in the artifact.
    """

    manifest: Manifest
    variant: Variant
    payload: Path
    described: Exported


@record(kw_only=False)
class _Choice:
    """The variant that is exported, why this one, and whether there were others."""

    variant: Variant
    reason: str
    findings: tuple[Finding, ...]


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
    force: bool = False,
    progress: Progress | None = None,
) -> ExportReport:
    """Verify an artifact, and write one of its variants for software that knows nothing of it.

    `artifact` is the path of a folder or packed artifact, `sha256-<id>` of an entry of a store, or
    a reference `oci://…`, of which only the variant's files are fetched; `trust`, `key`, `channel`
    and `unsafe_no_trust_state` are as in `load`.  The folder `output` appears when it is complete,
    and depends on the artifact and the variant alone; with `force` it replaces an earlier export
    with nothing else in it.  The format `onnx` is `model.onnx` with its weights and compiled parts
    beside it, a README.md, and `export.json` with the options that the variant was proven with.
    From then on nobody verifies the files, or checks host, placement, sizes and answers.

    `variant` names one; by default the one that `load` would take here, else the first that needs
    no CPU feature, which a finding says where there are several.  That it does not run on this host
    is no refusal.  Neither onnx nor ONNX Runtime is needed.

    Raises the gate's refusals (AOTC-G, I001), AOTC-I027 (no such format or variant), I119 (it is
    not one model), I017, I018 and I026 (the folder).
    """
    if format not in FORMATS:
        known = FORMATS.names()
        what = f"there is no format {format!r}{did_you_mean(format, known)}"
        raise AotcError("AOTC-I027", what, expected=" or ".join(known), found=format)
    place = Path(output)
    prepare_output(place, folder=True, kind=EXPORT, force=force, fix=_FIX)
    _require_nothing_else(place)
    trusted = resolve(trust, key, channel=channel, unsafe_no_trust_state=unsafe_no_trust_state)
    path = artifact_path(artifact)
    with draft_path(place) as draft:
        payload = draft.with_name("payload")
        authentic, choice = reread(
            path,
            lambda: _verified_copy(path, trusted, variant, payload, progress),
        )
        manifest = authentic.manifest
        described = _described(authentic, choice.variant, format)
        draft.mkdir()
        source = ExportSource(manifest, choice.variant, payload, described)
        write: Callable[[ExportSource, Path], None] = FORMATS.load(format)
        write(source, draft)
        described = replace(described, files=_digests(draft))
        text = document(encode(described, full=True))
        (draft / EXPORTED).write_text(text, encoding="utf-8", newline="\n")
        files = (*described.files, EXPORTED)
        size = sum((draft / each).stat().st_size for each in files)
        remember_release(authentic)
        put_in_place(draft, place, kind=EXPORT, force=force, fix=_FIX)
    accepted = authentic.accepted
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
            *(
                found
                for found in unproven_findings(
                    manifest, stated_reference(path) or path.name, accepted
                )
                if found.where == f"variant {spec_of(choice.variant)}"
            ),
        ),
    )


def _verified_copy(
    path: Path, trusted: Trust, wanted: str | None, folder: Path, progress: Progress | None
) -> tuple[AuthenticArtifact, _Choice]:
    """The files of the chosen variant in the new `folder`, by digests that a signature vouches for.

    They are hashed while they are copied, so the gate hashes none.
    """
    with open_container(path) as container:
        authentic = authenticate(container, trusted, files_to_read=lambda _: ())
        choice = _choice(authentic, wanted)
        sizes = {entry.path: entry.size for entry in authentic.manifest.files}
        tally = Tally(sum(sizes[each] for each in choice.variant.files), BYTES)
        with Reporter(progress).counting("export", choice.variant.name, tally):
            copy_files(container, authentic.manifest, choice.variant.files, folder, tally)
    return authentic, choice


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


def _described(authentic: AuthenticArtifact, variant: Variant, format_: str) -> Exported:
    manifest = authentic.manifest
    proven = variant.parity.status == "passed" or variant.name in authentic.accepted
    # Only who names a captured graph for each size may use one.
    options = {
        name: {key: value for key, value in stated.items() if key != GRAPH_OPTION}
        for name, stated in variant.session.provider_options.items()
    }
    return Exported(
        format=format_,
        name=manifest.name,
        artifact_id=authentic.id,
        variant=variant.name,
        unproven="" if proven else variant.parity.reason or "no reason given",
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


def _digests(folder: Path) -> dict[str, str]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in found}


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
