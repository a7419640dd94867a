"""Compile a variant's parts; nodes that fail move to the next provider, and are divided again."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final

import onnx

from aotc.backends.base import Backend, Payload
from aotc.contract.finding import Finding
from aotc.errors import AotcError
from aotc.partitioning.assignment import Assignment, Part
from aotc.records import record
from aotc.stages.build_options import BuildOptions
from aotc.stages.lowering.compile_failures import CompileFailures
from aotc.stages.lowering.compile_job import payload_of
from aotc.stages.lowering.part_jobs import PartJobs
from aotc.stages.partition import divide
from aotc.stages.types import (
    ClaimedModel,
    Division,
)
from aotc.stages.variant_plan import VariantPlan

_FAILURES: Final = frozenset({"AOTC-P005", "AOTC-I013", "AOTC-I014", "AOTC-I015"})


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
    compiler = _PartCompiler(PartJobs(claimed, model, graph, options), backends, options)
    blame = CompileFailures(graph, claimed.plan.name, division.refusals)
    # This ends: every failed round moves nodes, or stops sharing weights for one more provider.
    for attempt in count():
        failed = compiler.compile(division.assignment, claimed.plan, attempt)
        mixed = compiler.unshare_mixed(division.assignment)
        if not failed and not mixed:
            break
        for part, failure in failed:
            blame.refuse_nodes(part, failure, attempt)
        division = divide(claimed, graph, blame.refused, blame.refusals, options)
    parts = division.assignment.parts
    result_of = {
        index: found for index, part in enumerate(parts) if (found := compiler.result_of(part))
    }
    return CompiledModel(
        claimed=claimed,
        division=division,
        model=model,
        names=tuple(f"{backends[part.provider].name}{i}" for i, part in enumerate(parts)),
        payloads={index: payload for index, (payload, _) in result_of.items()},
        folders={index: folder for index, (_, folder) in result_of.items()},
        findings=(*blame.findings, *_subgraph_findings(claimed, division, backends)),
    )


class _PartCompiler:
    """Compiles the parts of a division, each part only once."""

    def __init__(
        self, jobs: PartJobs, backends: Mapping[str, Backend], options: BuildOptions
    ) -> None:
        self._jobs = jobs
        self._backends = backends
        self._options = options
        # Payloads with the folders of their files, by provider and nodes.
        self._done: dict[tuple[str, tuple[int, ...]], tuple[Payload, Path]] = {}
        # Providers that compile all constants into their parts.
        self._unshared: set[str] = set()

    def result_of(self, part: Part) -> tuple[Payload, Path] | None:
        """The compiled payload of `part`, and the folder of its files."""
        return self._done.get((part.provider, part.nodes))

    def compile(
        self, assignment: Assignment, plan: VariantPlan, attempt: int
    ) -> list[tuple[Part, AotcError]]:
        """Compile all parts that are not compiled yet; the failed ones with their errors."""
        begun = {
            part: self._jobs.submit(
                part,
                self._backends[part.provider],
                attempt,
                share=part.provider not in self._unshared,
            )
            for part in assignment.parts
            if self._backends[part.provider].compiles and not self.result_of(part)
        }
        for name in dict.fromkeys(part.provider for part in begun):
            number = sum(part.provider == name for part in begun)
            called = self._backends[name].name
            self._options.announce(f"compile {number} partitions with {called}, {plan.name}")
        failed: list[tuple[Part, AotcError]] = []
        for number, (part, job) in enumerate(begun.items()):
            self._options.clock.reporter.count(number, len(begun), "partitions")
            try:
                payload = payload_of(job.result.result())
                self._done[part.provider, part.nodes] = payload, job.folder
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
            if result_of := self.result_of(part):
                found.setdefault(part.provider, []).append(result_of[0])
        mixed = {
            name
            for name, payloads in found.items()
            if any(payload.options for payload in payloads)
            and any(not payload.options and not payload.mixes_with_shared for payload in payloads)
        } - self._unshared
        self._done = {
            key: result_of for key, result_of in self._done.items() if key[0] not in mixed
        }
        self._unshared |= mixed
        return bool(mixed)


def _subgraph_findings(
    claimed: ClaimedModel, division: Division, backends: Mapping[str, Backend]
) -> list[Finding]:
    """AOTC-P011 for subgraph nodes that a compiling provider claims but cannot get there."""
    claims = dict(claimed.claims)
    findings = []
    for name, backend in backends.items():
        stays = [
            node.name
            for node in division.graph.subgraph_nodes
            if node.name in claims[name] and division.assignment.providers[node.name] != name
        ]
        if backend.compiles and stays:
            findings.append(
                Finding(
                    code="AOTC-P011",
                    what=f"{len(stays)} nodes of bodies of control flow go to the next provider, "
                    f"as {backend.name} did not take the control flow itself",
                    where=f"variant {claimed.plan.name}",
                )
            )
    return findings
