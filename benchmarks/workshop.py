"""The models, key and artifacts of benchmarks; all of them are in build/bench."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fresh import ROOT, processor_seconds, run_fresh
from benchmarks.networks import models

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Workshop:
    """`smoke` uses small models and few rounds: it tries the programs, without measuring."""

    folder: Path
    smoke: bool
    progress: Progress

    @property
    def store(self) -> Path:
        """The store that loads use."""
        return self.folder / "store"

    def rounds(self, wanted: int) -> int:
        """The number of repetitions."""
        return min(wanted, 3) if self.smoke else wanted

    def model(self, name: str) -> models.Model:
        """A generated model; it is generated only once."""
        model = models.SMOKE[name] if self.smoke else models.FULL[name]
        path = self.folder / "models" / model.folder / "model.onnx"
        if not path.exists():
            self.progress(f"generate {model.title}")
            partial = path.parent.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            model.write(partial / path.name)
            partial.rename(path.parent)
        return model.at(path)

    def key(self) -> tuple[Path, Path]:
        """The paths of a private and a public key."""
        from aotc.trust import key_files

        private, public = self.folder / "bench.pem", self.folder / "bench.pub"
        return (private, public) if private.exists() else key_files.generate(private)

    def artifact(self, name: str, profile: str) -> Path:
        """The artifact of a model, built by the current sources."""
        path = self.artifact_path(name, profile)
        if not path.exists():
            self.progress(f"build {self.model(name).title} with {profile}")
            run_fresh("workshop:build", self.build_request(name, profile))
        return path

    def artifact_path(self, name: str, profile: str) -> Path:
        """The path for the artifact; artifacts of other sources are removed."""
        folder = self.folder / "artifacts"
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self.model(name).folder}-{profile}"
        path = folder / f"{stem}-{sources_digest()[:12]}.aotc"
        for other in folder.glob(f"{stem}-*.aotc"):
            if other != path:
                shutil.rmtree(other)
        return path

    def build_report(self, model: models.Model, profile: Path) -> dict[str, Any]:
        """The result of `build` for a new artifact named after the profile's file."""
        output = self.folder / "artifacts" / f"{profile.stem}.aotc"
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(output, ignore_errors=True)
        request = {
            "model": str(model.path),
            "profile": str(profile),
            "dims": {},
            "key": str(self.key()[0]),
            "output": str(output),
        }
        report: dict[str, Any] = run_fresh("workshop:build", request)
        return report

    def profile(self, name: str, fields: dict[str, Any]) -> Path:
        """The path of a profile file with `fields`."""
        path = self.folder / "profiles" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        # JSON is YAML.
        path.write_text(json.dumps({"schema": "aotc.profile/1", "name": name[:64], **fields}))
        return path

    def build_request(self, name: str, profile: str, output: Path | None = None) -> dict[str, Any]:
        """The request for `build`."""
        model = self.model(name)
        return {
            "model": str(model.path),
            "profile": profile,
            "dims": model.dims,
            "key": str(self.key()[0]),
            "output": str(output or self.artifact_path(name, profile)),
        }


def build(request: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: build, and return the seconds that it took after imports."""
    import time

    import aotc.pipeline.build

    started, used = time.perf_counter(), processor_seconds()
    report = aotc.pipeline.build.build(
        request["model"],
        profile=request["profile"],
        dims=request["dims"],
        key=request["key"],
        output=request["output"],
        force=True,
        tune=request.get("tune", False),
        # The build itself is measured, not the cache.
        cache=False,
    )
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": processor_seconds() - used,
        "artifact": report.artifact,
        "stages": dict(report.stages),
    }


def sources_digest() -> str:
    """SHA-256 over the toolchain's sources and the profiles."""
    digest = hashlib.sha256()
    for folder, pattern in (("toolchain", "*.py"), ("profiles", "*.yaml")):
        for path in sorted((ROOT / folder).rglob(pattern)):
            digest.update(f"{path.relative_to(ROOT)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
