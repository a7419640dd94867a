"""`.json`: the record itself, for programs (`aotc.report/1`)."""

from __future__ import annotations

from aotc.contract.codec.parsing import encode
from aotc.contract.codec.shown_json import document
from aotc.contract.results.run_report import RunReport


def json_text(report: RunReport) -> str:
    """The report with every field, in printable ASCII."""
    return document(encode(report, full=True))
