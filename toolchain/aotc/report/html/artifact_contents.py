"""What a page is made of, read from an artifact and from measured times; nothing is verified."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

from aotc.base.errors import AotcError, install_extra
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import read_at_most
from aotc.base.records import record
from aotc.report.html.graph_data import DrawnGraph, GraphRequest, read_graphs
from aotc.spec.bench_reports import BenchReport
from aotc.spec.codec import ParseError, decode
from aotc.spec.evidence import Evidence
from aotc.spec.json import MAX_JSON_BYTES, strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.reports import ArtifactSummary, InspectReport
from aotc.spec.variant import Variant
from aotc.spec.versions import stated_id
from aotc.tools.diff.opened_artifact import MAX_MODEL_BYTES
from aotc.tools.inspect import inspect_artifact, read_artifact
from aotc.trust.archive import is_packed
from aotc.trust.container import Container, reread
from aotc.trust.opening import open_container

# Larger graphs are not drawn: nobody reads them, and a page would take minutes.
MAX_NODES: Final = 5000
_DRAWING: Final = ("fast_sugiyama", "onnx", "numpy")


@record
class DrawnVariant:
    """A graph, and the variants that have it; or why it is not drawn."""

    names: tuple[str, ...]
    found: DrawnGraph | AotcError

    @property
    def graph(self) -> DrawnGraph | None:
        """None where it is not drawn."""
        return self.found if isinstance(self.found, DrawnGraph) else None

    @property
    def why_not(self) -> str:
        """Why it is not drawn; empty if it is."""
        if isinstance(self.found, DrawnGraph):
            return ""
        return f"Not drawn: {self.found.line()}" + (self.found.fix and f". {self.found.fix}")


@record
class Contents:
    """An artifact as a page shows it."""

    report: InspectReport
    manifest: Manifest
    manifest_json: Annotated[bytes, "aotc.json as it stands"]
    evidence: Evidence | None
    drawn: tuple[DrawnVariant, ...]

    @property
    def summary(self) -> ArtifactSummary:
        """The part of the report that only artifacts have."""
        assert self.report.artifact is not None
        return self.report.artifact


def read_contents(artifact: Path, *, traffic: Path | None = None) -> Contents:
    """Read an artifact, a folder or a packed file, and the graphs of its variants.

    A graph that cannot be read is a refusal AOTC-I056 among the rest; without a package that draws,
    all graphs are an AOTC-I019.  Raises AOTC-I057 if there is a model instead, and what
    `aotc.inspect` does.
    """
    if stated_id(artifact) is None and artifact.is_file() and not is_packed(artifact):
        raise AotcError(
            "AOTC-I057", "a page needs an artifact, but this is a model", where=str(artifact)
        )
    return reread(
        artifact, lambda: _read(artifact, traffic), holds=lambda found: not found.report.problems
    )


def _read(artifact: Path, traffic: Path | None) -> Contents:
    with open_container(artifact) as container:
        opened = read_artifact(artifact, container)
        manifest = opened.manifest
        return Contents(
            report=inspect_artifact(opened, traffic),
            manifest=manifest,
            manifest_json=opened.manifest_json,
            evidence=opened.evidence,
            drawn=_drawn(manifest, [_model(container, each.model) for each in manifest.variants]),
        )


def _model(container: Container, path: str) -> bytes | AotcError:
    try:
        return container.read(f"payload/{path}", MAX_MODEL_BYTES)
    except AotcError as error:
        return AotcError("AOTC-I056", "the model cannot be read", where=path, found=error.line())


def _drawn(manifest: Manifest, models: list[bytes | AotcError]) -> tuple[DrawnVariant, ...]:
    """Each graph once: variants for other CPUs often have equal ones."""
    if (missing := _missing_package()) is not None:
        return (DrawnVariant(names=tuple(v.name for v in manifest.variants), found=missing),)
    groups: dict[object, tuple[Variant, bytes | AotcError, list[str]]] = {}
    for variant, model in zip(manifest.variants, models, strict=True):
        placed = sorted((node.name, node.provider) for node in variant.placement.nodes)
        key: object = variant.name
        if isinstance(model, bytes):
            key = (hashlib.sha256(model).digest(), *placed)
        groups.setdefault(key, (variant, model, []))[2].append(variant.name)
    requests: dict[object, GraphRequest] = {}
    found: dict[object, DrawnGraph | AotcError] = {}
    total = 0
    for key, (variant, model, _) in groups.items():
        nodes = variant.placement.nodes
        total += len(nodes)
        if isinstance(model, AotcError):
            found[key] = model
        elif len(nodes) < total > MAX_NODES:
            found[key] = AotcError(
                "AOTC-I056",
                "the page already has as many nodes as it can show",
                where=variant.name,
                expected=f"at most {MAX_NODES} nodes of all graphs",
                found=f"{total}",
            )
        else:
            domain = variant.domain or manifest.domain
            requests[key] = GraphRequest(
                model=model,
                optimal=domain.complete({n: d.opt for n, d in domain.dims.items()}),
                largest=domain.complete({n: d.max for n, d in domain.dims.items()}),
                providers={node.name: node.provider for node in nodes},
            )
    graphs = read_graphs(list(requests.values())) if requests else []
    for key, graph in zip(requests, graphs, strict=True):
        if isinstance(graph, DrawnGraph) and len(graph.nodes) > MAX_NODES:
            size = f"{len(graph.nodes)} nodes"
            found[key] = AotcError("AOTC-I056", "the graph is too large", found=size)
        else:
            found[key] = graph
    drawn = ((tuple(own), found[key]) for key, (_, _, own) in groups.items())
    return tuple(DrawnVariant(names=own, found=each) for own, each in drawn)


def _missing_package() -> AotcError | None:
    """Why nothing can be drawn on this host: all else of a page needs the base install alone."""
    for name in _DRAWING:
        with suppress(ImportError):
            if find_spec(name) is not None:
                continue
        what = f"graphs, and the memory over them, need the package {name}"
        return AotcError("AOTC-I019", what, fix=install_extra("report"))
    return None


# Measured times of nodes, from what `aotc bench --nodes --json` printed.


def read_node_times(path: Path, artifact_id: str) -> dict[str, dict[str, float]]:
    """Seconds in one run, by variant and node name.

    Raises AOTC-I001 if the file cannot be read, and I058 if it has no times of nodes, or is about
    another artifact than the one with `artifact_id`.
    """
    try:
        content = read_at_most(path, MAX_JSON_BYTES)
        report = decode(BenchReport, strict_json(content), allow_unknown=True)
    except OSError as error:
        raise cannot_read(error, "cannot read the times of nodes", str(path)) from None
    except ParseError as error:
        raise _refusal(path, "is not of 'aotc bench'", str(error.problems[0])) from None
    if report.load.artifact_id != artifact_id:
        raise _refusal(path, "is about another artifact", report.load.artifact_id)
    if report.nodes is None:
        raise _refusal(path, "has no times of nodes")
    found: dict[str, float] = {}
    for node in report.nodes.nodes:
        found[node.name] = found.get(node.name, 0.0) + max(node.seconds, 0.0)
    return {report.nodes.variant: found}


def _refusal(path: Path, what: str, found: str = "") -> AotcError:
    return AotcError("AOTC-I058", f"the document {what}", where=str(path), found=found)
