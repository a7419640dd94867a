"""Building an artifact again from what it records, and what differs between the two."""

from __future__ import annotations

import datetime
import json
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import translated_errors
from aotc.base.files.replacing import NEW
from aotc.base.files.work_folders import temporary_folder, work_folder
from aotc.base.progress import Progress, Reporter
from aotc.base.records import record, replace
from aotc.host.probe import probe
from aotc.pipeline.output import Output
from aotc.pipeline.package import traits_sha256
from aotc.runtime.answers import Side, same_calls
from aotc.runtime.rehearsal import Staged, staged_request
from aotc.session.worker_pool import Workers
from aotc.spec.answers import SameCalls
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.attestations import ArtifactName, AttestReport, format_instant
from aotc.spec.codec import encode
from aotc.spec.diff_report import AreaDiff, DiffReport
from aotc.spec.json import canonical_json
from aotc.spec.manifest import Manifest
from aotc.spec.payload import FileEntry
from aotc.spec.profile import WorkerLimits, profile_of
from aotc.spec.reproduction import (
    BuildEnvironment,
    FileDifference,
    NotReproduced,
    Outcome,
    ReproduceReport,
    Reproduction,
    VariantRebuilt,
)
from aotc.spec.trust_policy import Sealer, Signer
from aotc.spec.variant import Variant
from aotc.spec.versions import artifact_name
from aotc.tools.diff.artifacts import diff
from aotc.tools.diff.opened_artifact import changes_of
from aotc.tools.reproduce.recorded import (
    Foreseen,
    GivenAgain,
    RecordedBuild,
    foresee,
    give_again,
    read_recorded,
    written_profile,
)
from aotc.tools.reproduce.recorded_environment import (
    Installer,
    MadeEnvironment,
    environment_of,
    started,
)
from aotc.trust import key_files
from aotc.trust.attesting import (
    add_statement,
    attested_place,
    attesting_trust,
    check_can_add,
    signer_tag,
)
from aotc.trust.container import Container, FolderContainer
from aotc.trust.gate import AuthenticArtifact, authenticate
from aotc.trust.key_loading import load_private
from aotc.trust.opening import identified, open_container
from aotc.trust.policy.host_trust import resolve
from aotc.trust.provenance import build_label, describe_host
from aotc.trust.signers import own_anchors, own_key

# Of the worker in which both are run.
_LIMITS: Final = WorkerLimits(seconds=600.0)
_FIRST_FILES: Final = 64


@record
class _Rebuilt:
    """The artifact that was built again, in a folder, and whose key signed it."""

    folder: Path
    authentic: AuthenticArtifact
    container: Container


