"""Verifying an export where it lies: what was signed, and what its format makes of it."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import EXPORTED, MANIFEST, PAYLOAD
from aotc.base.interruptions import uninterrupted
from aotc.base.records import replace
from aotc.base.text import listed
from aotc.spec.codec import ParseError, decode
from aotc.spec.command_reports import Exported
from aotc.spec.json import MAX_JSON_BYTES, strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.reports import NO_TARGET, CheckResult, Status, VerifyReport
from aotc.tools.export import (
    FORMATS,
    MAX_TAKEN_BYTES,
    ONNX,
    ExportSource,
    Layout,
    describe,
    export_document,
    laid_out,
    unproven_reason,
)
from aotc.tools.onnx_folder import EVIDENCE
from aotc.trust.compatibility import refusal_of
from aotc.trust.container import ArtifactFile, Container, FolderContainer, Listing
from aotc.trust.gate import require_signer, verify_part
from aotc.trust.opening import identified, read_manifest
from aotc.trust.policy.host_trust import Trust, resolve

_EVIDENCE: Final = re.compile(rf"(?:[^/]+/)?{EVIDENCE}/{MANIFEST}")
_OF_MODELS: Final = "kserve"
_STEP: Final = "export and nothing else"


@uninterrupted
def verify_export(
    folder: str | Path,
    *,
    trust: str | Path | Trust | None = None,
    key: str | Path | None = None,
    target: str | Path = NO_TARGET,
    channel: str | None = None,
    unsafe_no_trust_state: bool = False,
) -> VerifyReport:
    """Verify an export that was made with `reverify`, where it lies and whatever may read it next.

    `trust`, `key`, `channel` and `unsafe_no_trust_state` are as in `verify`.  Steps 1 to 7 of the
    gate are run for the artifact that it is a part of: its signature, its policy, and the digests
    of all payload files that the export has.  Each other file must be, byte for byte, what this
    version of aotc makes of the signed manifest for the variant, format and name that `export.json`
    states; and there is nothing else.  No host is judged, as the server is none of ours: `target`
    can only be "none".

    A bad export raises no error: the report says what is wrong (AOTC-G).  Raises AOTC-I228 if it
    has nothing to be verified by, I229 for another target, I001 if it cannot be read, and what
    `verify` does for arguments.
    """
    if str(target) != NO_TARGET:
        what = "an export is verified for no host"
        raise AotcError("AOTC-I229", what, where="--target", expected=NO_TARGET, found=str(target))
    place = Path(folder)
    trusted = resolve(trust, key, channel=channel, unsafe_no_trust_state=unsafe_no_trust_state)
    started = time.perf_counter()
    with FolderContainer(place) as export:
        listing = export.listing()
        stated, evidence = _stated(export, listing)
        try:
            # What the export has of the artifact is known by the manifest alone.
            signed = require_signer(_Part(export, evidence, {}, {}), trusted)
            content, found = identified(_Part(export, evidence, {}, {}), place)
            if found != signed.get("aotc.json"):
                raise _another(f"{evidence}/{MANIFEST}", signed.get("aotc.json", ""), found)
            manifest = read_manifest(content)
            source = _source(manifest, found, stated)
            layout = laid_out(source)
            if layout.evidence != evidence:
                raise _another(f"{evidence}/{MANIFEST}", f"in {layout.evidence}", f"in {evidence}")
        except AotcError as error:
            return VerifyReport(
                artifact=str(place),
                authentic=False,
                verdict="unverified",
                target=NO_TARGET,
                steps=(),
                refusals=tuple(refusal_of(each) for each in (error, *error.also)),
                seconds=time.perf_counter() - started,
            )
        targets = {path: target for target, path in layout.files.items()}
        sizes = {entry.path: entry.size for entry in manifest.files}
        part = _Part(export, evidence, targets, sizes)
        report = verify_part(part, trusted, place, frozenset(targets))
        others = _others(export, listing, layout, source, evidence) if report.authentic else []
    names = {path: f"{evidence}/{path}" for path in listing.under(evidence)}
    names |= {f"{PAYLOAD}/{path}": target for path, target in targets.items()}
    refusals = (
        *(replace(each, where=names.get(each.where, each.where)) for each in report.refusals),
        *(refusal_of(error) for error in others),
    )
    *steps, host, verdict = report.steps
    status: Status = "failed" if others else "passed" if report.authentic else "not-run"
    what = f"{stated.format}, {stated.variant}" + (f" as {stated.model}" if stated.model else "")
    return replace(
        report,
        authentic=not refusals,
        verdict="unverified" if refusals else report.verdict,
        steps=(
            *steps,
            CheckResult(step=_STEP, status=status, detail=what),
            replace(host, detail="its server is none of ours"),
            replace(verdict, status="not-run", detail="") if others else verdict,
        ),
        refusals=refusals,
        seconds=time.perf_counter() - started,
    )


def _stated(export: FolderContainer, listing: Listing) -> tuple[Exported, str]:
    """What `export.json` states, and the folder of what verifies it; raises AOTC-I228."""
    evidence = [path for path in listing.files if _EVIDENCE.fullmatch(path)]
    if EXPORTED not in listing.files or len(evidence) != 1:
        raise AotcError(
            "AOTC-I228",
            "there is nothing here to verify an export by",
            where=str(export.root),
            expected=f"{EXPORTED}, and one {EVIDENCE}/{MANIFEST}",
            found=listed([*(path for path in (EXPORTED,) if path in listing.files), *evidence])
            or "neither",
        )
    try:
        data = strict_json(export.read(EXPORTED, MAX_JSON_BYTES))
        stated = decode(Exported, data, allow_unknown=True)
    except ParseError as error:
        (problem, *_) = error.problems
        what = f"{EXPORTED} cannot be read: {problem.what}"
        raise AotcError("AOTC-I228", what, where=str(export.root), found=problem.path) from None
    if stated.format not in FORMATS or stated.format == _OF_MODELS:
        what = f"an export of the format {stated.format!r} is not verified in place"
        raise AotcError("AOTC-I228", what, where=str(export.root))
    return stated, evidence[0].removesuffix(f"/{MANIFEST}")


def _source(manifest: Manifest, artifact_id: str, stated: Exported) -> ExportSource:
    """What the export was laid out from, if it is what it says; raises AOTC-G005."""
    variant = next((each for each in manifest.variants if each.name == stated.variant), None)
    if variant is None:
        names = listed([each.name for each in manifest.variants])
        raise _another(EXPORTED, f"one of the variants {names}", stated.variant)
    # What the host that exported it accepted is not known here, and the report says it anew.
    unproven = {"", unproven_reason(variant)}
    if stated.unproven not in unproven:
        raise _another(EXPORTED, listed([repr(each) for each in sorted(unproven)]), stated.unproven)
    if stated.model and stated.format == ONNX:
        raise _another(EXPORTED, "no name of a model", stated.model)
    described = describe(
        manifest,
        artifact_id,
        variant,
        format=stated.format,
        model=stated.model,
        unproven=stated.unproven,
    )
    return ExportSource(
        manifest=manifest, variant=variant, described=described, name=stated.model, reverify=True
    )


def _others(
    export: FolderContainer,
    listing: Listing,
    layout: Layout,
    source: ExportSource,
    evidence: str,
) -> list[AotcError]:
    """What is wrong with files that are none of the artifact: missing, different or unknown."""
    expected = {path: text.encode("utf-8") for path, text in layout.texts.items()}
    for path, taken in layout.taken.items():
        content = export.read(f"{evidence}/{PAYLOAD}/{taken.path}", MAX_TAKEN_BYTES)
        expected[path] = taken.take(content)
    signed = {entry.path: entry.sha256 for entry in source.manifest.files}
    digests = {path: signed[file] for path, file in layout.files.items()}
    digests |= {path: hashlib.sha256(data).hexdigest() for path, data in expected.items()}
    for path in listing.under(evidence):
        at = f"{evidence}/{path}"
        if at not in digests:
            digests[at] = hashlib.sha256(export.read(at, MAX_JSON_BYTES)).hexdigest()
    described = replace(source.described, files=dict(sorted(digests.items())))
    expected[EXPORTED] = export_document(described)
    found = []
    for path, data in sorted(expected.items()):
        if path not in listing.files:
            found.append(AotcError("AOTC-G006", "a file of the export is missing", where=path))
        elif (content := export.read(path, MAX_JSON_BYTES)) != data:
            wanted, seen = (hashlib.sha256(each).hexdigest() for each in (data, content))
            found.append(_another(path, f"sha256 {wanted}", f"sha256 {seen}"))
    for path in sorted(listing.files.keys() - expected.keys() - digests.keys()):
        found.append(AotcError("AOTC-G007", "a file is not part of the export", where=path))
    folders = {each.as_posix() for path in listing.files for each in PurePosixPath(path).parents}
    for path in sorted(listing.folders - folders):
        found.append(AotcError("AOTC-G007", "a folder of the export is empty", where=path))
    return found


def _another(path: str, expected: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-G005",
        "the file is not the one that the signed manifest leads to",
        where=path,
        expected=expected,
        found=found,
        fix="Do not serve it. Export the artifact again, with the aotc that verifies the export.",
    )


class _Part(Container):
    """An artifact of which an export has a part: the files `targets`, and its evidence.

    It lists all files of the artifact, with their `sizes`.
    """

    def __init__(
        self,
        export: FolderContainer,
        evidence: str,
        targets: Mapping[str, str],
        sizes: Mapping[str, int],
    ) -> None:
        self.root = export.root
        self._descriptor = None
        self._export = export
        self._evidence = evidence
        self._targets = {f"{PAYLOAD}/{path}": target for path, target in targets.items()}
        self._sizes = {f"{PAYLOAD}/{path}": size for path, size in sizes.items()}

    def listing(self, folder: str = "") -> Listing:
        """The files of the artifact; what is wrong with the folder of the export is its problem."""
        found = self._export.listing()
        files = {**self._sizes, **found.under(self._evidence)}
        files |= {path: found.files[at] for path, at in self._targets.items() if at in found.files}
        missing = {path for path, at in self._targets.items() if at not in found.files}
        start = f"{self._evidence}/"
        return Listing(
            {
                path: size
                for path, size in sorted(files.items())
                if path not in missing and path.startswith(f"{folder}/" if folder else "")
            },
            frozenset(each[len(start) :] for each in found.folders if each.startswith(start)),
            found.problems,
        )

    def open(self, path: str) -> ArtifactFile:
        """Open a file where the export has it; raises AOTC-G006 if it does not."""
        return self._export.open(self._targets.get(path, f"{self._evidence}/{path}"))
