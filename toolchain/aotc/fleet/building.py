"""Builds a fleet: what is planned runs on an executor, and what became of each cell is kept."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import translated_errors
from aotc.base.files.folders import MANIFEST
from aotc.base.files.reading import open_plain, read_at_most
from aotc.base.files.replacing import NEW
from aotc.base.files.work_folders import work_folder
from aotc.base.progress import Progress, Reporter
from aotc.base.records import field, record, replace
from aotc.base.text import did_you_mean
from aotc.fleet.cell_jobs import BUILD, artifact_name, refusals_of
from aotc.fleet.cells import FleetFile, read_fleet
from aotc.fleet.executors import EXECUTORS
from aotc.fleet.executors.base import Executor, Job, JobOutcome, Log
from aotc.fleet.planning import Plan, PlannedTask, plan_fleet, unusable
from aotc.fleet.shards import plan_digest
from aotc.fleet.state import FleetState, default_state
from aotc.pipeline.output import Output
from aotc.pipeline.request import called_with
from aotc.pipeline.reuse import tell_judgements
from aotc.spec.codec import decode
from aotc.spec.fleet import (
    CellResult,
    FleetPlan,
    FleetReport,
    MergedArtifact,
)
from aotc.spec.json import MAX_JSON_BYTES, strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal
from aotc.spec.run_report import SIZE, Journal, Measurement
from aotc.spec.trust_policy import Signer
from aotc.tools.merge import merge_artifacts
from aotc.trust.development_key import development_key_path
from aotc.trust.signers import is_signer_file, load_signer, own_anchors

LOCAL: Final = "local"


@record
class FleetRequest:
    """What a fleet's build is asked for; see `build_fleet`."""

    fleet: str | Path = field(kw_only=False)
    only: Sequence[str] = ()
    shard: str = ""
    on: str = LOCAL
    jobs: int | None = None
    key: str | Path | None = None
    force: bool = False
    cache: bool = True
    state: str | Path | None = None
    progress: Progress | None = None
    planned: Callable[[FleetPlan], None] | None = None
    log: Log | None = None


def plan_of(request: FleetRequest) -> FleetPlan:
    """What `build_fleet` would do, with nothing built; raises what it does."""
    with _planned(request) as run:
        return run.plan.document


@called_with(FleetRequest)
def build_fleet(request: FleetRequest) -> FleetReport:
    """Build the cells of a fleet that are new; the report has all of them.

    `fleet` is the path of its file.  Of its cells those are built whose names match a glob of
    `only`, and that are of `shard`, `I/N`.  `on` is an executor, `NAME` or `NAME://ADDRESS`, that
    runs up to `jobs` at once.  `key` signs (None: the user's development key); with `force`
    artifacts of others are replaced; with `cache` equal builds are taken from the build cache.
    `state` is the folder of what is known from earlier runs.  `planned` is told the plan before
    anything runs, and `log` lines of jobs and workers (None: `progress` is).  A cell that fails
    stops no other, and an
    interrupt leaves those that were not built as `not-run`.

    Raises all that is wrong with the file (AOTC-I001, I046, I160 to I163, I165, I167), I027 (no
    such executor or share), I166 (nothing to build), and what loading the signer and starting the
    executor raises.
    """
    started = time.monotonic()
    with _planned(request) as run:
        if request.planned is not None:
            request.planned(run.plan.document)
        results = run.results()
        merged = tuple(run.merged(results)) if run.fleet.fleet.merge == "by-model" else ()
        return FleetReport(
            fleet=run.fleet.fleet.name,
            executor=run.executor.name,
            cells=tuple(results.values()),
            plan=plan_digest(run.fleet.whole),
            shard=request.shard,
            merged=merged,
            workers=run.plan.document.workers,
            findings=run.state.findings(),
            seconds=time.monotonic() - started,
        )


@contextmanager
def _planned(request: FleetRequest) -> Iterator[_Run]:
    """A run with its plan, whose executor is there as long as the context lasts."""
    whole = read_fleet(Path(request.fleet))
    # A share may have no cell, but what all shares are of has one.
    fleet = whole.only(request.only).share(request.shard)
    signer = load_signer(request.key)
    folder = (
        Path(request.state)
        if request.state is not None
        else default_state(Path(request.fleet), fleet.fleet.name)
    )
    state = FleetState(folder)
    reporter = Reporter(request.progress)
    chosen = executor_of(request.on, request.jobs)
    if request.key is not None and is_signer_file(request.key) and not chosen.is_here:
        raise AotcError(
            "AOTC-I027",
            "a program that signs stays on this machine, and cells are built on others",
            where=f"--key {request.key}",
            fix="Sign with a key file, or add a signature with 'aotc sign' afterwards.",
        )
    with chosen as executor:
        reporter.begin("plan", fleet.fleet.name)
        plan = plan_fleet(
            fleet,
            executor,
            state,
            signer=signer,
            force=request.force,
            shard=request.shard,
            reporter=reporter,
        )
        reporter.end()
        yield _Run(request, fleet, plan, executor, state, signer, reporter)


