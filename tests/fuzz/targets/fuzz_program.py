"""Exported programs: what PyTorch would be given holds no more than what was recognized."""

from __future__ import annotations

import atexit
import io
import json
import random
import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz_target import FUZZ, Target
from structured import mutated

from aotc.base.errors import AotcError
from aotc.sources.pt2_archive import Pt2File

REFUSED = {"AOTC-I002", *(f"AOTC-I13{digit}" for digit in range(8))}
HONEST = FUZZ.parent / "data" / "programs" / "plain.pt2"
TEXTS = ("models/model.json", "data/weights/model_weights_config.json",
         "data/constants/model_constants_config.json")  # fmt: skip
_FOLDER = tempfile.TemporaryDirectory(prefix="aotc-fuzz-")
atexit.register(_FOLDER.cleanup)
FILE, AGAIN = Path(_FOLDER.name) / "a.pt2", Path(_FOLDER.name) / "b.pt2"
# What evaluating, importing or calling needs.
CODE = re.compile(r"__|import|lambda|eval|exec|opaque_obj_|custom_obj_\d")


def check(data: bytes) -> bool:
    """What is made of an accepted one is accepted, equal, and holds neither code nor pickles."""
    FILE.write_bytes(data)
    try:
        with Pt2File(FILE) as file:
            first, made = file.content, file.rewritten().read()
            file.weights_sha256()
    except AotcError as error:
        assert error.code in REFUSED, error.line()
        return False
    AGAIN.write_bytes(made)
    with Pt2File(AGAIN) as again:
        assert again.samples is None
        # Guards and remarks are left out, and types of trees replaced.
        for name in ("inputs", "outputs", "ranges", "operators", "devices", "weights", "mutated"):
            assert getattr(again.content, name) == getattr(first, name), name
        assert again.rewritten().read() == made
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len(names) == len(set(names))
        for name in TEXTS:
            _require_no_code(json.loads(archive.read(f"model/{name}")))
    return True


def _require_no_code(value: Any) -> None:
    """No text but remarks and arguments of operators has what code needs."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in ("metadata", "as_string", "as_strings", "torch_version"):
                assert not CODE.search(key), key
                _require_no_code(item)
    elif isinstance(value, list):
        for item in value:
            _require_no_code(item)
    elif isinstance(value, str):
        assert not CODE.search(value), value


def _files(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def _mutate(data: bytes, size: int, seed: int) -> bytes | None:
    """Another archive: a value of its texts is another, or a byte of a file or of the archive."""
    try:
        files = _files(data)
        chosen = random.Random(seed)
        name = chosen.choice(sorted(files))
        if name.endswith(".json"):
            changed = mutated(files[name], size, seed)
            if changed is None:
                return None
            files[name] = changed
        elif chosen.random() < 0.5:
            content = bytearray(files[name])
            if content:
                content[chosen.randrange(len(content))] = chosen.randrange(256)
            files[name] = bytes(content)
        else:
            whole = bytearray(data)
            whole[chosen.randrange(len(whole))] = chosen.randrange(256)
            return bytes(whole)
        made = _packed(files)
    except Exception:
        return None
    return made if len(made) <= size else None


def seeds() -> Iterator[bytes]:
    """The honest program, as PyTorch and as Python packs it, and one without sample inputs."""
    data = HONEST.read_bytes()
    yield data
    files = _files(data)
    yield _packed(files)
    (samples,) = (name for name in files if name.endswith("/sample_inputs/model.pt"))
    yield _packed({**files, samples: b""})
    yield _packed({"a/b": b""})


WORDS = frozenset(
    {"Symbol('s31', positive=True, integer=True)", "Add(Integer(1), Integer(2))", "torch.ops.aten."}
    | {"__import__('os')", "_operator.call", "weight_0", "opaque_obj_0", "builtins.dict", "u999999"}
)
TARGET = Target("program", check, seeds, WORDS, 65536, _mutate)
