"""What a build's bytes depend on: the keys of the build cache."""

from __future__ import annotations

import platform
from importlib import metadata

from aotc.contract.codec.parsing import Json, encode
from aotc.contract.known_providers import RUNTIMES
from aotc.contract.manifest.toolchain import FUSING
from aotc.contract.profile_paths import without_folders
from aotc.engine.named_backends import backend_of
from aotc.stages.build_options import BuildOptions
from aotc.stages.reuse.content_digests import data_digests, fixtures_digest
from aotc.stages.reuse.source_digest import source_digest

_PACKAGES = ("onnx", *RUNTIMES, *FUSING, "numpy", "ml_dtypes", "cryptography")


def artifact_key_parts(source: str, name: str, options: BuildOptions) -> Json | None:
    """All that a payload depends on; None if data cannot be read, which the build reports.

    Nor is anything known of a metric that is a function of the user's, so None for that too.

    These are `source`, the digest of the model with its external data; the resolved profile and
    target; the toolchain with its passes; every provider's fingerprint; the CPU that computes the
    reference; the fixtures, and the data that is calibrated and judged with.
    """
    task = options.profile.gates.task
    if task is not None and task.runs_code:
        return None
    try:
        data = data_digests(options)
        fixtures = fixtures_digest(options)
    except (OSError, ValueError, EOFError):
        return None
    profile = options.profile
    names = {name for variant in profile.variants for name in variant.providers or ()}
    names |= {*profile.providers, *(name for order in profile.tune.providers for name in order)}
    return {
        "model": source,
        "name": name,
        "profile": encode(without_folders(profile), full=True),
        "target": encode(options.target, full=True),
        "host": [options.host.os, options.host.architecture, *sorted(options.host.isa or ())],
        "fixtures": fixtures,
        "data": data,
        "tries_static": options.tries_static,
        "tries_half": options.tries_half,
        "embed_fixtures": options.embed_fixtures,
        "aotc": source_digest(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "providers": {
            name: _fingerprint(backend_of(name, profile.plugins)) for name in sorted(names)
        },
    }


def _fingerprint(backend: object) -> str:
    from aotc.backends.base import Backend

    assert isinstance(backend, Backend)
    if not backend.probe().available:
        return "missing"
    return backend.fingerprint() + ("" if backend.probe().runs else "; cannot run here")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