def reproduce(
    artifact: str | Path,
    model: str | Path,
    *,
    fixtures: str | Path | None = None,
    calibration: str | Path | None = None,
    data: str | Path | None = None,
    trust_source: bool = False,
    here: bool = False,
    anew: bool = False,
    installer: Installer | None = None,
    aotc: str | Path | None = None,
    trust: str | Path | None = None,
    signer: Signer | Sealer | None = None,
    builder_id: str | None = None,
    output: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    tell: Callable[[Sequence[NotReproduced], BuildEnvironment], None] | None = None,
) -> ReproduceReport:
    """Build an artifact again from `model` in the environment that it records, and compare the two.

    `fixtures`, `calibration` and `data` (a folder, by default the model's) are what the build read
    besides the model, and have the recorded digests.  The environment is this one where it is the
    recorded one, else it is made by `installer`; with `here` it is this one, whatever differs, and
    with `anew` it is always made.  `aotc` is a checkout or a wheel of the recorded aotc.  `trust`
    is as for `attest`: a trusted key must have signed the artifact, since what it records is run.
    `signer` signs what was found, unless the answers differ, and must have signed nothing else of
    the artifact; `builder_id` is who builds it again.  `output` keeps the rebuild, with `force` in
    place of an artifact there.  `tell` is called with what cannot be the same here, before anything
    is built.

    Raises the gate's refusals (AOTC-G), AOTC-I231 to I240, I191, I001, I017, I018, I026, I027, I036
    and what reading a model does.
    """
    begun = time.monotonic()
    # Of a reference the digest that its tag has now: what is attested is what was built again.
    place, reporter = attested_place(artifact), Reporter(progress)
    source = Path(model)
    label = build_label(builder_id)
    if signer is not None:
        check_can_add(place, _file_stem(signer), force=True)
    if output is not None and place.resolve() == Path(output).resolve():
        raise AotcError(
            "AOTC-I017",
            "the artifact would be replaced by what is compared with it",
            where=str(output),
            fix="Choose another output with -o.",
        )
    kept = Output(Path(output), source, force=force) if output is not None else None
    if kept is not None:
        # Nobody keeps the key that signs the rebuild.
        kept.require_signer(())
    with ExitStack() as stack:
        work = stack.enter_context(temporary_folder("reproduce"))
        container = stack.enter_context(open_container(place))
        trusted = (
            attesting_trust(signer, trust)
            if signer is not None
            else replace(resolve(trust, remember=False), rules=False)
        )
        authentic = authenticate(container, trusted)
        if signer is not None:
            _require_other(signer, authentic, place)
        recorded = read_recorded(container, authentic, place)
        foreseen = foresee(recorded)
        given = give_again(
            recorded,
            container,
            source,
            fixtures=Path(fixtures) if fixtures is not None else None,
            calibration=Path(calibration) if calibration is not None else None,
            data=Path(data) if data is not None else None,
            work=work,
        )
        reporter.begin("environment")
        environment = environment_of(
            recorded,
            here=here,
            anew=anew,
            installer=installer,
            aotc=Path(aotc) if aotc is not None else None,
        )
        reporter.end()
        foreseen = replace(foreseen, rows=(*foreseen.rows, *environment.lacking))
        if tell is not None:
            tell(foreseen.rows, environment.about)
        reporter.begin("rebuild")
        rebuilt = _rebuilt(recorded, container, given, environment, work, trust_source=trust_source)
        stack.callback(rebuilt.container.close)
        reporter.end()
        reporter.begin("compare")
        report = _compared(
            ReproduceReport(
                artifact=artifact_name(place),
                artifact_id=authentic.id,
                name=authentic.manifest.name,
                model=str(model),
                outcome="identical",
                rebuilt_id=rebuilt.authentic.id,
                not_reproduced=foreseen.rows,
                environment=environment.about,
                host=describe_host(probe()),
                seconds=0.0,
            ),
            _Both(place, container, authentic, rebuilt, given),
            foreseen,
            work,
        )
        reporter.end()
        if kept is not None:
            with translated_errors(str(kept.place)), work_folder(kept.place) as beside:
                draft = shutil.copytree(rebuilt.folder, beside / NEW)
                kept.deliver(draft, rebuilt.authentic.manifest, beside, None)
            report = replace(report, kept=str(output))
    if signer is not None and report.outcome != "different":
        report = replace(report, attested=_attested(place, report, signer, label.builder))
    return replace(report, seconds=time.monotonic() - begun)


def _file_stem(signer: Signer | Sealer) -> str:
    return KINDS["reproduction"].file_stem(signer_tag(signer))


def _require_other(signer: Signer | Sealer, authentic: AuthenticArtifact, place: Path) -> None:
    """Raise AOTC-I240 where who attests has signed the artifact, and so says nothing new."""
    own = own_key(signer)
    if own is not None and own.pem in {key.pem for key in authentic.keys}:
        raise AotcError(
            "AOTC-I240",
            "the key that would attest the reproduction signed the artifact itself",
            where=artifact_name(place),
            expected="a key of somebody else",
            found=f"key {signer_tag(signer)}",
        )


def _rebuilt(
    recorded: RecordedBuild,
    container: Container,
    given: GivenAgain,
    environment: MadeEnvironment,
    work: Path,
    *,
    trust_source: bool,
) -> _Rebuilt:
    """The artifact, built again by the recorded aotc; raises AOTC-I239 where that refuses it."""
    private, _ = key_files.generate(work / "rebuild.pem")
    folder = work / f"{recorded.manifest.name}.aotc"
    words = [
        *("build", str(given.model), "--profile", str(written_profile(given, work))),
        *("-o", str(folder), "--key", str(private), "--no-cache", "--json"),
    ]
    if traits_sha256(probe()) != recorded.manifest.target_sha256:
        target = work / "target.yaml"
        target.write_text(json.dumps(encode(recorded.target, full=True)), "utf-8")
        words += ["--target", str(target)]
    if recorded.options.get("embed_fixtures"):
        words.append("--embed-fixtures")
    for option, path in (("--fixtures", given.fixtures), ("--calibration", given.calibration)):
        words += [option, str(path)] if path is not None else []
    if trust_source:
        words.append("--trust-source")
    status, output, errors = started(environment, words, work)
    if status != 0:
        raise AotcError(
            "AOTC-I239",
            "the recorded aotc does not build the artifact again",
            where=recorded.manifest.name,
            found=_refusal_of(output, errors, status),
        )
    container = FolderContainer(folder)
    anchors = own_anchors(load_private(private), "the key of this rebuild")
    return _Rebuilt(folder=folder, authentic=authenticate(container, anchors), container=container)


