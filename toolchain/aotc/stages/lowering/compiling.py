"""Compile a variant's parts; what fails is left to the next provider, and the rest divided anew."""

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
from aotc.stages.lowering.blame import Blame
from aotc.stages.lowering.compile_job import payload_of
from aotc.stages.lowering.part_jobs import PartJobs
from aotc.stages.partition import divide
from aotc.stages.types import ClaimedModel, Division, VariantPlan

_FAILURES: Final = frozenset({"AOTC-P005", "AOTC-I013", "AOTC-I014", "AOTC-I015"})


@record
class CompiledModel:
    """A division of which every part that has to be is compiled.

    `model` is the graph that was divided; `names` are of all parts, in their order; `payloads` and
    the `folders` of their files are by index of part.
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
    """Compile the parts of `division`, and divide again without what fails, until all is compiled.

    `backends` by ORT's name.  Raises AOTC-P001 where a node runs nowhere, P005 where the last
    provider that takes a node fails on it, and P010.
    """
    graph = division.graph
    model = onnx.load(claimed.graph, load_external_data=False)
    compiler = _PartCompiler(PartJobs(claimed, model, graph, options), backends, options)
    blame = Blame(graph, claimed.plan.name, division.refusals)
    # It ends: every round that fails leaves nodes, or shares no weights where the last one did.
    for attempt in count():
        failed = compiler.compile(division.assignment, claimed.plan, attempt)
        mixed = compiler.unshare_mixed(division.assignment)
        if not failed and not mixed:
            break
        for part, failure in failed:
            blame.leave(part, failure, attempt)
        division = divide(claimed, graph, blame.refused, blame.refusals, options)
    parts = division.assignment.parts
    made = {index: found for index, part in enumerate(parts) if (found := compiler.made(part))}
    return CompiledModel(
        claimed=claimed,
        division=division,
        model=model,
        names=tuple(f"{backends[part.provider].name}{i}" for i, part in enumerate(parts)),
        payloads={index: payload for index, (payload, _) in made.items()},
        folders={index: folder for index, (_, folder) in made.items()},
        findings=(*blame.findings, *_outside(claimed, division, backends)),
    )


class _PartCompiler:
    """Compiles the parts of one division after the other, each part once."""

    def __init__(
        self, jobs: PartJobs, backends: Mapping[str, Backend], options: BuildOptions
    ) -> None:
        self._jobs = jobs
        self._backends = backends
        self._options = options
        # Payloads with the folders of their files, by provider and nodes.
        self._done: dict[tuple[str, tuple[int, ...]], tuple[Payload, Path]] = {}
        # Providers that compile all constants in.
        self._alone: set[str] = set()

    def made(self, part: Part) -> tuple[Payload, Path] | None:
        """What `part` was compiled to, and the folder of its files."""
        return self._done.get((part.provider, part.nodes))

    def compile(
        self, assignment: Assignment, plan: VariantPlan, attempt: int
    ) -> list[tuple[Part, AotcError]]:
        """Compile all parts that are not compiled yet; those that failed."""
        begun = {
            part: self._jobs.submit(
                part, self._backends[part.provider], attempt, share=part.provider not in self._alone
            )
            for part in assignment.parts
            if self._backends[part.provider].compiles and not self.made(part)
        }
        for name in dict.fromkeys(part.provider for part in begun):
            number = sum(part.provider == name for part in begun)
            called = self._backends[name].name
            self._options.tell(f"compile {number} partitions with {called}, {plan.name}")
        failed: list[tuple[Part, AotcError]] = []
        for part, job in begun.items():
            try:
                payload = payload_of(job.result.result())
                self._done[part.provider, part.nodes] = payload, job.folder
            except AotcError as error:
                if error.code not in _FAILURES:
                    raise
                self._options.tell(error.line())
                failed.append((part, error))
        return failed

    def unshare_mixed(self, assignment: Assignment) -> bool:
        """Forget parts that one session cannot read together; whether there were any.

        Options by which some parts read the shared weights hold for those, too, that must not; so
        all of that provider's are compiled anew, with all constants in them.
        """
        found: dict[str, list[Payload]] = {}
        for part in assignment.parts:
            if made := self.made(part):
                found.setdefault(part.provider, []).append(made[0])
        mixed = {
            name
            for name, payloads in found.items()
            if any(each.options for each in payloads)
            and any(not each.options and not each.mixes_with_shared for each in payloads)
        } - self._alone
        self._done = {key: made for key, made in self._done.items() if key[0] not in mixed}
        self._alone |= mixed
        return bool(mixed)


def _outside(
    claimed: ClaimedModel, division: Division, backends: Mapping[str, Backend]
) -> list[Finding]:
    """AOTC-P011 for nodes of bodies that a compiling provider claims, and cannot have there."""
    claims = dict(claimed.claims)
    findings = []
    for name, backend in backends.items():
        stays = [
            each.name
            for each in division.graph.body_nodes
            if each.name in claims[name] and division.assignment.providers[each.name] != name
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
