"""Artifacts for the cases, built once for the current sources, each in a fresh process."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import PRECISIONS, Settings
from benchmarks.gpu.child import one_record
from benchmarks.workshop import sources_digest

BUILD_SECONDS = 540


def profile_fields(
    settings: Settings,
    precision: str,
    dims: Mapping[str, Any],
    *,
    capture: bool = True,
) -> dict[str, Any]:
    """A profile's fields: CUDA with captured graphs, or the CPU to try the programs.

    In half precision, inputs and outputs are half as well.  Some classes of random weights lie
    about 0, where rounding is a larger share: a slice may err by a tenth of its scale.
    """
    fields: dict[str, Any] = {
        "providers": ["cpu"] if settings.cpu else ["cuda", "cpu"],
        "precision": precision,
        "dims": dict(dims),
        "fixtures": {"max_count": 2, "max_bytes": 64 << 20},
        "limits": {"seconds": 3600, "memory_bytes": 64 << 30},
    }
    if precision in PRECISIONS:
        tolerance = {"atol": 1e-3, "rtol": 2e-2, "min_cosine": 0.999, "max_slice": 0.1}
        fields["parity"] = {precision: tolerance}
    if precision == "float16":
        # As torch has them there, so that all sides copy the same bytes; ids stay integers.
        fields |= {key: {"*": {"dtype": precision}} for key in ("inputs", "outputs")}
    if not settings.cpu:
        # As the profile server-cuda: what has no graph is measured without.
        graphs = {"capture": "sizes" if capture else "none", "on_refusal": "run"}
        fields |= {"cuda": {"graphs": graphs}}
    return fields


def batch_dims(batches: Sequence[int], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Buckets of the batch; all other dims are fixed."""
    return {**sizes, "batch": {"buckets": list(batches), "outside": "pad"}}


def artifact(
    settings: Settings, model: Path, label: str, fields: Mapping[str, Any], *, at_once: int = 1
) -> Path:
    """The artifact of `model` with a profile of `fields`; raises ChildFailedError.

    The development key of this user signs it.  `at_once` builds run side by side.
    """
    content = json.dumps([sources_digest(), model.stat().st_size, fields], sort_keys=True)
    stem = f"{model.stem}-{label}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    path = settings.folder / "artifacts" / f"{stem}-{digest}.aotc"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    for outdated in path.parent.glob(f"{stem}-{'[0-9a-f]' * 12}.aotc"):
        shutil.rmtree(outdated)
    profile = path.with_suffix(".yaml")
    # JSON is YAML.
    name = stem.replace("_", "-")[:64]
    profile.write_text(json.dumps({"schema": "aotc.profile/1", "name": name, **fields}))
    request = {"model": str(model), "profile": str(profile), "output": str(path)}
    found = one_record("artifacts:build", request, seconds=BUILD_SECONDS)
    print(f"   … built {stem} in {found['seconds']:.0f} s", flush=True)
    path.with_suffix(".build.json").write_text(json.dumps({**found, "at_once": at_once}))
    return path


def how_built(path: Path) -> dict[str, Any]:
    """Seconds and stages of the build of an artifact, its findings, and how many ran at once."""
    found: dict[str, Any] = json.loads(path.with_suffix(".build.json").read_text())
    return found


def build(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: build."""
    import time

    import aotc

    started = time.perf_counter()
    report = aotc.build(
        request["model"],
        profile=request["profile"],
        output=request["output"],
        force=True,
        # It is timed.
        cache=False,
    )
    yield {
        "seconds": time.perf_counter() - started,
        "stages": dict(report.stages),
        "findings": [finding.code for finding in report.findings],
    }
