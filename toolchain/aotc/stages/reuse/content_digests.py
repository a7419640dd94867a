"""Digests of the inputs of a build: models with their external data, folders, constants."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import onnx

from aotc.files.test_data import data_files
from aotc.graphs.contents import MAX_PROTOBUF, tensors
from aotc.stages.build_options import BuildOptions

_BLOCK_BYTES = 1 << 20


def model_digest(model: str | Path | bytes) -> str | None:
    """The digest of a model with its external data; None if it cannot be read."""
    try:
        return _model_digest(model)
    except (OSError, ValueError, EOFError):
        return None


def _model_digest(model: str | Path | bytes) -> str:
    if not isinstance(model, bytes):
        # The name is part of the key.
        str(model).encode()
    data = model if isinstance(model, bytes) else _read_model(Path(model))
    digest = hashlib.sha256(data)
    try:
        parsed = onnx.load_model_from_string(data)
    except Exception as error:
        # protobuf's own error class is not part of its public interface.
        raise ValueError(str(error)) from None
    files = sorted({location for location in _locations(parsed) if location})
    if isinstance(model, bytes):
        return digest.hexdigest()
    for location in files:
        path = Path(model).parent / location
        digest.update(location.encode())
        with _require_file(path).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _read_model(path: Path) -> bytes:
    """The model's bytes; raises `ValueError` if they are more than protobuf reads."""
    if _require_file(path).stat().st_size > MAX_PROTOBUF:
        raise ValueError(f"{path} is too large")
    return path.read_bytes()


def _require_file(path: Path) -> Path:
    """`path`; raises `ValueError` if it is not a file, because reading a pipe would never end."""
    if not path.is_file():
        raise ValueError(f"{path} is not a file")
    return path


def _locations(model: onnx.ModelProto) -> Iterator[str]:
    for tensor in tensors(model):
        for pair in tensor.external_data:
            if pair.key == "location":
                if not isinstance(pair.value, str):
                    raise ValueError("a location is not UTF-8")
                yield pair.value


def folder_digest(folder: Path) -> str:
    """The digest of all test data in a folder with its names, or of one file; raises `OSError`.

    What no build reads is no part of it, and what it reads behind links is.
    """
    digest = hashlib.sha256()
    for path in data_files(folder):
        digest.update(str(path.relative_to(folder)).encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def data_digests(options: BuildOptions) -> dict[str, str]:
    """The sha256 of the data that a profile or its command names, by purpose and file name.

    That of a folder is `folder_digest`, and its name is no part of it.  Raises `OSError`.
    """
    task = options.profile.gates.task
    found: dict[str, str] = {}
    for purpose, path in (
        ("calibration", options.calibration),
        ("task", Path(task.data) if task is not None else None),
    ):
        if path is None:
            continue
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[f"{purpose}/{path.name}"] = digest
        else:
            found[purpose] = folder_digest(path)
    return found


def fixtures_digest(options: BuildOptions) -> str:
    """The digest of the user's fixtures; empty without any.  Raises `OSError`."""
    return folder_digest(options.fixtures) if options.fixtures is not None else ""


def inputs_digests(model: str | Path | bytes, options: BuildOptions) -> dict[str, str] | None:
    """Digests of all that a build reads of the user's; None if something cannot be read."""
    digest = model_digest(model)
    if digest is None:
        return None
    try:
        data = data_digests(options)
        return {"model": digest, "fixtures": fixtures_digest(options), **data}
    except (OSError, ValueError, EOFError):
        return None


def constants_digest(model: onnx.ModelProto, weights: Path) -> str:
    """The digest of all external constants of a graph, in order; they are in `weights`."""
    digest = hashlib.sha256()
    for tensor in tensors(model):
        entry = {pair.key: pair.value for pair in tensor.external_data}
        if "location" not in entry:
            continue
        left = int(entry.get("length", "0"))
        with (weights / entry["location"]).open("rb") as file:
            file.seek(int(entry.get("offset", "0")))
            while left and (block := file.read(min(left, _BLOCK_BYTES))):
                digest.update(block)
                left -= len(block)
    return digest.hexdigest()
