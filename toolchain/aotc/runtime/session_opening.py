"""Steps 3 and 4 of a load: sessions of the chosen variants, held to what the manifest promises.

All that ONNX Runtime and numpy are needed for is imported from here on, so that a load can verify
before these imports, and hash while they run.
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
from aotc.runtime.promises import check_compatibility_strings, check_placement, check_session
from aotc.runtime.ready_model import ReadyModel
from aotc.runtime.routing import spec_of
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
    passed: Sequence[Finding],
    record: str | Path | None,
    record_bytes: int,
) -> ReadyModel:
    """Steps 3 and 4 for one kind of variants."""
    manifest = stored.authentic.manifest
    noticed = list(passed)
    noticed += [
        finding
        for each in chosen
        for finding in check_compatibility_strings(manifest, each, libraries)
    ]
    # 3.
    started = time.perf_counter()
    opened, seconds = _open_all(stored.folder, chosen, threads, libraries)
    created = time.perf_counter()
    # 4.
    placed = []
    for each, session_of in zip(chosen, opened, strict=True):
        placing = time.perf_counter()
        check_session(session_of, manifest, each)
        noticed += check_placement(session_of, manifest, each)
        placed.append(time.perf_counter() - placing)
    recorder: ShapeRecorder | None = None
    if stated := record or os.environ.get("AOTC_RECORD_SHAPES"):
        from aotc.runtime.recorder import ShapeRecorder

        recorder = ShapeRecorder(stated, limit=record_bytes)
    return ReadyModel(
        manifest,
        chosen,
        opened,
        LoadReport(
            artifact_id=stored.authentic.id,
            variant=spec_of(chosen[0]) if len(chosen) > 1 else chosen[0].name,
            verdict=compatible.verdict,
            from_store=stored.from_store,
            hashed=stored.hashed,
            verify_seconds=stored.seconds,
            session_seconds=created - started,
            warmup_seconds=sum(placed),
            variants=tuple(
                VariantLoad(name=each.name, session_seconds=one, warmup_seconds=other)
                for each, one, other in zip(chosen, seconds, placed, strict=True)
            ),
            findings=(*compatible.findings, *noticed),
        ),
        payload=stored.folder,
        hold=stored.hold,
        recorder=recorder,
    )


def _open_all(
    payload: Path,
    variants: Sequence[Variant],
    threads: int | None,
    libraries: Mapping[str, Path],
) -> tuple[list[ort.InferenceSession], list[float]]:
    """Sessions of all variants, and the seconds that each took."""

    def timed(variant: Variant) -> tuple[ort.InferenceSession, float]:
        started = time.perf_counter()
        opened = open_variant(payload, variant, threads=threads, libraries=libraries)
        return opened, time.perf_counter() - started

    if len(variants) == 1:
        done = [timed(variants[0])]
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(len(variants), os.cpu_count() or 1)) as pool:
            done = list(pool.map(timed, variants))
    return [opened for opened, _ in done], [seconds for _, seconds in done]
