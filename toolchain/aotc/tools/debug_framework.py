"""Where an exported model leaves the framework's own program: value by value, by module.

The exporter's program is run by the framework, operator by operator, and the model that it became
by ONNX Runtime without optimizations; values of equal names are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.graph import values
from aotc.graph.view import op_of
from aotc.precision.node_comparison import Side
from aotc.session.parity import WITHOUT_SLICES, compare
from aotc.session.worker_pool import Workers
from aotc.sources.base import MODULES, Taken
from aotc.sources.capturing import SourceTrust, captured
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import NodeError, NodeErrors
from aotc.spec.manifest import Manifest
from aotc.spec.precision import Tolerance

_JOBS: Final = "aotc.tools.debug_framework"
# Values of one run that are read at once.
_AT_ONCE: Final = 128
_FLOATS: Final = frozenset({"f", "V"})


@contextmanager
def captured_again(
    model: Path, manifest: Manifest, allowed: SourceTrust
) -> Iterator[tuple[Path, Taken | None]]:
    """The ONNX model that an artifact was built from, and its capture, if `model` is a source.

    Raises AOTC-I083 if the source is another, or becomes another model here.
    """
    stated = manifest.source.framework
    with captured(model, allowed) as taken:
        if taken is None:
            yield model, None
            return
        found = taken.captured.framework
        if stated is None or stated.files != found.files:
            raise AotcError(
                "AOTC-I083",
                "the artifact was built from another source",
                where=str(model),
                expected=_digests(stated.files) if stated is not None else "an ONNX model",
                found=_digests(found.files),
            )
        if dict(stated.versions) != dict(found.versions):
            raise AotcError(
                "AOTC-I083",
                "other versions capture the source here than when the artifact was built",
                where=str(model),
                expected=_versions(stated.versions),
                found=_versions(found.versions),
            )
        yield taken.model, taken


def _digests(files: Sequence[Any]) -> str:
    return ", ".join(f"{file.name} sha256 {file.sha256}" for file in files[:3]) or "no files"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def with_modules(errors: NodeErrors, taken: Taken) -> NodeErrors:
    """The errors with the modules of the nodes, and the places in the user's code."""
    known = _modules(taken)
    return replace(
        errors,
        nodes=tuple(
            replace(each, module=known[each.node][0], place=known[each.node][1])
            if each.node in known
            else each
            for each in errors.nodes
        ),
    )


def _modules(taken: Taken) -> Mapping[str, tuple[str, str]]:
    path = taken.folder / MODULES
    found: Mapping[str, tuple[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def framework_errors(
    taken: Taken,
    inputs: Mapping[str, str],
    tolerance: Tolerance,
    fixture: str,
    work: Path,
    workers: Workers,
) -> NodeErrors | None:
    """The errors of the exported model beside the framework, by value; None: it shows none inside.

    `inputs` are files by name.
    """
    folder = work / "inside-framework"
    files = workers.run(
        "aotc.sources.capturing:inner_job",
        {
            "importer": taken.importer,
            "request": encode(taken.request),
            "captured": encode(taken.captured),
            "folder": str(taken.folder),
            "inputs": dict(inputs),
        },
        folder=folder,
        where=taken.title,
    ).value
    if not files:
        return None
    found = workers.run(
        f"{_JOBS}:inside_job",
        {
            "model": str(taken.model),
            "inputs": dict(inputs),
            "values": {name: str(folder / path) for name, path in files.items()},
            "tolerance": encode(tolerance),
            "fixture": fixture,
        },
        folder=work / "inside-exported",
        where=taken.model.name,
    ).value
    return with_modules(decode(NodeErrors, found), taken)


def inside_job(request: Json) -> Json:
    """In the worker: each value of floats that both have, in the order of the model."""
    side = Side(model=Path(request["model"]), weights=Path(request["model"]).parent)
    graph = side.read()
    known = request["values"]
    given = {name: values.load(Path(path)) for name, path in request["inputs"].items()}
    tolerance = decode(Tolerance, request["tolerance"])
    made = [(node, name) for node in graph.graph.node for name in node.output if name in known]
    errors: list[NodeError] = []
    for start in range(0, len(made), _AT_ONCE):
        part = made[start : start + _AT_ONCE]
        own = side.values(graph, given, [name for _, name in part])
        for node, name in part:
            expected = values.load(Path(known[name]))
            if not {expected.dtype.kind, own[name].dtype.kind} <= _FLOATS:
                continue
            error = compare(expected, own[name], tolerance, name, beside=WITHOUT_SLICES)
            errors.append(
                NodeError(
                    node=node.name,
                    op=op_of(node),
                    value=name,
                    max_abs=error.max_abs,
                    max_rel=error.max_rel,
                    cosine=error.cosine,
                    passed=error.passed,
                    reason=error.reason,
                )
            )
    total = sum(len(node.output) for node in graph.graph.node)
    worst = max(errors, key=lambda error: error.max_rel, default=None)
    found = NodeErrors(
        fixture=request["fixture"],
        nodes=tuple(errors),
        uncompared=total - len(errors),
        first=next((error.node for error in errors if not error.passed), ""),
        worst=worst.node if worst is not None and worst.max_rel else "",
    )
    return encode(found)
