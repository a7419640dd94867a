"""Compile a variant's parts; what fails is left to the next provider, and the rest divided anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import onnx

from aotc.backends.base import Backend, Payload
from aotc.contract.finding import Finding
from aotc.errors import AotcError
from aotc.partitioning.assignment import Assignment, Part
from aotc.stages.build_options import BuildOptions
from aotc.stages.lowering.blame import Blame
from aotc.stages.lowering.compile_job import payload_of
from aotc.stages.lowering.part_jobs import PartJobs
from aotc.stages.partition import divide
from aotc.stages.types import ClaimedModel, Division

_FAILURES: Final = frozenset({"AOTC-P005", "AOTC-I013", "AOTC-I014", "AOTC-I015"})

# Payloads with the folders of their files, by provider and nodes.
_Done = dict[tuple[str, tuple[int, ...]], tuple[Payload, Path]]


@dataclass(frozen=True, slots=True, kw_only=True)
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
    jobs = PartJobs(claimed, model, graph, options)
    blame = Blame(graph, claimed.plan.name)
    blame.refusals += division.refusals
    done: _Done = {}
    # Providers that compile all constants in.
    alone: set[str] = set()
    # It ends: every round that fails leaves nodes, or shares no weights where the last one did.
    for attempt in count():
        failed = _round(division.assignment, done, alone, attempt, jobs, backends, claimed, options)
        mixed = _mixed(division.assignment, done) - alone
        if not failed and not mixed:
            break
        for key in [key for key in done if key[0] in mixed]:
            del done[key]
        alone |= mixed
        for part, failure in failed:
            blame.leave(part, failure, attempt)
        division = divide(claimed, graph, blame.refused, blame.refusals, options)
    parts = division.assignment.parts
    made = {
        index: done[part.provider, part.nodes]
        for index, part in enumerate(parts)
        if (part.provider, part.nodes) in done
    }
    return CompiledModel(
        claimed=claimed,
        division=division,
        model=model,
        names=tuple(f"{backends[part.provider].name}{i}" for i, part in enumerate(parts)),
        payloads={index: payload for index, (payload, _) in made.items()},
        folders={index: folder for index, (_, folder) in made.items()},
        findings=(*blame.findings, *_outside(claimed, division, backends)),
    )


def _round(
    assignment: Assignment,
    done: _Done,
    alone: set[str],
    attempt: int,
    jobs: PartJobs,
    backends: Mapping[str, Backend],
    claimed: ClaimedModel,
    options: BuildOptions,
) -> list[tuple[Part, AotcError]]:
    """Compile into `done` all parts that are not there yet; those that failed."""
    begun = {
        part: jobs.submit(part, backends[part.provider], attempt, share=part.provider not in alone)
        for part in assignment.parts
        if backends[part.provider].compiles and (part.provider, part.nodes) not in done
    }
    for name in dict.fromkeys(part.provider for part in begun):
        number = sum(part.provider == name for part in begun)
        options.tell(f"compile {number} partitions with {backends[name].name}, {claimed.plan.name}")
    failed: list[tuple[Part, AotcError]] = []
    for part, job in begun.items():
        try:
            done[part.provider, part.nodes] = payload_of(job.result.result()), job.folder
        except AotcError as error:
            if error.code not in _FAILURES:
                raise
            options.tell(error.line())
            failed.append((part, error))
    return failed


def _mixed(assignment: Assignment, done: _Done) -> set[str]:
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
