"""What a build's bytes depend on: the keys of the build cache."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import onnx

import aotc
from aotc.contract.codec.parsing import Json, encode
from aotc.contract.known_providers import RUNTIMES
from aotc.contract.versions import MANIFEST_SCHEMA, VERSION
from aotc.engine.named_backends import backend_of
from aotc.graphs.capture import MAX_PROTOBUF, tensors
from aotc.stages.build_options import BuildOptions

_PACKAGES = ("onnx", *RUNTIMES, "numpy", "ml_dtypes", "cryptography")
_BLOCK = 1 << 20


@cache
def source_digest() -> str:
    """Of this toolchain: its passes decide the bytes too, and a version says too little."""
    root = Path(aotc.__file__).parent
    digest = hashlib.sha256(f"{VERSION} {MANIFEST_SCHEMA}".encode())
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def artifact_key_parts(source: str, name: str, options: BuildOptions) -> Json | None:
    """All that a payload depends on; None where fixtures cannot be read, which the build tells.

    `source`, the digest of the model with its external data, the resolved profile and target, the
    toolchain with its passes, every provider's fingerprint, the CPU that computes the reference,
    and fixtures.
    """
    try:
        fixtures = _folder_digest(options.fixtures) if options.fixtures is not None else ""
    except (OSError, ValueError, EOFError):
        return None
    profile = options.profile
    names = {name for variant in profile.variants for name in variant.providers or ()}
    names |= {*profile.providers, *(name for order in profile.tune.providers for name in order)}
    return {
        "model": source,
        "name": name,
        "profile": encode(profile, full=True),
        "target": encode(options.target, full=True),
        "host": [options.host.os, options.host.architecture, *sorted(options.host.isa or ())],
        "fixtures": fixtures,
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


def model_digest(model: str | Path | bytes) -> str | None:
    """Of the model with its external data; None where it cannot be read, which the import tells."""
    try:
        return _model_digest(model)
    except (OSError, ValueError, EOFError):
        return None


def _model_digest(model: str | Path | bytes) -> str:
    if not isinstance(model, bytes):
        # The name is a part of the key.
        str(model).encode()
    data = model if isinstance(model, bytes) else _content(Path(model))
    digest = hashlib.sha256(data)
    try:
        parsed = onnx.load_model_from_string(data)
    except Exception as error:
        # protobuf's own error class is no part of its interface.
        raise ValueError(str(error)) from None
    files = sorted({location for location in _locations(parsed) if location})
    if isinstance(model, bytes):
        return digest.hexdigest()
    for location in files:
        path = Path(model).parent / location
        digest.update(location.encode())
        with _plain(path).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _content(path: Path) -> bytes:
    """The model's bytes; raises `ValueError` where it is more than protobuf reads."""
    if _plain(path).stat().st_size > MAX_PROTOBUF:
        raise ValueError(f"{path} is too large")
    return path.read_bytes()


def _plain(path: Path) -> Path:
    """`path`; raises `ValueError` where it is no file, as reading a pipe would never end."""
    if not path.is_file():
        raise ValueError(f"{path} is no file")
    return path


def _locations(model: onnx.ModelProto) -> Iterator[str]:
    for tensor in tensors(model):
        for pair in tensor.external_data:
            if pair.key == "location":
                if not isinstance(pair.value, str):
                    raise ValueError("a location is not UTF-8")
                yield pair.value


def _folder_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    files = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if p.is_file())
    for path in files:
        digest.update(str(path.relative_to(folder)).encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def constants_digest(model: onnx.ModelProto, weights: Path) -> str:
    """Of all external constants that a graph reads from the folder `weights`, in order."""
    digest = hashlib.sha256()
    for tensor in tensors(model):
        entry = {pair.key: pair.value for pair in tensor.external_data}
        if "location" not in entry:
            continue
        left = int(entry.get("length", "0"))
        with (weights / entry["location"]).open("rb") as file:
            file.seek(int(entry.get("offset", "0")))
            while left and (block := file.read(min(left, _BLOCK))):
                digest.update(block)
                left -= len(block)
    return digest.hexdigest()
