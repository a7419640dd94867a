"""Compile a variant's partitions, each in a fresh process; what fails is divided anew."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

import onnx

from aotc.backends.base import Backend, Payload, mentioned
from aotc.caching.cache import PARTITION
from aotc.contract.codec.parsing import Json, encode
from aotc.contract.finding import Finding
from aotc.contract.manifest.partitions import RefusedNode
from aotc.contract.shapes.domain import Domain
from aotc.errors import AotcError
from aotc.partitioning.assignment import Assignment, Part, Rules, assign
from aotc.partitioning.compute import sizes_at
from aotc.partitioning.extraction import Extractor, borders
from aotc.partitioning.graph import GraphNode, PartitionGraph, read_graph
from aotc.partitioning.policy import refusal_rows
from aotc.stages.build_options import BuildOptions
from aotc.stages.lowering.compile_job import payload_of
from aotc.stages.reuse.build_key import constants_digest, source_digest
from aotc.stages.types import PartitionedModel

# Each round leaves fewer nodes to the provider that failed; then whole partitions are left.
_ROUNDS: Final = 6
_FAILURES: Final = frozenset({"AOTC-P005", "AOTC-I013", "AOTC-I014", "AOTC-I015"})


@dataclass(slots=True)
class Compiled:
    """A division of which every part that has to be is compiled: payloads by index of part."""

    model: onnx.ModelProto
    graph: PartitionGraph
    assignment: Assignment
    names: tuple[str, ...]
    payloads: dict[int, Payload] = field(default_factory=dict)
    folders: dict[int, Path] = field(default_factory=dict)
    refusals: list[RefusedNode] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def compile_all(
    partitioned: PartitionedModel, backends: Mapping[str, Backend], options: BuildOptions
) -> Compiled:
    """Divide, compile, and divide again without what could not be compiled, until all is.

    `backends` by ORT's name.  Raises AOTC-P001 where a node runs nowhere, P005 where the last
    provider that takes a node fails on it, and P010.
    """
    model = onnx.load(partitioned.graph, load_external_data=False)
    graph = read_graph(model)
    extractor = Extractor(model, graph)
    least = _least(partitioned, model)
    refused: dict[str, set[str]] = {name: set() for name in backends}
    refusals = list(partitioned.refusals)
    findings: list[Finding] = []
    done: dict[tuple[str, tuple[int, ...]], tuple[Payload, Path]] = {}
    # Providers that compile all constants in.
    whole: set[str] = set()
    # It ends: every round that fails leaves nodes, or shares no weights where the last one did.
    for round_number in count():
        assignment = _divide(partitioned, graph, backends, refused, refusals, options)
        jobs = {
            part: _submit(
                partitioned,
                extractor,
                least,
                part,
                backends,
                options,
                round_number,
                share=part.provider not in whole,
            )
            for part in assignment.parts
            if backends[part.provider].compiles and (part.provider, part.nodes) not in done
        }
        for name in dict.fromkeys(part.provider for part in jobs):
            number = sum(part.provider == name for part in jobs)
            plan = partitioned.optimized.specialized.plan
            options.tell(f"compile {number} partitions with {backends[name].name}, {plan.name}")
        failed: list[tuple[Part, AotcError]] = []
        for part, (job, folder) in jobs.items():
            try:
                done[part.provider, part.nodes] = payload_of(job.result()), folder
            except AotcError as error:
                if error.code not in _FAILURES:
                    raise
                options.tell(error.line())
                failed.append((part, error))
        alone = _apart(assignment, done) - whole
        if not failed and not alone:
            break
        for key in [key for key in done if key[0] in alone]:
            del done[key]
        whole |= alone
        for part, failure in failed:
            _leave(part, failure, graph, refused, refusals, findings, partitioned, round_number)
    findings += _outside(partitioned, graph, assignment, backends)
    names = _names(assignment, backends)
    result = Compiled(model, graph, assignment, names, refusals=refusals, findings=findings)
    for index, part in enumerate(assignment.parts):
        if (part.provider, part.nodes) in done:
            result.payloads[index], result.folders[index] = done[part.provider, part.nodes]
    return result


def _apart(
    assignment: Assignment, done: Mapping[tuple[str, tuple[int, ...]], tuple[Payload, Path]]
) -> set[str]:
    """Providers with parts that one session cannot read together.

    Options by which some parts read the shared weights hold for those, too, that must not.
    """
    found: dict[str, list[Payload]] = {}
    for part in assignment.parts:
        if (part.provider, part.nodes) in done:
            found.setdefault(part.provider, []).append(done[part.provider, part.nodes][0])
    return {
        name
        for name, payloads in found.items()
        if any(each.options for each in payloads)
        and any(not each.options and not each.beside for each in payloads)
    }


def _outside(
    partitioned: PartitionedModel,
    graph: PartitionGraph,
    assignment: Assignment,
    backends: Mapping[str, Backend],
) -> list[Finding]:
    """AOTC-P011 for nodes of bodies that a compiling provider claims, and cannot have there."""
    claims = dict(partitioned.claims)
    findings = []
    for name, backend in backends.items():
        stays = [
            each.name
            for each in graph.body_nodes
            if each.name in claims[name] and assignment.providers[each.name] != name
        ]
        if backend.compiles and stays:
            plan = partitioned.optimized.specialized.plan
            findings.append(
                Finding(
                    code="AOTC-P011",
                    what=f"{len(stays)} nodes of bodies of control flow go to the next provider, "
                    f"as {backend.name} did not take the control flow itself",
                    where=f"variant {plan.name}",
                )
            )
    return findings


def _names(assignment: Assignment, backends: Mapping[str, Backend]) -> tuple[str, ...]:
    return tuple(
        f"{backends[part.provider].name}{index}" for index, part in enumerate(assignment.parts)
    )


def _divide(
    partitioned: PartitionedModel,
    graph: PartitionGraph,
    backends: Mapping[str, Backend],
    refused: Mapping[str, set[str]],
    refusals: Sequence[RefusedNode],
    options: BuildOptions,
) -> Assignment:
    spec = options.profile.partitioning
    rules = Rules(
        min_nodes=spec.min_nodes,
        outside=frozenset(name for name, each in backends.items() if each.compiles),
        rates={name: each.rates for name, each in backends.items()} if spec.weigh_borders else None,
        sizes=partitioned.sizes[0] if partitioned.sizes else None,
    )
    claims = [(name, nodes - refused[name]) for name, nodes in partitioned.claims]
    assignment, missing = assign(graph, claims, rules)
    if missing:
        raise _nowhere(partitioned, missing, refusals)
    return assignment


def _nowhere(
    partitioned: PartitionedModel, missing: Sequence[str], refusals: Sequence[RefusedNode]
) -> AotcError:
    plan = partitioned.optimized.specialized.plan
    ops = dict(partitioned.optimized.nodes)
    told = [each for each in refusals if each.node in set(missing)]
    first = missing[0]
    why = [f"{each.provider}: {each.reason}" for each in told if each.node == first]
    more = f", and {len(missing) - 1} nodes more" if len(missing) > 1 else ""
    return AotcError(
        "AOTC-P001",
        f"node {first} ({ops.get(first, '')}){more} runs on none of the variant's providers",
        where=f"variant {plan.name}",
        expected=", ".join(plan.providers),
        found="; ".join(why),
        mend="Add cpu to the profile's providers, or change the model.",
        rows=refusal_rows(told),
    )


def _leave(
    part: Part,
    error: AotcError,
    graph: PartitionGraph,
    refused: Mapping[str, set[str]],
    refusals: list[RefusedNode],
    findings: list[Finding],
    partitioned: PartitionedModel,
    round_number: int,
) -> None:
    """Refuse those nodes of a part that its failure names; all of them where it names none."""
    nodes = {graph.nodes[index].name: graph.nodes[index] for index in part.nodes}
    text = f"{error.what}: {error.found}"
    left = _named(text, nodes) if round_number < _ROUNDS else frozenset()
    left = left or _own(nodes) or frozenset(nodes)
    refused[part.provider].update(left)
    # What crashed or hung says nothing that would be the same the next time.
    reason = error.found if error.code == "AOTC-P005" and error.found else error.what
    for name in [each for each in nodes if each in left]:
        refused[part.provider].update(nodes[name].bodies)
        refusals.append(
            RefusedNode(
                node=name,
                op=nodes[name].op,
                provider=part.provider,
                reason=f"could not be compiled: {reason}"[:300],
            )
        )
    plan = partitioned.optimized.specialized.plan
    findings.append(
        Finding(
            code="AOTC-P006",
            what=f"{part.provider} could not compile {len(nodes)} nodes ({error.code}: "
            f"{reason[:600]}); {len(left)} are left to the next provider",
            where=f"variant {plan.name}",
        )
    )


def _named(text: str, nodes: Mapping[str, GraphNode]) -> frozenset[str]:
    """Nodes that a message names, by their names or by what they make."""
    made = {value: name for name, node in nodes.items() for value in node.outputs}
    words = mentioned(text, {**nodes, **made})
    return frozenset(made.get(word, word) for word in words)


def _own(nodes: Mapping[str, GraphNode]) -> frozenset[str]:
    """Nodes of ONNX Runtime's own operators, which other providers misread most often."""
    found = frozenset(name for name, node in nodes.items() if node.op.startswith("com.microsoft"))
    return found if len(found) < len(nodes) else frozenset()


