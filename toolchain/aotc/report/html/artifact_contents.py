"""What a page is made of, read from an artifact and from measured times; nothing is verified."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.files.folders import ATTESTATIONS, MANIFEST
from aotc.base.files.reading import read_at_most
from aotc.base.records import record
from aotc.report.html.graph_data import DrawnGraph, GraphRequest, read_graphs
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX, KINDS
from aotc.spec.codec import ParseError, decode
from aotc.spec.evidence import Evidence
from aotc.spec.json import MAX_JSON_BYTES, strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.reports import InspectReport
from aotc.spec.versions import stated_id
from aotc.tools.diff.opened_artifact import MAX_MODEL_BYTES
from aotc.tools.inspect import inspect
from aotc.trust import dsse, statements
from aotc.trust.archive import is_packed
from aotc.trust.container import Container, reread
from aotc.trust.opening import open_container

# Larger graphs are not drawn: nobody reads them, and a page would take minutes.
MAX_NODES: Final = 5000


@record
class DrawnVariant:
    """A graph, and the variants that have it; or why it is not drawn."""

    names: tuple[str, ...]
    graph: DrawnGraph | None = None
    refusal: AotcError | None = None


@record
class Contents:
    """An artifact as a page shows it."""

    report: InspectReport
    manifest: Manifest
    manifest_json: Annotated[bytes, "aotc.json as it stands"]
    evidence: Evidence | None
    drawn: tuple[DrawnVariant, ...]


def read_contents(artifact: Path, *, traffic: Path | None = None) -> Contents:
    """Read an artifact, a folder or a packed file, and the graphs of its variants.

    A graph that cannot be read is a refusal AOTC-I056 among the rest.  Raises AOTC-I057 if there is
    a model instead, and what `aotc.inspect` does.
    """
    if stated_id(artifact) is None and artifact.is_file() and not is_packed(artifact):
        raise AotcError(
            "AOTC-I057", "a page needs an artifact, but this is a model", where=str(artifact)
        )
    return reread(artifact, lambda: _read(artifact, traffic))


def _read(artifact: Path, traffic: Path | None) -> Contents:
    report = inspect(artifact, traffic=traffic)
    assert report.artifact is not None
    with open_container(artifact) as container:
        text = container.read(MANIFEST, MAX_JSON_BYTES)
        if hashlib.sha256(text).hexdigest() != report.artifact.artifact_id:
            raise AotcError("AOTC-G006", "the artifact changed while it was read", where=MANIFEST)
        manifest = decode(Manifest, strict_json(text), allow_unknown=True)
        evidence = _evidence(container, report.artifact.artifact_id)
        models = [_model(container, variant.model) for variant in manifest.variants]
    return Contents(
        report=report,
        manifest=manifest,
        manifest_json=text,
        evidence=evidence,
        drawn=_drawn(manifest, models),
    )


def _model(container: Container, path: str) -> bytes | AotcError:
    try:
        return container.read(f"payload/{path}", MAX_MODEL_BYTES)
    except AotcError as error:
        return AotcError("AOTC-I056", "the model cannot be read", where=path, found=error.line())


def _drawn(manifest: Manifest, models: list[bytes | AotcError]) -> tuple[DrawnVariant, ...]:
    """Each graph once: variants for other CPUs often have equal ones."""
    names: dict[tuple[bytes, tuple[tuple[str, str], ...]] | int, list[str]] = {}
    requests: list[GraphRequest] = []
    refusals: dict[int, AotcError] = {}
    keys: list[tuple[bytes, tuple[tuple[str, str], ...]] | int] = []
    total = 0
    for index, (variant, model) in enumerate(zip(manifest.variants, models, strict=True)):
        placed = {node.name: node.provider for node in variant.placement.nodes}
        key: tuple[bytes, tuple[tuple[str, str], ...]] | int = index
        if isinstance(model, AotcError):
            refusals[index] = model
        else:
            key = (hashlib.sha256(model).digest(), tuple(sorted(placed.items())))
        if key in names:
            names[key].append(variant.name)
            continue
        names[key] = [variant.name]
        keys.append(key)
        total += len(placed)
        if index not in refusals and total > MAX_NODES and len(keys) > 1:
            refusals[index] = AotcError(
                "AOTC-I056",
                "the page already has as many nodes as it can show",
                where=variant.name,
                expected=f"at most {MAX_NODES} nodes of all graphs",
                found=f"{total}",
            )
            names[index] = names.pop(key)
            keys[-1] = index
        elif index not in refusals:
            assert isinstance(model, bytes)
            domain = variant.domain or manifest.domain
            requests.append(
                GraphRequest(
                    model=model,
                    optimal=domain.complete({n: d.opt for n, d in domain.dims.items()}),
                    largest=domain.complete({n: d.max for n, d in domain.dims.items()}),
                    providers=placed,
                )
            )
    graphs = iter(read_graphs(requests) if requests else ())
    found = []
    for key in keys:
        graph = refusals[key] if isinstance(key, int) else next(graphs)
        own = tuple(names[key])
        if isinstance(graph, AotcError):
            found.append(DrawnVariant(names=own, refusal=graph))
        elif len(graph.nodes) > MAX_NODES:
            error = AotcError(
                "AOTC-I056", "the graph is too large", found=f"{len(graph.nodes)} nodes"
            )
            found.append(DrawnVariant(names=own, refusal=error))
        else:
            found.append(DrawnVariant(names=own, graph=graph))
    return tuple(found)


def _evidence(container: Container, artifact_id: str) -> Evidence | None:
    """The evidence about this manifest, if it can be read; `inspect` told why if it cannot."""
    kind = KINDS["evidence"].predicate_type
    for path in container.listing(ATTESTATIONS).files:
        if not path.endswith(BUNDLE_SUFFIX):
            continue
        try:
            said = statements.read_unverified(container.read(path, dsse.MAX_BUNDLE_BYTES))
            if said.predicate_type == kind and artifact_id in said.subjects.values():
                return decode(Evidence, said.predicate, allow_unknown=True)
        except (AotcError, ParseError):
            continue
    return None


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes of dims in one line; `fixed` where no dim is free."""
    return ", ".join(f"{name} {size}" for name, size in sizes.items()) or "fixed"


# Measured times of nodes, from what `aotc bench --nodes --json` printed.


_SCHEMA = "aotc.bench/"


def read_node_times(path: Path, artifact_id: str) -> dict[str, dict[str, float]]:
    """Seconds in one run, by variant and node name.

    Raises AOTC-I001 if the file cannot be read, and I058 if it has no times of nodes, or is about
    another artifact than the one with `artifact_id`.
    """
    try:
        content = read_at_most(path, MAX_JSON_BYTES)
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
