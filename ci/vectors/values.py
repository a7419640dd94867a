"""JSON-like values: their serialization, and copies with a change."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any

Json = Any


def json_text(value: Json) -> bytes:
    """Readable JSON, indented."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def compact(value: Json) -> bytes:
    """JSON as aotc writes what it signs."""
    return json.dumps(value, separators=(",", ":")).encode()


def b64(data: bytes) -> str:
    """Base64 of bytes."""
    return base64.b64encode(data).decode("ascii")


def sha256(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def changed(value: Json, change: Callable[[Json], object]) -> Json:
    """A copy with `change` applied."""
    copied = copy.deepcopy(value)
    change(copied)
    return copied


def put(value: Json, *path: str | int, to: Json) -> None:
    """Set the value at the end of a path of keys and indices."""
    for part in path[:-1]:
        value = value[part]
    value[path[-1]] = to
