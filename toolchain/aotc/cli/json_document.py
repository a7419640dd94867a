"""The one JSON document that a command prints with `--json`."""

from __future__ import annotations

import json
import sys
from typing import Any

from aotc.cli import streams
from aotc.contract.codec.parsing import encode


def document_text(answer: Any) -> str:
    """A record as text, every field in it, in printable ASCII."""
    text = json.dumps(encode(answer, full=True), indent=2, allow_nan=False) + "\n"
    # Of the characters that steer a terminal the one that is ASCII and that JSON leaves as it is.
    return text.replace("\x7f", "\\u007f")


def write_document(answer: Any) -> None:
    """Write a record to standard output, every field in it, in ASCII."""
    text = document_text(answer)
    with streams.answering(sys.stdout):
        sys.stdout.write(text)
