"""A record as the YAML that its loader reads back."""

from __future__ import annotations

from typing import Any

from aotc.contract.parsing import encode


def yaml_text(record: Any) -> str:
    """Every field of a record, defaults written out."""
    import yaml

    # Wide, so that lists of plain values stay on one line.
    return yaml.safe_dump(
        encode(record, full=True), sort_keys=False, default_flow_style=None, width=100
    )
