"""The digest of this toolchain's own source."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from aotc.contract.versions import MANIFEST_SCHEMA, VERSION


@cache
def source_digest() -> str:
    """The digest of all source files: passes decide the bytes too, beyond the version."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256(f"{VERSION} {MANIFEST_SCHEMA}".encode())
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