def _refusal_of(output: str, errors: str, status: int) -> str:
    """What a build said, in a line: its refusals, or the last of what it wrote."""
    try:
        document = json.loads(output)
        return "; ".join(
            f"{each['code']} {each['what']}" + (f" ({each['found']})" if each.get("found") else "")
            for each in document["errors"]
        )[:1000]
    except (ValueError, LookupError, TypeError):
        lines = [line for line in errors.splitlines() if line.strip()] or [f"exit status {status}"]
        return lines[-1][:500]


# What differs: the manifests field by field, files, variants, and answers.


@record(kw_only=False)
class _Both:
    """The artifact and its rebuild, both open and verified."""

    place: Path
    container: Container
    recorded: AuthenticArtifact
    rebuilt: _Rebuilt
    given: GivenAgain


def _compared(
    report: ReproduceReport, both: _Both, foreseen: Foreseen, work: Path
) -> ReproduceReport:
    before, after = both.recorded.manifest, both.rebuilt.authentic.manifest
    if both.recorded.id == both.rebuilt.authentic.id:
        every = (VariantRebuilt(name=each.name, outcome="identical") for each in before.variants)
        return replace(report, variants=tuple(every))
    compared, answers = _by_area(both), _answers(both, work)
    variants = tuple(_variants(before, after, compared))
    kept = {each.name for each in variants if each.outcome in ("identical", "equal")}
    files = tuple(_files(both, foreseen, kept))
    in_part = (
        kept.union(foreseen.variants).issuperset(each.name for each in before.variants)
        and all(each.stated for each in files)
        and _rest(before, foreseen) == _rest(after, foreseen)
    )
    same = _are_same(answers)
    outcome: Outcome = "same-answers" if same else "different"
    if in_part and (same or not before.fixtures):
        outcome = "in-part"
    return replace(
        report,
        outcome=outcome,
        variants=variants,
        files=files,
        fields=changes_of(before, after, without=("files",)),
        answers=answers,
        diff=compared,
    )


def _are_same(answers: SameCalls) -> bool:
    """Whether answers were compared, to all inputs that there are, and are the same."""
    worst = answers.worst()
    return bool(worst) and not answers.left_out and all(error.passed for _, error in worst)


def _by_area(both: _Both) -> DiffReport:
    """What differs by area, node and tensor; not who signed, nor what was measured."""
    found = diff(both.place, both.rebuilt.folder, run=False)
    signed = AreaDiff(area="trust", status="not-compared", reason="every build has another key")
    areas = (signed if each.area == "trust" else each for each in found.areas)
    return replace(found, areas=tuple(areas), measured=())


def _variants(before: Manifest, after: Manifest, fields: DiffReport) -> Iterator[VariantRebuilt]:
    """Each variant of the artifact: whether that of its name is the same, with all of its files."""
    others = {each.name: each for each in after.variants}
    digests = [{each.path: each.sha256 for each in side.files} for side in (before, after)]
    for variant in before.variants:
        other = others.get(variant.name)
        if other is None:
            yield VariantRebuilt(name=variant.name, outcome="not-built")
        elif other == variant and all(
            digests[0][path] == digests[1].get(path) for path in variant.files
        ):
            yield VariantRebuilt(name=variant.name, outcome="identical")
        elif _without_files(other) == _without_files(variant) and _equal(variant.name, fields):
            yield VariantRebuilt(name=variant.name, outcome="equal")
        else:
            yield VariantRebuilt(name=variant.name, outcome="different")


def _without_files(variant: Variant) -> Variant:
    return replace(variant, weights=None, files=())


def _equal(variant: str, fields: DiffReport) -> bool:
    """Whether graphs were read, node for node and tensor for tensor, and nothing differs."""
    nodes = next((each for each in fields.nodes if each.variant == variant), None)
    weights = [each for each in fields.weights if variant in each.variants]
    return (
        nodes is not None
        and nodes.by_structure
        and bool(weights)
        and not any((nodes.moved, nodes.added, nodes.removed, nodes.renamed))
        and not any((nodes.replaced, nodes.altered))
        and not any(e.changed or e.added or e.removed or e.renamed for e in weights)
    )


