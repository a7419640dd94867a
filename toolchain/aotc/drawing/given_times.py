"""Measured times of nodes, from what `aotc bench --nodes --json` printed."""

from __future__ import annotations

from pathlib import Path

from aotc.contract.codec.parsing import ParseError
from aotc.contract.codec.strict_json import strict_json
from aotc.errors import AotcError
from aotc.files.failures import cannot_read

_SCHEMA = "aotc.bench/"


def read_node_times(path: Path, artifact_id: str) -> dict[str, dict[str, float]]:
    """Seconds in one run, by variant and node name.

    Raises AOTC-I001 if the file cannot be read, and I058 if it has no times of nodes, or is about
    another artifact than the one with `artifact_id`.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise cannot_read(error, "cannot read the times of nodes", str(path)) from None
    try:
        document = strict_json(content)
    except ParseError as error:
        raise _refusal(path, "is no JSON document", str(error.problems[0].what)) from None
    if not isinstance(document, dict) or not str(document.get("schema")).startswith(_SCHEMA):
        raise _refusal(path, "is not of 'aotc bench'")
    load = document.get("load")
    stated = load.get("artifact_id") if isinstance(load, dict) else None
    if stated != artifact_id:
        raise _refusal(path, "is about another artifact", str(stated or ""))
    report = document.get("nodes")
    nodes = report.get("nodes") if isinstance(report, dict) else None
    if not isinstance(report, dict) or not isinstance(nodes, list) or not nodes:
        raise _refusal(path, "has no times of nodes")
    found: dict[str, float] = {}
    for node in nodes:
        name = node.get("name") if isinstance(node, dict) else None
        seconds = node.get("seconds") if isinstance(node, dict) else None
        if not isinstance(name, str) or not isinstance(seconds, int | float):
            raise _refusal(path, "has a node without name or seconds")
        found[name] = found.get(name, 0.0) + max(float(seconds), 0.0)
    return {str(report.get("variant")): found}


def _refusal(path: Path, what: str, found: str = "") -> AotcError:
    return AotcError("AOTC-I058", f"the document {what}", where=str(path), found=found)
