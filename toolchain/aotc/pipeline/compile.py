"""Compile a variant's parts; nodes that fail move to the next provider, and are divided again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Final

import onnx

from aotc.base.errors import AotcError
from aotc.base.records import record, values_of
from aotc.graph.partition.assignment import Assignment, Part, sizes_at
from aotc.graph.partition.extraction import Extractor, boundary_values
from aotc.graph.view import GraphView, op_of
from aotc.pipeline.options import BuildOptions, requested_backend
from aotc.pipeline.partition import divide
from aotc.pipeline.reuse import cached_or_compiled, part_key
from aotc.pipeline.types import ClaimedModel, Division
from aotc.providers.base import Backend, CompileRequest, Payload, names_in_message
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Finding
from aotc.spec.target import Target
from aotc.spec.variant import RefusedNode

_FAILURES: Final = frozenset({"AOTC-P005", "AOTC-I013", "AOTC-I014", "AOTC-I015"})
# In these rounds single nodes move to the next provider; after them, complete partitions.
_MAX_ROUNDS: Final = 6


@record
class CompiledModel:
    """A division whose parts are all compiled, if their provider compiles.

    `model` is the divided graph; `names` are those of all parts, in order; `payloads` and the
    `folders` of their files are by index of part.
    """

    claimed: ClaimedModel
    division: Division
    model: onnx.ModelProto
    names: tuple[str, ...]
    payloads: Mapping[int, Payload]
    folders: Mapping[int, Path]
    findings: tuple[Finding, ...]


def compile_parts(
    claimed: ClaimedModel,
    division: Division,
    backends: Mapping[str, Backend],
    options: BuildOptions,
) -> CompiledModel:
    """Compile the parts of `division`, and divide again without what fails, until all succeed.

    `backends` are by ORT name.  Raises AOTC-P001 if no provider runs a node, P005 if the last
    provider that claims a node fails to compile it, and P010.
    """
    graph = division.graph
    model = onnx.load(claimed.graph, load_external_data=False)
    compiler = _PartCompiler(claimed, model, graph, backends, options)
    blame = CompileFailures(graph, claimed.plan.name, division.refusals)
    # This ends: every failed round moves nodes, or stops sharing weights for one more provider.
    for attempt in count():
        failed = compiler.compile(division.assignment, attempt)
        mixed = compiler.unshare_mixed(division.assignment)
        if not failed and not mixed:
            break
        for part, failure in failed:
            blame.refuse_nodes(part, failure, attempt)
        division = divide(claimed, graph, blame.refused, blame.refusals, options)
    parts = division.assignment.parts
    results = {
        index: found for index, part in enumerate(parts) if (found := compiler.result_of(part))
    }
    return CompiledModel(
        claimed=claimed,
        division=division,
        model=model,
        names=tuple(f"{backends[part.provider].name}{i}" for i, part in enumerate(parts)),
        payloads={index: payload for index, (payload, _) in results.items()},
        folders={index: folder for index, (_, folder) in results.items()},
        findings=(*blame.findings, *_subgraph_findings(claimed, division, backends)),
    )


class _PartCompiler:
    """Compiles the parts of a claimed graph, each in a new process and only once."""

    def __init__(
        self,
        claimed: ClaimedModel,
        model: onnx.ModelProto,
        graph: GraphView,
        backends: Mapping[str, Backend],
        options: BuildOptions,
    ) -> None:
        """`graph` is that of `model`, the graph of `claimed`, which must not change meanwhile."""
        self._claimed = claimed
        self._graph = graph
        self._backends = backends
        self._options = options
        self._extractor = Extractor(model, graph)
        smallest = claimed.optimized.specialized.sizes.corner("min")
        self._minimum_shapes: Mapping[str, tuple[int, ...]] = sizes_at(model, smallest).shapes
        # Payloads with the folders of their files, by provider and nodes.
        self._done: dict[tuple[str, tuple[int, ...]], tuple[Payload, Path]] = {}
        # Providers that compile all constants into their parts.
        self._unshared: set[str] = set()

    def result_of(self, part: Part) -> tuple[Payload, Path] | None:
        """The compiled payload of `part`, and the folder of its files."""
        return self._done.get((part.provider, part.nodes))

    def compile(self, assignment: Assignment, attempt: int) -> list[tuple[Part, AotcError]]:
        """Compile all parts that are not compiled yet; the failed ones with their errors.

        `attempt` counts from 0.
        """
        begun = {
            part: self._submit(part, attempt)
            for part in assignment.parts
            if self._backends[part.provider].compiles and not self.result_of(part)
        }
        for name in dict.fromkeys(part.provider for part in begun):
            number = sum(part.provider == name for part in begun)
            with_backend = f"with {self._backends[name].name}, {self._claimed.plan.name}"
            self._options.announce(f"compile {number} partitions {with_backend}")
        failed: list[tuple[Part, AotcError]] = []
        for number, (part, (job, folder)) in enumerate(begun.items()):
            self._options.clock.reporter.count(number, len(begun), "partitions")
            try:
                self._done[part.provider, part.nodes] = _payload_of(job.result()), folder
            except AotcError as error:
                if error.code not in _FAILURES:
                    raise
                self._options.announce(error.line())
                failed.append((part, error))
        return failed

    def unshare_mixed(self, assignment: Assignment) -> bool:
        """Discard parts that one session cannot read together; whether there were any.

        Options by which some parts read the shared weights would apply to parts that must not read
        them.  All parts of such a provider are therefore compiled again with all their constants.
        """
        found: dict[str, list[Payload]] = {}
        for part in assignment.parts:
            if result := self.result_of(part):
                found.setdefault(part.provider, []).append(result[0])
        mixed = {
            name
            for name, payloads in found.items()
            if any(payload.options for payload in payloads)
            and any(not payload.options and not payload.mixes_with_shared for payload in payloads)
        } - self._unshared
        self._done = {key: result for key, result in self._done.items() if key[0] not in mixed}
        self._unshared |= mixed
        return bool(mixed)

    def _submit(self, part: Part, attempt: int) -> tuple[Future[Json], Path]:
        """Start to compile `part`, with its files in the folder that comes second.

        The result raises AOTC-P005, P010 and I013 to I015.
        """
        plan, options = self._claimed.plan, self._options
        backend = self._backends[part.provider]
        # The name depends on the part alone, not on the rest: equal parts have equal bytes.
        names = "\n".join(self._graph.nodes[index].name for index in part.nodes)
        stem = f"{backend.name}-{hashlib.sha256(names.encode()).hexdigest()[:12]}"
        folder = options.work / f"compile-{plan.name}-{stem}-{attempt}"
        folder.mkdir()
        try:
            extracted = self._extractor.extract(part.nodes, stem)
        except ValueError as error:
            failed: Future[Json] = Future()
            failed.set_exception(AotcError("AOTC-P005", str(error), where=stem))
            return failed, folder
        text = extracted.SerializeToString(deterministic=True)
        (folder / f"{stem}.onnx").write_bytes(text)
        request: dict[str, Json] = {
            "backend": backend.name,
            "plugins": options.plugins(),
            "stem": stem,
            "target": encode(options.target, full=True),
            "precision": backend.computes_in(plan.precision),
            "shapes": self._shapes(part),
            # Whether constants are read from the shared weights.
            "share": part.provider not in self._unshared,
        }
        key = part_key(request, extracted, text, self._claimed.weights, backend, options)
        job = options.workers.submit(
            cached_or_compiled,
            request,
            key,
            self._claimed.weights,
            folder,
            f"variant {plan.name}, provider {backend.name}",
            options,
        )
        return job, folder

    def _shapes(self, part: Part) -> dict[str, list[list[int]]]:
        """(Minimum, optimum, maximum) shapes of each boundary input, if all are known."""
        if self._claimed.sizes is None:
            return {}
        opt, largest = self._claimed.sizes
        found = {}
        for value in boundary_values(self._graph, part.nodes)[0]:
            shapes = [
                known.get(value) for known in (self._minimum_shapes, opt.shapes, largest.shapes)
            ]
            if all(shape is not None for shape in shapes):
                found[value] = [list(shape or ()) for shape in shapes]
        return found


def _subgraph_findings(
    claimed: ClaimedModel, division: Division, backends: Mapping[str, Backend]
) -> list[Finding]:
    """AOTC-P011 for subgraph nodes that a compiling provider claims but cannot get there."""
    claims = dict(claimed.claims)
    findings = []
    for name, backend in backends.items():
        stays = [
            node.name
            for body in division.graph.bodies
            for node in body.nodes
            if node.name in claims[name] and division.assignment.providers[node.name] != name
        ]
        if backend.compiles and stays:
            findings.append(
                Finding(
                    code="AOTC-P011",
                    what=f"{len(stays)} nodes in subgraphs of control flow go to the next "
                    f"provider, as {backend.name} did not claim the control flow itself",
                    where=f"variant {claimed.plan.name}",
                )
            )
    return findings


class CompileFailures:
    """The nodes that move to the next provider because a part with them could not be compiled."""

    def __init__(
        self, graph: GraphView, variant: str, refusals: Sequence[RefusedNode] = ()
    ) -> None:
        """`refusals` are those of nodes that were not claimed."""
        self._graph = graph
        self._variant = variant
        self.refused: dict[str, set[str]] = {}
        self.refusals = list(refusals)
        self.findings: list[Finding] = []

    def refuse_nodes(self, part: Part, error: AotcError, attempt: int) -> None:
        """Refuse those nodes of a part that its failure names; all of them if it names none."""
        nodes = {self._graph.nodes[index].name: self._graph.nodes[index] for index in part.nodes}
        text = f"{error.what}: {error.found}"
        left = _nodes_named_in(text, nodes) if attempt < _MAX_ROUNDS else frozenset()
        left = left or _ort_operators(nodes) or frozenset(nodes)
        refused = self.refused.setdefault(part.provider, set())
        refused.update(left)
        # The details of a crash or a hang would differ the next time.
        reason = error.found if error.code == "AOTC-P005" and error.found else error.what
        for name in [candidate for candidate in nodes if candidate in left]:
            refused.update(self._graph.inside.get(name, ()))
            self.refusals.append(
                RefusedNode(
                    node=name,
                    op=op_of(nodes[name]),
                    provider=part.provider,
                    reason=f"could not be compiled: {reason}"[:300],
                )
            )
        self.findings.append(
            Finding(
                code="AOTC-P006",
                what=f"{part.provider} could not compile {len(nodes)} nodes ({error.code}: "
                f"{reason[:600]}); {len(left)} are left to the next provider",
                where=f"variant {self._variant}",
            )
        )


def _nodes_named_in(text: str, nodes: Mapping[str, onnx.NodeProto]) -> frozenset[str]:
    """Nodes that a message names, by their names or by their outputs."""
    made = {value: name for name, node in nodes.items() for value in node.output if value}
    words = names_in_message(text, {**nodes, **made})
    return frozenset(made.get(word, word) for word in words)


def _ort_operators(nodes: Mapping[str, onnx.NodeProto]) -> frozenset[str]:
    """Nodes of ONNX Runtime's own operators, which other providers misread most often."""
    found = frozenset(
        name for name, node in nodes.items() if node.domain.startswith("com.microsoft")
    )
    return found if len(found) < len(nodes) else frozenset()


def _payload_of(value: Json) -> Payload:
    """The payload from the result of `compile_job`."""
    return Payload(
        attributes=value["attributes"],
        files=tuple(value["files"]),
        compatibility=value["compatibility"],
        options=value["options"],
        mixes_with_shared=value["mixes_with_shared"],
    )


def compile_job(request: Json) -> Json:
    """In the worker: compile one partition."""
    backend = requested_backend(request)
    payload = backend.compile(
        CompileRequest(
            # Relative, so that no path of this machine is written.
            model=Path(f"{request['stem']}.onnx"),
            weights=Path(request["weights"]),
            stem=request["stem"],
            target=decode(Target, request["target"]),
            precision=request["precision"],
            shapes={
                name: (tuple(shapes[0]), tuple(shapes[1]), tuple(shapes[2]))
                for name, shapes in request["shapes"].items()
            },
            share=request["share"],
        )
    )
    return {
        **values_of(payload),
        "files": list(payload.files),
        "attributes": dict(payload.attributes),
        "options": dict(payload.options),
    }
