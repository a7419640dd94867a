"""Evidence of a build with another tuning table, as a build on another machine may leave it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

from aotc.base.records import replace
from aotc.spec.codec import decode, encode
from aotc.spec.evidence import Evidence, TuningCandidate
from aotc.spec.json import strict_json

PLACE = Path("attestations") / "evidence.sigstore.json"


def changed_table(
    artifact: Path, folder: Path, change: Callable[[TuningCandidate], TuningCandidate]
) -> Path:
    """The evidence of an artifact with every row changed: a bundle as the pipeline writes it."""
    bundle = json.loads((artifact / PLACE).read_bytes())
    statement = strict_json(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    evidence = decode(Evidence, statement["predicate"])
    evidence = replace(evidence, tuning=tuple(change(row) for row in evidence.tuning))
    statement["predicate"] = encode(evidence)
    text = json.dumps(statement).encode()
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(text).decode()
    path = folder / "evidence.json"
    path.write_text(json.dumps(bundle))
    return path
