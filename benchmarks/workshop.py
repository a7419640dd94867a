"""Where benchmarks find their models, key and artifacts; all of it lies in build/bench."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fresh import ROOT, fresh, processor_seconds
from benchmarks.networks import models

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Workshop:
    """`smoke` takes small models and few rounds: it tries the programs and measures nothing."""

    folder: Path
    smoke: bool
    progress: Progress

    @property
    def store(self) -> Path:
        """The store that loads use."""
        return self.folder / "store"

    def rounds(self, wanted: int) -> int:
        """How often to repeat."""
        return min(wanted, 3) if self.smoke else wanted

    def model(self, name: str) -> models.Model:
        """A generated model; made once."""
        made = models.SMOKE[name] if self.smoke else models.FULL[name]
        path = self.folder / "models" / made.folder / "model.onnx"
        if not path.exists():
            self.progress(f"generate {made.title}")
            partial = path.parent.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            made.write(partial / path.name)
            partial.rename(path.parent)
        return made.at(path)

    def key(self) -> tuple[Path, Path]:
        """A private and a public key."""
        from aotc.signing.keys import key_files

        private, public = self.folder / "bench.pem", self.folder / "bench.pub"
        return (private, public) if private.exists() else key_files.generate(private)

    def artifact(self, name: str, profile: str) -> Path:
        """The artifact of a model, built by the sources as they are now."""
        path = self.artifact_path(name, profile)
        if not path.exists():
            self.progress(f"build {self.model(name).title} with {profile}")
            fresh("workshop:build", self.build_request(name, profile))
        return path

    def artifact_path(self, name: str, profile: str) -> Path:
        """Where the artifact belongs; those of other sources are removed."""
        folder = self.folder / "artifacts"
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self.model(name).folder}-{profile}"
        path = folder / f"{stem}-{sources_digest()[:12]}.aotc"
        for other in folder.glob(f"{stem}-*.aotc"):
            if other != path:
                shutil.rmtree(other)
        return path

    def built(self, model: models.Model, profile: Path) -> dict[str, Any]:
        """What `build` returned for a fresh artifact named after the profile's file."""
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
        done: dict[str, Any] = fresh("workshop:build", request)
        return done

    def profile(self, name: str, fields: dict[str, Any]) -> Path:
        """A profile file of `fields`."""
        path = self.folder / "profiles" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        # JSON is YAML.
        path.write_text(json.dumps({"schema": "aotc.profile/1", "name": name[:64], **fields}))
        return path

    def build_request(self, name: str, profile: str, output: Path | None = None) -> dict[str, Any]:
        """What `build` takes."""
        model = self.model(name)
        return {
            "model": str(model.path),
            "profile": profile,
            "dims": model.dims,
            "key": str(self.key()[0]),
            "output": str(output or self.artifact_path(name, profile)),
        }


def build(request: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: build, and the seconds that it took after imports."""
    import time

    import aotc.pipeline

    started, used = time.perf_counter(), processor_seconds()
    report = aotc.pipeline.build(
        request["model"],
        profile=request["profile"],
        dims=request["dims"],
        key=request["key"],
        output=request["output"],
        force=True,
        tune=request.get("tune", False),
        # What is measured is a build, not that it was made before.
        cache=False,
    )
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": processor_seconds() - used,
        "artifact": report.artifact,
        "stages": dict(report.stages),
    }


def sources_digest() -> str:
    """sha256 over the toolchain's sources and the profiles."""
    digest = hashlib.sha256()
    for folder, pattern in (("toolchain", "*.py"), ("profiles", "*.yaml")):
        for path in sorted((ROOT / folder).rglob(pattern)):
            digest.update(f"{path.relative_to(ROOT)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