def _files(both: _Both, foreseen: Foreseen, kept: Collection[str]) -> Iterator[FileDifference]:
    """Files of the payload that differ, by path, and whether that was foreseen.

    Where variants are not built, what lists all variants differs, and so do those of weights, which
    variants share; what is in the graphs and weights of the variants `kept` was compared.
    """
    before, after = both.recorded.manifest, both.rebuilt.authentic.manifest
    one, other = _listed(before), _listed(after)
    golden = {
        value.path
        for manifest in (before, after)
        for fixture in manifest.fixtures
        for value in fixture.outputs
    }
    others = {
        path
        for manifest in (before, after)
        for variant in manifest.variants
        if variant.name not in kept and variant.name not in foreseen.variants
        for path in variant.files
    }
    for path in sorted({*one, *other}):
        here, there = one.get(path), other.get(path)
        entry = here or there
        if entry is None or (here and there and here.sha256 == there.sha256):
            continue
        stated = foreseen.golden and path in golden and here is not None and there is not None
        if foreseen.variants:
            stated |= entry.role in ("package", "model", "weights") and path not in others
        yield FileDifference(
            path=path,
            role=entry.role,
            recorded=here.sha256 if here is not None else "",
            rebuilt=there.sha256 if there is not None else "",
            stated=stated,
        )
    yield FileDifference(
        path="aotc.json",
        role="manifest",
        recorded=both.recorded.id,
        rebuilt=both.rebuilt.authentic.id,
        # Its fields are compared one by one.
        stated=bool(foreseen.golden or foreseen.variants),
    )


def _listed(manifest: Manifest) -> Mapping[str, FileEntry]:
    return {each.path: each for each in manifest.files}


def _rest(manifest: Manifest, foreseen: Foreseen) -> bytes:
    """A manifest without its files, and without what was foreseen to be missing."""
    names = foreseen.variants
    specs = {*names, *(each.spec for each in manifest.variants if each.name in names)}
    specs |= {each.name for each in profile_of(manifest).variants if each.isa == "host"}
    kept = [each for each in manifest.variants if each.name not in names]
    features = manifest.required_features
    fixtures = [
        replace(each, excluded_variants=tuple(n for n in each.excluded_variants if n not in names))
        for each in manifest.fixtures
    ]
    return canonical_json(
        encode(
            replace(
                manifest,
                files=(),
                required_features=() if names else features,
                variants=tuple(_without_files(each) if names else each for each in kept),
                dropped=tuple(each for each in manifest.dropped if each.name not in names),
                findings=tuple(
                    each
                    for each in manifest.findings
                    if not names or each.where.removeprefix("variant ") not in specs
                ),
                fixtures=tuple(fixtures),
            )
        )
    )


def _answers(both: _Both, work: Path) -> SameCalls:
    """What both answer to the same inputs, where both run here; else their golden outputs."""
    rebuilt = both.rebuilt
    staged = Staged(
        folder=rebuilt.folder,
        signers=rebuilt.authentic.keys,
        target=None,
        ran={},
        libraries=both.given.libraries,
        custom_ops=both.given.custom_ops,
        bytes=0,
    )
    one = Side(
        path=both.place,
        container=both.container,
        manifest=both.recorded.manifest,
        artifact_id=both.recorded.id,
        signers=both.recorded.keys,
    )
    other = Side(
        path=rebuilt.folder,
        container=rebuilt.container,
        manifest=rebuilt.authentic.manifest,
        artifact_id=rebuilt.authentic.id,
        staged=staged_request(staged),
    )
    with Workers(_LIMITS) as workers:
        try:
            return same_calls(one, other, lambda: workers, work / "answers", strict=False)
        except AotcError as error:
            return SameCalls(how="none", reason=error.line())


# What is signed of it.


def _attested(
    place: Path, report: ReproduceReport, signer: Signer | Sealer, builder: str
) -> AttestReport:
    assert report.outcome != "different"
    with open_container(place) as container:
        _, now = identified(container, place)
    if now != report.artifact_id:
        raise AotcError(
            "AOTC-G005",
            "the artifact was replaced while it was built again",
            where=artifact_name(place),
            expected=report.artifact_id,
            found=now,
        )
    predicate = Reproduction(
        artifact=ArtifactName(name=report.name, id=report.artifact_id),
        outcome=report.outcome,
        rebuilt_id=report.rebuilt_id,
        builder=builder,
        environment=report.environment,
        host=report.host,
        variants=report.variants,
        not_reproduced=report.not_reproduced,
        files=report.files[:_FIRST_FILES],
        issued_at=format_instant(datetime.datetime.now(datetime.UTC)),
    )
    name = _file_stem(signer)
    return add_statement(place, name, "reproduction", predicate, signer, force=True)
