"""JSON that is shown as it is: on a terminal, and in the log of a CI job."""

from __future__ import annotations

import json

from aotc.contract.codec.parsing import Json


def document(value: Json) -> str:
    """`value` as an indented document in printable ASCII; raises ValueError for NaN and infinity.

    Escaped are the character that steers a terminal and that JSON leaves as it is, and what the
    runner of GitHub Actions obeys anywhere in a line, `##[`.
    """
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    return text.replace("\x7f", "\\u007f").replace("##[", "\\u0023#[")
