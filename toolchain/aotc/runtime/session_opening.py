"""Steps 3 and 4 of a load: sessions of the chosen variants, checked against the manifest.

Everything that needs ONNX Runtime and numpy is imported from here, so that a load can verify before
these imports, and hash during them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.contract.finding import Finding
from aotc.contract.manifest.variant import Variant
from aotc.contract.results.reports import LoadReport, VariantLoad
from aotc.engine.device.cuda_place import CudaPlace
from aotc.errors import AotcError
from aotc.runtime.accepted_before import AcceptedBefore
from aotc.runtime.promises import check_compatibility_strings, check_placement, check_session
from aotc.runtime.ready_model import ReadyModel
from aotc.runtime.routing import spec_of
from aotc.runtime.runners import Runner, close_all, open_runner
from aotc.runtime.warmup import open_variant
from aotc.store.user_store import StoredArtifact
from aotc.verification.gate import CompatibleArtifact

if TYPE_CHECKING:
    import onnxruntime as ort

    from aotc.runtime.recorder import ShapeRecorder


def open_model(
    stored: StoredArtifact,
    compatible: CompatibleArtifact,
    chosen: Sequence[Variant],
    threads: int | None,
    libraries: Mapping[str, Path],
    earlier_findings: Sequence[Finding],
    record: str | Path | None,
    record_bytes: int,
    *,
    rerun_fixtures: bool = False,
    placed: CudaPlace | None = None,
) -> ReadyModel:
    """Steps 3 and 4 for variants of one kind, whose CUDA sessions are where `placed` says."""
    manifest = stored.authentic.manifest
    findings = list(earlier_findings)
    findings += [
        finding
        for variant in chosen
        for finding in check_compatibility_strings(manifest, variant, libraries)
    ]
    # 3.
    started = time.perf_counter()
    runners, seconds = _open_all(stored.folder, chosen, threads, libraries, placed or CudaPlace())
    created = time.perf_counter()
    # 4.
    placement_seconds = []
    try:
        for variant, runner in zip(chosen, runners, strict=True):
            placing = time.perf_counter()
            check_session(runner.session, manifest, variant)
            findings += check_placement(runner.session, manifest, variant)
            placement_seconds.append(time.perf_counter() - placing)
    except AotcError:
        close_all(runners)
        raise
    recorder: ShapeRecorder | None = None
    if stated := record or os.environ.get("AOTC_RECORD_SHAPES"):
        from aotc.runtime.recorder import ShapeRecorder

        recorder = ShapeRecorder(stated, limit=record_bytes)
    return ReadyModel(
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
            warmup_seconds=sum(placement_seconds),
            variants=tuple(
                VariantLoad(name=variant.name, session_seconds=opening, warmup_seconds=placing)
                for variant, opening, placing in zip(
                    chosen, seconds, placement_seconds, strict=True
                )
            ),
            findings=(*compatible.findings, *findings),
        ),
        payload=stored.folder,
        hold=stored.hold,
        recorder=recorder,
        known=None if rerun_fixtures else _known(stored, threads),
    )


def _known(stored: StoredArtifact, threads: int | None) -> AcceptedBefore | None:
    """What an earlier load noted beside the store's entry; None where this user keeps nothing.

    An entry that is not hashed again is in a store of somebody else's, or in none.
    """
    if not stored.hashed:
        return None
    entry = stored.folder.parent
    return AcceptedBefore(entry.parent, stored.authentic.id, threads)


def _open_all(
    payload: Path,
    variants: Sequence[Variant],
    threads: int | None,
    libraries: Mapping[str, Path],
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
            )

        return open_runner(variant, placed, opened), time.perf_counter() - started

    if len(variants) == 1:
        done = [timed(variants[0])]
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(len(variants), os.cpu_count() or 1)) as pool:
            done = list(pool.map(timed, variants))
    return [runner for runner, _ in done], [seconds for _, seconds in done]
