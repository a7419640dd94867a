"""The plan of a fleet: which cells are new, unchanged or impossible here, and why.

A cell is unchanged if the key that the build cache has for it is that of the result which was
kept, and the artifact is still in its place with the id that it had.  The workers say both keys and
what they cannot build; of the models they are told the digests alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.reading import read_at_most
from aotc.base.progress import Reporter
from aotc.base.records import record, replace
from aotc.fleet.cell_jobs import FORESEE, MODEL, Asked, asked_of, refusals_of
from aotc.fleet.cells import FleetFile, Task
from aotc.fleet.executors.base import Executor, Job, with_words
from aotc.fleet.hosts import unserved
from aotc.fleet.state import FleetState
from aotc.pipeline.output import Output
from aotc.pipeline.reuse import model_digest
from aotc.sources.registry import importer_of
from aotc.spec.codec import Json, decode
from aotc.spec.fleet import CellResult, FleetPlan, PlannedCell
from aotc.spec.reports import Refusal
from aotc.spec.trust_policy import Signer
from aotc.trust.gate import authenticate
from aotc.trust.opening import open_container
from aotc.trust.references import ExternalData, InMemory, MalformedModel, references
from aotc.trust.signers import own_anchors

_MAX_BYTES: Final = 2**31 - 1
# Of a model that was never built: what a build takes beside the model, and by what it multiplies.
_BASE_BYTES: Final = 600 << 20
_TIMES: Final = 6
_BASE_SECONDS: Final = 3.0
_BYTES_PER_SECOND: Final = 10 << 20
# What is measured differs from run to run.
_SPARE: Final = 1.15


@record
class PlannedTask:
    """A cell that is planned, and what it needs and takes, measured or estimated."""

    task: Task
    planned: PlannedCell
    asked: Asked
    files: Mapping[str, Path]
    source: str
    keys: tuple[str, ...] = ()
    kept: CellResult | None = None
    seconds: float = 0.0
    memory_bytes: int = 0


@record
class Plan:
    """What is to be done; `tasks` are the cells in the order of the file, without excluded ones."""

    document: FleetPlan
    tasks: tuple[PlannedTask, ...]


@record
class _Answer:
    """What a worker says of a cell."""

    key: str = ""
    refusals: tuple[Refusal, ...] = ()


def plan_fleet(
    fleet: FleetFile,
    executor: Executor,
    state: FleetState,
    *,
    signer: Signer,
    force: bool,
    shard: str,
    reporter: Reporter,
) -> Plan:
    """The plan of all cells, which `signer` will sign; `force` replaces artifacts of others."""
    reporter.note("reading models")
    kinds: dict[str, Asked] = {}
    for task in fleet.tasks:
        if (kind := _kind(task)) not in kinds:
            kinds[kind] = asked_of(task)
    asked = {task.cell.name: kinds[_kind(task)] for task in fleet.tasks}
    each_source = {task.source: task for task in fleet.tasks}
    sources = {source: source_of(source) for source in each_source}
    digests = {source: _known_digest(task) for source, task in each_source.items()}
    reporter.note("asking workers")
    answers = _ask(fleet.tasks, asked, digests, executor)
    tasks = []
    for task in fleet.tasks:
        kept = state.result(task.cell.name)
        planned, keys = _planned(task, kept, answers, executor, signer=signer, force=force)
        source, files, size = sources[task.source]
        last = kept if kept is not None and kept.seconds else None
        measured = last.peak_memory_bytes if last is not None else None
        tasks.append(
            PlannedTask(
                task=task,
                planned=planned,
                asked=asked[task.cell.name],
                files=files,
                source=source,
                keys=keys,
                kept=kept,
                seconds=last.seconds if last else _BASE_SECONDS + size / _BYTES_PER_SECOND,
                memory_bytes=int(measured * _SPARE) if measured else _BASE_BYTES + _TIMES * size,
            )
        )
    excluded = (
        PlannedCell(cell=cell, state="excluded", reason=reason) for cell, reason in fleet.excluded
    )
    document = FleetPlan(
        fleet=fleet.fleet.name,
        executor=executor.name,
        shard=shard,
        cells=(*(each.planned for each in tasks), *excluded),
        workers=executor.workers(),
    )
    return Plan(document=document, tasks=tuple(tasks))


def _planned(
    task: Task,
    kept: CellResult | None,
    answers: Mapping[str, Mapping[str, _Answer]],
    executor: Executor,
    *,
    signer: Signer,
    force: bool,
) -> tuple[PlannedCell, tuple[str, ...]]:
    cell = task.cell
    planned = PlannedCell(
        cell=cell,
        state="new",
        last_seconds=kept.seconds or None if kept is not None else None,
        last_memory_bytes=kept.peak_memory_bytes if kept is not None else None,
    )

    def impossible(refusals: tuple[Refusal, ...]) -> tuple[PlannedCell, tuple[str, ...]]:
        what = refusals[0].what
        return replace(planned, state="impossible", reason=what, refusals=refusals), ()

    if (refused := executor.refusal(cell.needs)) is not None:
        return impossible(refusals_of(refused))
    serving = [each for each in executor.workers() if unserved(cell.needs, each) is None]
    said = {each.name: answers[each.name][cell.name] for each in serving if each.name in answers}
    able = {name: answer for name, answer in said.items() if not answer.refusals}
    if not able and said:
        return impossible(next(iter(said.values())).refusals)
    keys = tuple(dict.fromkeys(answer.key for answer in able.values() if answer.key))
    changed = _changed(kept, cell.output, keys, signer)
    if kept is not None and not changed:
        return replace(planned, state="unchanged", key=kept.key), keys
    if os.path.lexists(cell.output):
        try:
            standing = Output(Path(cell.output), task.source, force=force)
            standing.require_signer(own_anchors(signer, "who signs the fleet"))
        except AotcError as error:
            return impossible(refusals_of(error))
    some = tuple(able) if len(able) < len(executor.workers()) else ()
    key = keys[0] if len(keys) == 1 else ""
    return replace(planned, reason=changed, key=key, workers=some), keys


def _changed(kept: CellResult | None, output: str, keys: Sequence[str], signer: Signer) -> str:
    """Why a cell that was built before is built again; empty: it is not, or never was."""
    if kept is None:
        return ""
    if not kept.artifact_id:
        code = kept.refusals[0].code if kept.refusals else "interrupted"
        return f"failed last time: {code}"
    if not kept.key or kept.key not in keys:
        return (
            "the model, the settings or the tools changed" if kept.key else "its key is not known"
        )
    if kept.key_id != signer.key_id:
        return "another key signs"
    return unusable(Path(output), kept.artifact_id, signer)


def unusable(place: Path, artifact_id: str, signer: Signer) -> str:
    """Why what stands at `place` is not the artifact that was put there; empty: it is.

    Signature and digests are checked: a damaged artifact is found here, or where it is deployed.
    """
    if not os.path.lexists(place):
        return "the artifact is gone"
    try:
        with open_container(place) as container:
            found = authenticate(container, own_anchors(signer, "who signs the fleet")).id
    except AotcError as error:
        return f"the artifact is damaged: {error.code} {error.what}"
    except OSError as error:
        return f"the artifact cannot be read: {error.strerror}"
    return "" if found == artifact_id else "another artifact is in its place"


# What workers are asked.


def _kind(task: Task) -> str:
    """Equal for tasks whose builds are asked for the same but for the model."""
    given = (task.target, task.fixtures, task.calibration, task.trust_source, task.settings)
    return repr((id(task.profile), *given))


def _ask(
    tasks: Sequence[Task],
    asked: Mapping[str, Asked],
    digests: Mapping[str, str],
    executor: Executor,
) -> dict[str, dict[str, _Answer]]:
    """What each worker says of each cell, by the worker's name and the cell's."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(_kind(task), []).append(task)
    cells: list[Json] = []
    files: dict[str, Path] = {}
    for group in groups.values():
        one = asked[group[0].cell.name]
        # Files of one name in two groups are not one file.
        at = f"{len(cells)}/"
        files |= {f"{at}{name}": path for name, path in one.files.items()}
        words = {f"{{file:{name}}}": f"{{file:{at}{name}}}" for name in one.files}
        models = [[task.model, digests[task.source]] for task in group]
        cells.append({"asked": with_words(one.request, words), "models": models})
    job = Job(name="plan", function=FORESEE, request={"cells": cells}, files=files)
    found: dict[str, dict[str, _Answer]] = {}
    for name, outcome in executor.ask(job).items():
        said = found[name] = {}
        failed = refusals_of(outcome.error) if outcome.error is not None else ()
        for number, group in enumerate(groups.values()):
            value = {"refusals": ()} if failed else outcome.value[number]
            refusals = failed or tuple(decode(Refusal, r) for r in value.get("refusals", ()))
            for index, task in enumerate(group):
                key = "" if refusals else value["keys"][index]
                said[task.cell.name] = _Answer(key=key, refusals=refusals)
    return found


