"""`.json`: the record itself, for programs (`aotc.report/1`)."""

from __future__ import annotations

import json

from aotc.contract.codec.parsing import encode
from aotc.contract.results.run_report import RunReport


def json_text(report: RunReport) -> str:
    """The report with every field, in printable ASCII."""
    text = json.dumps(encode(report, full=True), indent=2, allow_nan=False) + "\n"
    # Of the characters that steer a terminal the one that is ASCII and that JSON leaves as it is.
    return text.replace("\x7f", "\\u007f")