def _submit(
    partitioned: PartitionedModel,
    extractor: Extractor,
    least: Mapping[str, tuple[int, ...]],
    part: Part,
    backends: Mapping[str, Backend],
    options: BuildOptions,
    round_number: int,
    *,
    share: bool,
) -> tuple[Future[Json], Path]:
    graph = extractor.graph
    plan = partitioned.optimized.specialized.plan
    backend = backends[part.provider]
    # Of the part alone, and not of what else was divided how: equal parts give equal bytes.
    names = "\n".join(graph.nodes[index].name for index in part.nodes)
    stem = f"{backend.name}-{hashlib.sha256(names.encode()).hexdigest()[:12]}"
    folder = options.work / f"compile-{plan.name}-{stem}-{round_number}"
    folder.mkdir()
    try:
        extracted = extractor.extract(part.nodes, stem)
    except ValueError as error:
        failed: Future[Json] = Future()
        failed.set_exception(AotcError("AOTC-P005", str(error), where=stem))
        return failed, folder
    text = extracted.SerializeToString(deterministic=True)
    (folder / f"{stem}.onnx").write_bytes(text)
    request = {
        "backend": backend.name,
        "plugins": encode(dict(options.profile.plugins)),
        "stem": stem,
        "target": encode(options.target, full=True),
        "precision": plan.precision if plan.precision in backend.precisions else "keep",
        "shapes": _shapes(partitioned, graph, part, least),
        "share": share,
    }
    key = ""
    if options.cache is not None:
        parts = {
            **request,
            "graph": hashlib.sha256(text).hexdigest(),
            "constants": constants_digest(extracted, partitioned.weights),
            "fingerprint": backend.fingerprint(),
            "aotc": source_digest(),
            "host": sorted(options.host.isa or ()),
        }
        key = options.cache.key(PARTITION, parts)
    job = options.workers.submit(
        _compile,
        request,
        key,
        partitioned.weights,
        folder,
        f"variant {plan.name}, provider {backend.name}",
        options,
    )
    return job, folder


