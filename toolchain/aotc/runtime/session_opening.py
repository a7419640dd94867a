"""Steps 3 and 4 of a load: sessions of the chosen variants, checked against the manifest.

Everything that needs ONNX Runtime and numpy is imported from here, so that a load can verify before
these imports, and hash during them.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from aotc.base.errors import AotcError, with_others
from aotc.graph.partition.budgets import judge_placement, with_flops
from aotc.host.nvidia import free_memory, memory_taken
from aotc.providers.named_backends import backend_of
from aotc.runtime.custom_ops import files_of, registrable
from aotc.runtime.model import Model
from aotc.runtime.reporting import Load
from aotc.runtime.routing import spec_of
from aotc.runtime.runners import Runner, close_all, open_runner
from aotc.runtime.store.user_store import StoredArtifact
from aotc.runtime.warmup import AcceptedFixtures, open_variant
from aotc.session.device.cuda_place import CudaPlace
from aotc.session.sessions import differences, observe, summary, verdicts
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Finding
from aotc.spec.profile import profile_of
from aotc.spec.providers import CAPTURING
from aotc.spec.reports import LoadReport, VariantLoad
from aotc.spec.variant import Variant
from aotc.trust.gate import CompatibleArtifact

if TYPE_CHECKING:
    import onnxruntime as ort

    from aotc.runtime.recorder import ShapeRecorder


def open_model(
    stored: StoredArtifact,
    compatible: CompatibleArtifact,
    chosen: Sequence[Variant],
    threads: int | None,
    libraries: Mapping[str, Path],
    custom_ops: Sequence[Path],
    earlier_findings: Sequence[Finding],
    record: str | Path | None,
    record_bytes: int,
    *,
    told: Load,
    rerun_fixtures: bool = False,
    placed: CudaPlace | None = None,
) -> Model:
    """Steps 3 and 4 for variants of one kind, whose CUDA sessions are where `placed` says.

    They are stages of the load that is `told`.
    """
    manifest = stored.authentic.manifest
    findings = list(earlier_findings)
    findings += [
        finding
        for variant in chosen
        for finding in check_compatibility_strings(manifest, variant, libraries)
    ]
    # 3.
    placed = placed or CudaPlace()
    on_cuda = any(CAPTURING.ort_name in variant.providers for variant in chosen)
    free = free_memory(placed.index) if on_cuda else None
    started = time.perf_counter()
    with told.stage("session"), registrable(stored.folder, chosen, custom_ops) as files:
        runners, seconds = _open_all(stored.folder, chosen, threads, libraries, files, placed)
    created = time.perf_counter()
    # 4.
    loads = []
    try:
        with told.stage("placement"):
            for variant, runner, opening in zip(chosen, runners, seconds, strict=True):
                placing = time.perf_counter()
                check_session(runner.session, manifest, variant)
                observed = check_placement(runner.session, manifest, variant)
                findings += observed.findings
                loads.append(
                    VariantLoad(
                        name=variant.name,
                        session_seconds=opening,
                        warmup_seconds=time.perf_counter() - placing,
                        nodes=observed.nodes,
                        misplaced_nodes=observed.misplaced,
                    )
                )
    except AotcError:
        close_all(runners)
        raise
    recorder: ShapeRecorder | None = None
    if stated := record or os.environ.get("AOTC_RECORD_SHAPES"):
        from aotc.runtime.recorder import ShapeRecorder

        recorder = ShapeRecorder(stated, limit=record_bytes)
    return Model(
        manifest,
        chosen,
        runners,
        LoadReport(
            artifact_id=stored.authentic.id,
            variant=spec_of(chosen[0]) if len(chosen) > 1 else chosen[0].name,
            verdict=compatible.verdict,
            from_store=stored.from_store,
            hashed=stored.hashed,
            verify_seconds=stored.seconds,
            session_seconds=created - started,
            warmup_seconds=sum(load.warmup_seconds for load in loads),
            variants=tuple(loads),
            device_bytes=memory_taken(free, placed.index),
            findings=(*compatible.findings, *findings),
        ),
        payload=stored.folder,
        hold=stored.hold,
        recorder=recorder,
        known=None if rerun_fixtures else _accepted_fixtures(stored, threads),
        taken=partial(memory_taken, free, placed.index),
    )


def _accepted_fixtures(stored: StoredArtifact, threads: int | None) -> AcceptedFixtures | None:
    """What an earlier load noted beside the store's entry; None where this user keeps nothing.

    An entry that is not hashed again is in a store of somebody else's, or in none.
    """
    if not stored.hashed:
        return None
    return AcceptedFixtures(stored.folder.parent.parent, stored.authentic.id, threads)


def _open_all(
    payload: Path,
    variants: Sequence[Variant],
    threads: int | None,
    libraries: Mapping[str, Path],
    custom_ops: Mapping[str, Path],
    placed: CudaPlace,
) -> tuple[list[Runner], list[float]]:
    """Runners of all variants, and the seconds that each took."""

    def timed(variant: Variant) -> tuple[Runner, float]:
        started = time.perf_counter()

        def opened(settings: Mapping[str, Mapping[str, str]]) -> ort.InferenceSession:
            return open_variant(
                payload,
                variant,
                threads=threads,
                libraries=libraries,
                parallel_packing=len(variants) == 1,
                settings=settings,
                custom_ops=files_of(variant, custom_ops),
            )

        return open_runner(variant, placed, opened), time.perf_counter() - started

    if len(variants) == 1:
        done = [timed(variants[0])]
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(len(variants), os.cpu_count() or 1)) as pool:
            done = list(pool.map(timed, variants))
    return [runner for runner, _ in done], [seconds for _, seconds in done]


# Checks of a session before its first call: the provider's verdict, and the placement.


_OPTIMAL: Final = "EP_SUPPORTED_OPTIMAL"


def check_compatibility_strings(
    manifest: Manifest, variant: Variant, libraries: Mapping[str, Path]
) -> tuple[Finding, ...]:
    """Ask each provider whether its compiled parts fit this host: ORT's Python API does not.

    Raises AOTC-C013 for any verdict but `optimal`; with a waiver in the artifact, a finding.
    """
    found = []
    found_verdicts = verdicts(variant.requirements.compatibility, libraries)
    for provider, (verdict, text) in found_verdicts.items():
        if verdict == _OPTIMAL:
            continue
        error = AotcError(
            "AOTC-C013",
            f"{provider} rates the compiled model as {verdict}",
            where=f"variant {variant.name}",
            expected=text,
            found=verdict,
        )
        found.append(_waived_finding(error, manifest, variant))
    return tuple(found)


class Observed(NamedTuple):
    """How a session is placed: its nodes by provider, and how many are not where promised."""

    nodes: Mapping[str, int]
    misplaced: int = 0
    findings: tuple[Finding, ...] = ()


def check_placement(opened: ort.InferenceSession, manifest: Manifest, variant: Variant) -> Observed:
    """Compare the session with its promise: equal if observed, within policy if predicted.

    Raises AOTC-P003 (with a waiver in the artifact: a finding), P001 and P002.
    """
    try:
        observed = observe(opened)
    except UnicodeDecodeError as bad:
        raise AotcError(
            "AOTC-R023",
            "the model's node names are not UTF-8",
            where=f"variant {variant.name}",
            found=repr(bad.object)[:200],
        ) from None
    nodes = dict(sorted(Counter(node.provider for node in observed.nodes).items()))
    promised = variant.placement
    if promised.origin == "predicted":
        _check_policy(manifest, variant, opened)
        return Observed(nodes)
    lines = differences(promised, observed)
    if not lines:
        return Observed(nodes)
    error = AotcError(
        "AOTC-P003",
        f"{len(lines)} nodes are not placed as promised",
        where=f"variant {variant.name}",
        expected="the placement observed at build",
        found=summary(lines),
    )
    finding = _waived_finding(error, manifest, variant)
    # The waiver is for the difference; policy and budgets apply to the actual placement.
    _check_policy(manifest, variant, opened)
    return Observed(nodes, len(lines), (finding,))


def check_session(opened: ort.InferenceSession, manifest: Manifest, variant: Variant) -> None:
    """Compare the session's inputs and outputs with the manifest's names; raises AOTC-R023."""
    for kind, promised, observed in (
        ("inputs", manifest.inputs, opened.get_inputs),
        ("outputs", manifest.outputs, opened.get_outputs),
    ):
        wanted = sorted(value.name for value in promised)
        try:
            found = sorted(value.name for value in observed())
        except UnicodeDecodeError as error:
            found = [repr(error.object)]
        if found != wanted:
            raise AotcError(
                "AOTC-R023",
                f"the model's {kind} are not those that the manifest names",
                where=f"variant {variant.name}",
                expected=", ".join(wanted)[:200],
                found=", ".join(found)[:200] or "none",
            )


def _check_policy(manifest: Manifest, variant: Variant, opened: ort.InferenceSession) -> None:
    profile = profile_of(manifest, variant.name)
    spec = next((spec for spec in profile.variants if spec.name == variant.spec), None)
    names = (spec.providers if spec is not None else None) or profile.providers
    flops = {node.name: node.flops for node in variant.placement.nodes}
    found = judge_placement(
        profile,
        {name: backend_of(name, profile.plugins).ort_name for name in names},
        with_flops(observe(opened), flops),
        report=variant.partitioning,
        transfers=variant.transfers,
        where=f"variant {variant.name}",
    ).breaches
    if found:
        raise with_others(found)


def _waived_finding(error: AotcError, manifest: Manifest, variant: Variant) -> Finding:
    """The finding for a waived `error`; raises `error` if there is no waiver."""
    for waiver in manifest.waivers:
        if waiver.code == error.code and waiver.variant in ("", variant.spec, variant.name):
            return Finding(
                code="AOTC-P008",
                what=f"{error.code} {error.what}: {error.found}; waived: {waiver.reason}",
                where=error.where,
            )
    raise error
