"""The one JSON document that a command prints with `--json`."""

from __future__ import annotations

import sys
from typing import Any

from aotc.cli import streams
from aotc.contract.codec.parsing import encode
from aotc.contract.codec.shown_json import document


def document_text(answer: Any) -> str:
    """A record as text, every field in it, in printable ASCII."""
    return document(encode(answer, full=True))


def write_document(answer: Any) -> None:
    """Write a record to standard output, every field in it, in ASCII."""
    text = document_text(answer)
    with streams.answering(sys.stdout):
        sys.stdout.write(text)
