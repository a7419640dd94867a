"""The one JSON document that a command prints with `--json`."""

from __future__ import annotations

import json
import sys
from typing import Any

from aotc.contract.parsing import encode


def document_text(answer: Any) -> str:
    """A record as text, every field in it, in ASCII."""
    return json.dumps(encode(answer, full=True), indent=2, allow_nan=False) + "\n"


def write_document(answer: Any) -> None:
    """Write a record to standard output, every field in it, in ASCII."""
    sys.stdout.write(document_text(answer))