def _compile(
    request: Json, key: str, weights: Path, folder: Path, where: str, options: BuildOptions
) -> Json:
    """Take a compiled partition from the cache into `folder`, or compile it and keep it there.

    What is kept survives a failure of another partition or variant.
    """
    cache = options.cache
    if cache is not None and (found := cache.get(key, folder)) is not None:
        return found
    value = options.workers.run(
        "aotc.stages.lowering.compile_job:compile_job",
        {**request, "weights": str(weights)},
        folder=folder,
        where=where,
    ).value
    if cache is not None:
        cache.put(key, folder, value["files"], {**value, "title": request["stem"]})
    return value


def _shapes(
    partitioned: PartitionedModel,
    graph: PartitionGraph,
    part: Part,
    least: Mapping[str, tuple[int, ...]],
) -> dict[str, list[list[int]]]:
    """(Minimum, optimum, maximum) of each border input of which all are known."""
    if partitioned.sizes is None:
        return {}
    opt, largest = partitioned.sizes
    found = {}
    for value in borders(graph, part.nodes)[0]:
        shapes = [one.get(value) for one in (least, opt.shapes, largest.shapes)]
        if all(shape is not None for shape in shapes):
            found[value] = [list(shape or ()) for shape in shapes]
    return found


def _least(partitioned: PartitionedModel, model: onnx.ModelProto) -> Mapping[str, tuple[int, ...]]:
    """Shapes of values at the smallest sizes."""
    specialized = partitioned.optimized.specialized
    domain: Domain = specialized.domain or specialized.analyzed.domain
    return sizes_at(model, domain.corner("min")).shapes
