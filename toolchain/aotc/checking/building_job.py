"""Builds one model in a separate process, as `aotc build` would."""

from __future__ import annotations

from pathlib import Path

from aotc.contract.codec.parsing import Json, decode
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.manifest.document import Manifest
from aotc.contract.profile import Profile
from aotc.engine.worker_pool import Workers
from aotc.files.artifact_layout import MANIFEST
from aotc.pipeline import PRELOADED_MODULES, build
from aotc.verification.compatibility import judge, probe_host


def build_model(request: Json) -> Json:
    """Build the `model` to `artifact`, signed with the key in the file `key`.

    Returns the verdict on this host and the codes of findings.  Raises as `build` does.
    """
    profile = decode(Profile, request["profile"])
    artifact = Path(request["artifact"])
    with Workers(profile.limits, PRELOADED_MODULES, forked=True) as workers:
        report = build(
            Path(request["model"]),
            profile=profile,
            output=artifact,
            key=request["key"],
            fixtures=request["fixtures"],
            cache=request["cache"],
            workers=workers,
        )
    manifest = decode(Manifest, strict_json((artifact / MANIFEST).read_bytes()))
    libraries = {plugin.provider: Path(plugin.library) for plugin in profile.plugins.values()}
    return {
        "verdict": judge(manifest, probe_host(manifest, libraries)).verdict,
        "findings": sorted({finding.code for finding in report.findings}),
    }