def executor_of(on: str, jobs: int | None = None) -> Executor:
    """The executor that `NAME` or `NAME://ADDRESS` names, not started; raises AOTC-I027."""
    name, _, address = on.partition("://")
    if name not in EXECUTORS:
        raise AotcError(
            "AOTC-I027",
            f"no such executor: {name!r}{did_you_mean(name, EXECUTORS)}",
            where=f"--on {on}",
            expected=", ".join(EXECUTORS),
        )
    executor: Executor = EXECUTORS.load(name)(address, jobs)
    return executor


class _Run:
    """A fleet that is planned."""

    def __init__(
        self,
        request: FleetRequest,
        fleet: FleetFile,
        plan: Plan,
        executor: Executor,
        state: FleetState,
        signer: Signer,
        reporter: Reporter,
    ) -> None:
        self.request, self.fleet, self.plan = request, fleet, plan
        self.executor, self.state, self.signer, self.reporter = executor, state, signer, reporter

    def results(self) -> dict[str, CellResult]:
        """What became of every cell, by its name, in the order of the file."""
        found = {each.task.cell.name: _unbuilt(each) for each in self.plan.tasks}
        new = [each for each in self.plan.tasks if each.planned.state == "new"]
        # The longest first, so that none of them is left alone at the end.
        new.sort(key=lambda each: -each.seconds)
        jobs = {job.name: (each, job) for each in new for job in (self._job(each),)}
        self.reporter.begin_items("build", len(new), "cells")
        told = self.request.log or (lambda name, line: self.reporter.note(f"{name}: {line}"))
        try:
            with closing(self.executor.run([job for _, job in jobs.values()], told)) as outcomes:
                for count, outcome in enumerate(outcomes, 1):
                    task = jobs[outcome.job.name][0]
                    result = self._result(task, outcome)
                    self.state.keep(_to_keep(result, task.kept))
                    found[outcome.job.name] = result
                    self.reporter.count(count, len(new), "cells")
                    said = f"{outcome.job.name} {result.outcome}"
                    self.reporter.finished(said, result.seconds)
        except KeyboardInterrupt:
            # The report has what is known, and the caller sees which cells were not built.
            pass
        self.reporter.end()
        return found

    def _job(self, planned: PlannedTask) -> Job:
        cell, asked = planned.task.cell, planned.asked
        files = {**asked.files, **planned.files}
        key, path = None, self.request.key
        if path is None and not self.executor.is_here:
            # Each machine has a development key of its own, and this one is trusted here.
            path = development_key_path()
        if path is not None:
            path = Path(path)
            key = f"{{file:key/{path.name}}}"
            files[f"key/{path.name}"] = path
        return Job(
            name=cell.name,
            function=BUILD,
            request={
                "asked": asked.request,
                "source": planned.source,
                "name": planned.task.model,
                "artifact": artifact_name(cell.output),
                "key": key,
                "cache": self.request.cache,
                "keys": list(planned.keys),
                "directory": str(Path.cwd()) if planned.task.trust_source else "",
            },
            files={name: path.absolute() for name, path in files.items()},
            needs=cell.needs,
            seconds=cell.timeout_seconds,
            workers=planned.planned.workers,
            memory_bytes=planned.memory_bytes,
        )

    def _result(self, planned: PlannedTask, outcome: JobOutcome) -> CellResult:
        """What became of a cell; what was built is put in its place."""
        cell = planned.task.cell
        result = CellResult(
            cell=cell,
            outcome="failed",
            seconds=outcome.seconds,
            peak_memory_bytes=outcome.peak_memory_bytes,
            worker=outcome.worker,
            attempts=outcome.attempts,
        )
        if outcome.error is not None:
            return replace(result, refusals=refusals_of(outcome.error))
        value = outcome.value
        journal = Journal()
        tell_judgements(value["judged"], journal, planned.task.places)
        result = replace(
            result,
            refusals=tuple(decode(Refusal, each) for each in value["refusals"]),
            findings=tuple(decode(Finding, each) for each in value["findings"]),
            gates=journal.gates,
            measurements=journal.measurements,
        )
        if result.refusals:
            return result
        try:
            assert outcome.folder is not None
            self._deliver(outcome.folder / artifact_name(cell.output), planned)
        except AotcError as error:
            return replace(result, refusals=refusals_of(error))
        size = Measurement(name=SIZE, subject="payload", value=value["payload_bytes"], unit="B")
        return replace(
            result,
            outcome="reused" if value["cached"] else "built",
            key=value["key"],
            key_id=value["key_id"],
            artifact_id=value["artifact_id"],
            measurements=(size, *result.measurements),
        )

    def _deliver(self, built: Path, planned: PlannedTask) -> None:
        """Give an artifact its place; raises what `Output` does, and AOTC-I018 for a full disk."""
        place = Path(planned.task.cell.output)
        with translated_errors(str(place)):
            place.parent.mkdir(parents=True, exist_ok=True)
            with work_folder(place) as work:
                _move(built, work / NEW)
                content = read_at_most(work / NEW / MANIFEST, MAX_JSON_BYTES)
                manifest = decode(Manifest, strict_json(content))
                try:
                    self._place(place, manifest, work)
                except AotcError as error:
                    if error.code != "AOTC-I017":
                        raise
                    # Another run of the fleet may have put its own there a moment ago.
                    (work / place.name).unlink(missing_ok=True)
                    self._place(place, manifest, work)

    def _place(self, place: Path, manifest: Manifest, work: Path) -> None:
        output = Output(place, manifest.source, force=self.request.force)
        output.require_signer(own_anchors(self.signer, "who signs the fleet"))
        output.deliver(work / NEW, manifest, work, None)

    # Cells of one model as one artifact.

    def merged(self, results: Mapping[str, CellResult]) -> Iterable[MergedArtifact]:
        """One artifact of all cells of a model with one profile, where they are two or more.

        Of a share of them none is made, which would take the place of that of all.
        """
        groups: dict[tuple[str, str], list[str]] = {}
        for cell in self.fleet.whole:
            groups.setdefault((cell.model, cell.profile), []).append(cell.name)
        for (model, profile), names in groups.items():
            cells = [results[name] for name in names if name in results]
            is_done = len(cells) == len(names) and all(e.outcome != "not-run" for e in cells)
            there = [each for each in cells if each.artifact_id]
            wanted = [each for each in cells if each.artifact_id or each.cell.required]
            if len(wanted) < 2 or not is_done:
                continue
            merged = MergedArtifact(
                model=model,
                profile=profile,
                output=str(self.fleet.merged_output(model, profile)),
                cells=tuple(each.cell.name for each in there),
                artifacts=tuple(each.artifact_id for each in there),
            )
            yield self._merge(merged, cells, there)

    def _merge(
        self, merged: MergedArtifact, cells: Sequence[CellResult], there: Sequence[CellResult]
    ) -> MergedArtifact:
        name = f"{merged.model}/{merged.profile}"
        missing = [each for each in cells if not each.artifact_id and each.cell.required]
        if missing:
            return replace(
                merged, refusals=tuple(each for cell in missing for each in cell.refusals)
            )
        place, kept = Path(merged.output), self.state.merged(name)
        same = kept is not None and replace(kept, artifact_id="") == merged
        if kept is not None and same and not unusable(place, kept.artifact_id, self.signer):
            return kept
        self.reporter.note(f"merging {name}")
        try:
            with translated_errors(merged.output):
                place.parent.mkdir(parents=True, exist_ok=True)
                paths = [each.cell.output for each in there]
                report = merge_artifacts(
                    paths, place, key=self.request.key, force=self.request.force
                )
        except AotcError as error:
            merged = replace(merged, refusals=refusals_of(error))
        else:
            merged = replace(merged, artifact_id=report.artifact_id)
        self.state.keep_merged(name, merged)
        return merged


def _to_keep(result: CellResult, before: CellResult | None) -> CellResult:
    """A result as the next plan needs it: with what a build took, not a copy from the cache."""
    if result.outcome != "reused" or before is None or not before.seconds:
        return result
    return replace(result, seconds=before.seconds, peak_memory_bytes=before.peak_memory_bytes)


def _move(built: Path, place: Path) -> None:
    """Rename a folder, or copy it to another file system; raises OSError, of the first file."""
    try:
        built.rename(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        place.mkdir()
        for each in sorted(built.rglob("*")):
            target = place / each.relative_to(built)
            if each.is_dir():
                target.mkdir()
            else:
                with open_plain(each) as source, target.open("xb") as copy:
                    shutil.copyfileobj(source, copy)


def _unbuilt(planned: PlannedTask) -> CellResult:
    """What is said of a cell that is not built in this run, or not yet."""
    cell, kept = planned.task.cell, planned.kept
    if planned.planned.state == "unchanged" and kept is not None:
        return replace(kept, cell=cell, outcome="reused", seconds=0.0)
    impossible = planned.planned.state == "impossible"
    return CellResult(
        cell=cell,
        outcome="impossible" if impossible else "not-run",
        refusals=planned.planned.refusals,
    )