# What is known of a model without building it.


def _known_digest(task: Task) -> str:
    """The digest of a model; empty where code runs, as nobody knows what that reads."""
    if task.trust_source and importer_of(task.source) is not None:
        return ""
    return model_digest(task.source) or ""


def source_of(source: str) -> tuple[str, Mapping[str, Path], int]:
    """The word for a source in a job's request, its files by name, and their bytes."""
    path = Path(source)
    if not os.path.lexists(path):
        return source, {}, 0
    names = [path.name, *(_external(path) if path.is_file() else ())]
    files = {f"{MODEL}/{name}": path.parent / name for name in dict.fromkeys(names)}
    return f"{{file:{MODEL}/{path.name}}}", files, sum(map(_bytes_of, files.values()))


def _external(path: Path) -> Iterable[str]:
    """The names of the files beside a model that hold its weights."""
    if importer_of(path) is not None:
        return ()
    try:
        size = path.stat().st_size
        found = InMemory(read_at_most(path, size)) if size <= _MAX_BYTES else None
        stated = {
            value
            for each in (references(found) if found is not None else ())
            if isinstance(each, ExternalData)
            for key, value in each.entries
            if key == "location"
        }
    except (OSError, MalformedModel):
        # The build says what is wrong with it.
        return ()
    return sorted(each for each in stated if (path.parent / each).is_file() and ".." not in each)


def _bytes_of(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
        return path.stat().st_size
    except OSError:
        return 0
