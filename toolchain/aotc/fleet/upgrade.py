"""Models with another ONNX Runtime: built, answered and timed in two environments, and compared."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final

from aotc.base.codes import REASONS
from aotc.base.errors import AotcError
from aotc.base.files import failures
from aotc.base.files.folders import MANIFEST, PAYLOAD, make_folder, state_folder
from aotc.base.files.reading import file_sha256, read_at_most
from aotc.base.files.replacing import erase
from aotc.base.files.work_folders import temporary_folder
from aotc.base.files.writing import write_atomically
from aotc.base.interruptions import uninterrupted
from aotc.base.progress import Progress, Reporter
from aotc.base.records import field, record, replace
from aotc.fleet.cells import HOST, Task, read_fleet
from aotc.fleet.check_models import with_larger_fixtures
from aotc.fleet.runtimes import Runtime, runtime_of
from aotc.fleet.upgrade_jobs import TURNS
from aotc.host.probe import probe
from aotc.pipeline.custom_ops import stage_custom_ops
from aotc.pipeline.reuse import folder_digest, model_digest, source_digest
from aotc.spec.answers import ChangedAnswer, ModelAnswers, SameCalls
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.command_reports import SkippedFile
from aotc.spec.evidence import Comparison
from aotc.spec.json import MAX_JSON_BYTES, canonical_json, canonical_sha256, strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.precision import Tolerance
from aotc.spec.profile import Profile, WorkerLimits
from aotc.spec.profile_files import load_profile
from aotc.spec.reports import Refusal
from aotc.spec.upgrade import (
    AnswersCompared,
    BlamedNode,
    LatencyCompared,
    LatencyVerdict,
    SideBuild,
    UpgradedModel,
    UpgradeOutcome,
    UpgradeReport,
)
from aotc.tools.bench_comparison import MIN_ROUNDS, Interval, paired_interval
from aotc.tools.bench_sides import Plan, block_sizes
from aotc.tools.check_outcomes import outcome_of
from aotc.tools.found_models import find_models
from aotc.tools.kept_answers import VALUES, Compared, KeptFolder
from aotc.tools.model_sandbox import Sandbox
from aotc.trust import key_files

BEFORE, AFTER = "before", "after"
ALLOW: Final = 1.05
SECONDS: Final = 3.0
_RUNS: Final = 600
# What looks slower or faster must do so in each of so many pairs of processes: where a process has
# its memory may cost several per cent for as long as it lives.
_PAIRS: Final = 3
_POLL_SECONDS: Final = 0.2
# Until there are rounds enough for an interval, as many times as long as stated.
_LONGEST: Final = 10
_JOBS: Final = "aotc.fleet.upgrade_jobs"
_SEED: Final = 20260131
_FULL: Final = "AOTC-I018"
# What `answer_both` says of an artifact that cannot be opened.
_NOT_HERE: Final = "B cannot be run here: "


@record
class Subject:
    """A model that is built in both environments.

    `options` are further arguments of `build`, and `seconds` how long it may take (None: as all).
    """

    name: str
    stated: str
    source: Path
    profile: Profile
    options: Mapping[str, Json] = field(default_factory=dict)
    fixtures: str | None = None
    required: bool = True
    seconds: float | None = None


def upgrade(
    fleet: str | Path,
    *,
    to: str,
    since: str = "",
    profile: str | Path = "edge",
    pattern: str = "*",
    allow: float = ALLOW,
    measure_seconds: float = SECONDS,
    jobs: int = 1,
    timeout: float = 1800.0,
    force: bool = False,
    progress: Progress | None = None,
) -> UpgradeReport:
    """Build, run and time every model with the ONNX Runtime `since` and with `to`.

    `fleet` is a folder of models, which are built with `profile` if their names match `pattern`,
    or the file of a fleet.  `to` and `since` are as for `runtime_of`; `since` is by default this
    environment.  Latencies are measured for `measure_seconds` a model and pair of processes (0: not
    at all); the new artifact is slower or faster where the interval of the ratio is beyond `allow`
    or its inverse, in three pairs of processes.  `jobs` models are built at a time, each for at
    most `timeout` seconds.  What an interrupted call of the same kind finished is not done again.

    Raises what `runtime_of` does, AOTC-I001, I027 and I166, I018 and I026, and what profiles and
    files of fleets do.
    """
    started = time.monotonic()
    if allow < 1:
        raise AotcError(
            "AOTC-I027", "the allowed ratio is out of range", expected=">= 1", found=str(allow)
        )
    reporter = Reporter(progress)
    subjects, skipped = _subjects(Path(fleet), profile, pattern)
    reporter.begin("environments")
    # That of today need not be made where the other one cannot be.
    after, findings = runtime_of(to, force=force)
    before, _ = runtime_of(since, force=True)
    reporter.end()
    kept = _Finished((before, after), (allow, measure_seconds))
    done = {each.name: found for each in subjects if (found := kept.find(each)) is not None}
    resumed = len(done)
    limits = _limits(subjects, timeout, jobs)
    with temporary_folder("upgrade") as work:
        private, public = key_files.generate(work / "key.pem")
        comparison = _Comparison(
            runtimes=(before, after),
            key=str(private),
            pem=public.read_text("ascii"),
            work=work,
            limits=limits,
            allow=allow,
            measure_seconds=measure_seconds,
        )
        left = [each for each in subjects if each.name not in done]
        # The report has what is known; the caller sees which models are not done.
        with (
            suppress(KeyboardInterrupt),
            closing(comparison.compare_all(left, jobs, reporter)) as finished,
        ):
            for subject, found in finished:
                done[subject.name] = found
                kept.add(subject, found)
    unchecked = tuple(each.name for each in subjects if each.name not in done)
    if not unchecked:
        kept.remove()
    return UpgradeReport(
        fleet=str(fleet),
        before=before.about,
        after=after.about,
        allow=allow,
        models=tuple(done[each.name] for each in subjects if each.name in done),
        resumed=resumed,
        unchecked=unchecked,
        skipped=skipped,
        findings=findings,
        seconds=time.monotonic() - started,
    )


def _subjects(
    fleet: Path, profile: str | Path, pattern: str
) -> tuple[list[Subject], tuple[SkippedFile, ...]]:
    """What is compared: models of a folder, or cells of a fleet's file; and what is left out."""
    if not fleet.is_file():
        chosen = with_larger_fixtures(load_profile(profile))
        found, skipped = find_models(fleet, pattern)
        return [
            Subject(
                name=each.name,
                stated=str(each.path),
                source=each.path.absolute(),
                profile=chosen,
            )
            for each in found
        ], skipped
    file = read_fleet(fleet).only([pattern] if pattern != "*" else [])
    left_out = [SkippedFile(path=cell.name, reason=reason) for cell, reason in file.excluded]
    subjects: list[Subject] = []
    for task in file.tasks:
        if os.path.lexists(task.source):
            subjects.append(_cell(task))
        else:
            left_out.append(SkippedFile(path=task.cell.name, reason="its source is no file"))
    if not subjects:
        raise AotcError(
            "AOTC-I166", "no cell of the fleet has a file as its source", where=str(fleet)
        )
    return subjects, tuple(left_out)


def _limits(subjects: Sequence[Subject], seconds: float, jobs: int) -> WorkerLimits:
    """Of the processes of all models: the widest, as each build keeps its own inside."""
    stated = [each.profile.limits for each in subjects]
    return WorkerLimits(
        seconds=seconds,
        memory_bytes=max(each.memory_bytes for each in stated),
        processes=max(each.processes for each in stated),
        parallel=min(jobs + 1, 64),
    )


def _cell(task: Task) -> Subject:
    """A cell of a fleet's file, with what its rows state."""
    settings = task.settings
    options: dict[str, Json] = {
        "target": None if task.target == HOST else task.target,
        "dims": {name: encode(each) for name, each in settings.dims.items()},
        "values": dict(settings.values),
        "precision": settings.precision,
        "random": settings.random,
        "allow_unproven": settings.allow_unproven is True,
        "calibration": str(task.calibration.absolute()) if task.calibration is not None else None,
        "trust_source": task.trust_source,
    }
    return Subject(
        name=task.cell.name,
        stated=task.source,
        source=Path(task.source).absolute(),
        profile=with_larger_fixtures(task.profile),
        options=options,
        fixtures=str(task.fixtures.absolute()) if task.fixtures is not None else None,
        required=task.cell.required,
        seconds=settings.timeout_seconds,
    )


class _Finished:
    """Models that were finished, in a folder of this user's that an interrupted call leaves."""

    def __init__(self, runtimes: Sequence[Runtime], settings: Sequence[float]) -> None:
        """For calls with equal runtimes, settings and sources of aotc."""
        state = state_folder()
        what = [
            [encode(replace(each.about, stated="", reused=False)), each.stamp] for each in runtimes
        ]
        self._digest = canonical_sha256([what, list(settings), source_digest()])
        self._folder = None if state is None else state / "aotc" / "upgrades" / self._digest[:24]

    def find(self, subject: Subject) -> UpgradedModel | None:
        """What was found of a model as it is now."""
        path = self._path(subject)
        if path is None:
            return None
        with suppress(OSError, ParseError):
            found = decode(UpgradedModel, strict_json(read_at_most(path, MAX_JSON_BYTES)))
            return replace(found, source=subject.stated, required=subject.required)
        return None

    @uninterrupted
    def add(self, subject: Subject, found: UpgradedModel) -> None:
        """Keep what was found; where that cannot be written, a later call does it again.

        So it does what was not built, as that may be for lack of time, memory or room.
        """
        refused = found.before.refusal or found.after.refusal
        path = self._path(subject) if refused is None else None
        if path is None:
            return
        with suppress(OSError):
            make_folder(path.parent)
            write_atomically(path, canonical_json(encode(found)))

    def remove(self) -> None:
        """A call that ended begins anew the next time."""
        if self._folder is not None:
            with suppress(OSError):
                erase(self._folder)

    def _path(self, subject: Subject) -> Path | None:
        """Of a model's file here, another for other data; None: nobody knows what is read."""
        task = subject.profile.gates.task
        runs_code = subject.options.get("trust_source") or (task is not None and task.runs_code)
        digest = None if runs_code else model_digest(subject.source)
        if self._folder is None or digest is None:
            return None
        stated = (subject.fixtures, subject.options.get("calibration"), task and task.data)
        libraries = [each.library for each in subject.profile.custom_ops]
        libraries += [each.library for each in subject.profile.plugins.values()]
        try:
            data = [folder_digest(Path(each)) for each in stated if each]
            data += [file_sha256(Path(each)) for each in libraries]
        except (OSError, AotcError):
            return None
        profile = encode(subject.profile)
        what = [subject.name, str(subject.source), digest, profile, dict(subject.options), data]
        return self._folder / f"{canonical_sha256(what)}.json"


@record
class _Built:
    """A model's build in one environment: what it said, and where the artifact is."""

    side: SideBuild
    value: Json = None
    artifact: Path = Path()
    manifest: Manifest | None = None

    def calls(self) -> list[Json]:
        """Its fixtures as calls of `answer_both`."""
        assert self.manifest is not None
        payload = self.artifact / PAYLOAD
        return [
            {
                "name": fixture.name,
                "sizes": dict(fixture.sizes),
                "inputs": {each.name: str(payload / each.path) for each in fixture.inputs},
                "outputs": {each.name: str(payload / each.path) for each in fixture.outputs},
                "golden": True,
                "excluded": list(fixture.excluded_variants),
            }
            for fixture in self.manifest.fixtures
        ]


@record(kw_only=False, frozen=False)
class _Comparison:
    """Compares models one after the other, or several at a time; timing waits for builds."""

    runtimes: tuple[Runtime, Runtime]
    key: str
    pem: str
    work: Path
    limits: WorkerLimits
    allow: float
    measure_seconds: float

    def compare_all(
        self, subjects: Sequence[Subject], jobs: int, reporter: Reporter
    ) -> Generator[tuple[Subject, UpgradedModel], None, None]:
        """What became of each model, as soon as it is known.

        Models are built in groups of `jobs`; then those of the group are timed, one at a time.
        """
        reporter.begin_items("upgrade", len(subjects), "models")
        count = 0
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(jobs))
            turns = stack.enter_context(ThreadPoolExecutor(2))
            sandboxes = [
                stack.enter_context(Sandbox(self.limits, each.python)) for each in self.runtimes
            ]
            for at in range(0, len(subjects), jobs):
                group = subjects[at : at + jobs]
                running: dict[Future[tuple[UpgradedModel, _Timed | None]], Subject] = {}
                for number, subject in enumerate(group, at):
                    reporter.note(f"{number + 1}/{len(subjects)} {subject.name}")
                    running[pool.submit(self._judged, subject, number, sandboxes)] = subject
                ended = []
                while running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        ended.append((running.pop(future), *future.result()))
                for subject, found, timed in ended:
                    if timed is not None and self.measure_seconds:
                        latency = self._latency(timed, sandboxes, turns)
                        found = replace(found, latency=latency)
                        if latency.ratio is None:
                            missing = (*found.answers.not_compared, f"latency: {latency.reason}")
                            answers = replace(found.answers, not_compared=missing)
                            found = replace(found, answers=answers)
                        if found.outcome == "same" and latency.verdict in ("slower", "faster"):
                            found = replace(found, outcome=latency.verdict)
                    if timed is not None:
                        shutil.rmtree(timed.folder, ignore_errors=True)
                    count += 1
                    reporter.count(count, len(subjects), "models")
                    reporter.finished(subject.name, found.seconds)
                    yield subject, found
        reporter.end()

    def _judged(
        self, subject: Subject, number: int, sandboxes: Sequence[Sandbox]
    ) -> tuple[UpgradedModel, _Timed | None]:
        """Both builds and the answers; and what is to be timed, in a folder that stays."""
        started = time.monotonic()
        folder = self.work / str(number)
        folder.mkdir()
        timed = None
        try:
            before, after = (
                self._built(subject, folder / name, sandbox)
                for name, sandbox in zip((BEFORE, AFTER), sandboxes, strict=True)
            )
            outcome = _outcome(before.side, after.side)
            answers = AnswersCompared()
            if outcome == "same":
                built = before, after
                custom_ops = _custom_ops(subject, folder)
                answers, refusal = self._answers(subject, built, folder, sandboxes, custom_ops)
                if refusal is not None:
                    outcome = "fails"
                    after = replace(after, side=replace(after.side, refusal=refusal))
                elif answers.original or answers.artifact or answers.earlier_answers:
                    outcome = "different-answers"
                if refusal is None:
                    timed = self._timed(subject, built, folder, custom_ops)
        finally:
            if timed is None:
                shutil.rmtree(folder, ignore_errors=True)
        return UpgradedModel(
            model=subject.name,
            source=subject.stated,
            outcome=outcome,
            before=before.side,
            after=after.side,
            answers=answers,
            latency=_not_judged("" if self.measure_seconds else "latencies were not asked for"),
            required=subject.required,
            seconds=time.monotonic() - started,
        ), timed

    def _built(self, subject: Subject, folder: Path, sandbox: Sandbox) -> _Built:
        artifact = folder / f"{subject.source.stem}.aotc"
        request: Json = {
            "profile": encode(subject.profile, full=True),
            "cache": False,
            "key": self.key,
            "model": str(subject.source),
            "name": subject.name,
            "artifact": str(artifact),
            "fixtures": subject.fixtures,
            "options": dict(subject.options),
        }
        try:
            folder.mkdir()
            result = sandbox.run(
                "aotc.tools.model_sandbox:build_model",
                request,
                folder=folder / "build",
                where=subject.source.name,
                seconds=subject.seconds,
            )
            text = (artifact / MANIFEST).read_bytes()
        except (OSError, AotcError) as error:
            refusal = error if isinstance(error, AotcError) else failures.refusal_of(error)
            if refusal.code == _FULL:
                # Of this machine, and true of all models that are left.
                raise refusal from None
            return _Built(side=_refused(refusal, folder))
        manifest = decode(Manifest, strict_json(text))
        side = SideBuild(
            outcome="built",
            verdict=result.value["verdict"],
            findings=tuple(result.value["findings"]),
            artifact_id=canonical_sha256(strict_json(text)),
            payload_bytes=sum(each.size for each in manifest.files if each.role != "fixture"),
            seconds=result.seconds,
        )
        return _Built(side=side, value=result.value, artifact=artifact, manifest=manifest)

    # Answers.

    def _answers(
        self,
        subject: Subject,
        built: tuple[_Built, _Built],
        folder: Path,
        sandboxes: Sequence[Sandbox],
        custom_ops: Sequence[Path],
    ) -> tuple[AnswersCompared, Refusal | None]:
        """What originals and artifacts answer to the inputs of the build before.

        And why the new artifact does not answer what the one before does.
        """
        before, after = built
        then = decode(ModelAnswers, before.value["original"])
        now = decode(ModelAnswers, after.value["original"])
        tolerance = decode(Tolerance, after.value["tolerance"])
        found = AnswersCompared(
            tolerance=tolerance, identical=_digests(then) == _digests(now) and bool(then.calls)
        )
        reasons: list[str] = []
        refusal: Refusal | None = None
        drawn = _drawn(before.manifest)
        try:
            compared = self._originals(subject, built, then, folder, sandboxes[1], custom_ops)
            original = tuple(e for e in compared.changed if e.error.output not in drawn)
            if len(original) < len(compared.changed):
                named = sorted({each.error.output for each in compared.changed} & drawn)
                reasons.append(f"random numbers, drawn without a seed of the model: {named}")
            reasons += compared.reasons
            found = replace(found, calls=compared.calls, original=original)
            if original:
                blamed = self._blamed(
                    subject, before, original[0].call, tolerance, folder, sandboxes, custom_ops
                )
                found = replace(found, blamed=blamed)
        except (AotcError, OSError) as error:
            reasons.append(_line(error))
        for name, each in zip((BEFORE, AFTER), built, strict=True):
            # Both with the new version, and judged by what the original answered before.
            staged = self._staged(each, subject, custom_ops)
            ran = self._against(staged, before, tolerance, folder / f"{name}-again", sandboxes[1])
            changed = _out_of_tolerance(subject.name, ran.golden, drawn)
            reason = ran.reason.removeprefix(_NOT_HERE) if ran.how == "none" else ""
            left_out = [each.replace(": B refuses it", " is refused") for each in ran.left_out]
            if name == BEFORE:
                refused = "; ".join(left_out) or reason
                found = replace(found, earlier_artifact=refused, earlier_answers=changed)
                continue
            found = replace(found, artifact=changed)
            reasons += [f"the artifact: {why}" for why in left_out or [reason] if why]
            if ran.left_out or ran.reason.startswith(_NOT_HERE):
                # Where the one before cannot be run either, nothing is worse.
                staged = self._staged(before, subject, custom_ops)
                then_ran = self._against(
                    staged, before, tolerance, folder / "then-again", sandboxes[0]
                )
                answered = {each.fixture for each in ran.golden}
                if any(each.fixture not in answered for each in then_ran.golden):
                    refusal = _not_answering("; ".join(left_out) or reason)
        return replace(found, not_compared=tuple(dict.fromkeys(reasons))), refusal

    def _originals(
        self,
        subject: Subject,
        built: tuple[_Built, _Built],
        then: ModelAnswers,
        folder: Path,
        sandbox: Sandbox,
        custom_ops: Sequence[Path],
    ) -> Compared:
        """What the original answered before is kept, and compared as kept answers are."""
        before, after = built
        kept = KeptFolder(folder / "kept", [subject.name])
        kept.add(then, before.value["files"])
        kept.write()
        request: Json = {
            "before": encode(kept.answers_of(subject.name), full=True),
            "now": after.value["original"],
            "tolerance": after.value["tolerance"],
            "files": after.value["files"],
            "values": str(kept.folder / VALUES),
            "model": str(subject.source),
        }
        found = sandbox.run(
            "aotc.tools.kept_answers:compare_job",
            request,
            folder=folder / "originals",
            where=subject.source.name,
            custom_ops=custom_ops,
        )
        return decode(Compared, found.value)

    def _against(
        self, staged: Json, before: _Built, tolerance: Tolerance, folder: Path, sandbox: Sandbox
    ) -> SameCalls:
        """An artifact on the inputs of the build before, and what the original answered then.

        A crash is why it cannot be run.
        """
        request: Json = {
            "a": None,
            "b": staged,
            "calls": before.calls(),
            "strict": False,
            "of_originals": encode(tolerance),
        }
        job = "aotc.runtime.rehearsal_jobs:answer_both"
        try:
            found = sandbox.run(job, request, folder=folder, where="the answers")
        except AotcError as error:
            return SameCalls(how="none", reason=f"{_NOT_HERE}{error.line()}")
        return decode(SameCalls, found.value)

    def _blamed(
        self,
        subject: Subject,
        before: _Built,
        call: str,
        tolerance: Tolerance,
        folder: Path,
        sandboxes: Sequence[Sandbox],
        custom_ops: Sequence[Path],
    ) -> BlamedNode | None:
        """The node that first computes otherwise; None where that is not found."""
        inputs = next((each["inputs"] for each in before.calls() if each["name"] == call), None)
        if inputs is None:
            return None
        request: Json = {"model": str(subject.source), "inputs": inputs}
        try:
            kept = sandboxes[0].run(
                f"{_JOBS}:keep_values",
                request,
                folder=folder / "values",
                where=subject.source.name,
                custom_ops=custom_ops,
            )
            found = sandboxes[1].run(
                f"{_JOBS}:blame",
                {**request, "kept": kept.value, "tolerance": encode(tolerance)},
                folder=folder / "blame",
                where=subject.source.name,
                custom_ops=custom_ops,
            )
        except AotcError:
            # Some models run only with what ONNX Runtime fuses.
            return None
        return None if found.value is None else decode(BlamedNode, found.value)

    def _staged(self, built: _Built, subject: Subject, custom_ops: Sequence[Path]) -> Json:
        key = {"pem": self.pem, "origin": "the key of this comparison", "development": False}
        return {
            "staged": {
                "artifact": str(built.artifact),
                "keys": [key],
                "libraries": {e.provider: e.library for e in subject.profile.plugins.values()},
                "custom_ops": [str(path) for path in custom_ops],
            }
        }

    # Latencies.

    def _timed(
        self,
        subject: Subject,
        built: tuple[_Built, _Built],
        folder: Path,
        custom_ops: Sequence[Path],
    ) -> _Timed | None:
        calls = built[0].calls()
        if not calls:
            return None
        return _Timed(
            folder=folder,
            name=subject.source.name,
            inputs=calls[0]["inputs"],
            staged=tuple(self._staged(each, subject, custom_ops)["staged"] for each in built),
        )

    def _latency(
        self, timed: _Timed, sandboxes: Sequence[Sandbox], pool: ThreadPoolExecutor
    ) -> LatencyCompared:
        """Judged by one pair of processes; what looks slower or faster, by all of three."""
        found: list[Interval] = []
        verdict: LatencyVerdict = "not-judged"
        try:
            for number in range(_PAIRS):
                interval = self._pair(timed, number, sandboxes, pool)
                found.append(interval)
                before, verdict = verdict, judged(interval, self.allow)
                if number and verdict != before:
                    reason = "pairs of processes do not agree"
                    return _latency_of(found, "not-judged", reason)
                if verdict in ("same", "not-judged"):
                    break
        except (AotcError, OSError) as error:
            return _not_judged(_line(error))
        reason = "" if verdict != "not-judged" else "the interval holds ratios beyond the bound"
        if found[0].rounds < MIN_ROUNDS:
            reason = f"{found[0].rounds} rounds, and an interval needs {MIN_ROUNDS}"
        return _latency_of(found, verdict, reason)

    def _pair(
        self, timed: _Timed, number: int, sandboxes: Sequence[Sandbox], pool: ThreadPoolExecutor
    ) -> Interval:
        """The ratio new by earlier of a new pair of processes, which call by turns."""
        generator = random.Random(_SEED + number)  # noqa: S311
        with ExitStack() as stack:
            callers = [
                stack.enter_context(
                    _Caller(sandbox, timed, staged, timed.folder / f"{name}-{number}", pool)
                )
                for name, sandbox, staged in zip(
                    (BEFORE, AFTER), sandboxes, timed.staged, strict=True
                )
            ]
            plan = Plan(runs=_RUNS, seconds=self.measure_seconds)
            sizes = block_sizes(plan, sum(each.pilot() for each in callers))
            blocks: list[list[list[float]]] = [[], []]
            began = time.perf_counter()
            for done, count in enumerate(sizes):
                spent = time.perf_counter() - began
                most = self.measure_seconds * (1 if done >= MIN_ROUNDS else _LONGEST)
                if done and spent > most:
                    break
                for side in generator.sample((0, 1), 2):
                    blocks[side].append(callers[side].call(count))
            return paired_interval(blocks[1], blocks[0])


@record
class _Timed:
    """What is called by turns: both artifacts, and the inputs of the first fixture."""

    folder: Path
    name: str
    inputs: Mapping[str, str]
    staged: tuple[Json, ...]


class _Caller:
    """One of two processes that call by turns; use with `with`, which ends it."""

    def __init__(
        self, sandbox: Sandbox, timed: _Timed, staged: Json, folder: Path, pool: ThreadPoolExecutor
    ) -> None:
        folder.mkdir()
        self._listener = socket.socket(socket.AF_UNIX)
        # The path of a socket may have about a hundred bytes.
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._listener.bind(f"/proc/self/fd/{at}/{TURNS}")
        finally:
            os.close(at)
        self._listener.listen(1)
        self._listener.settimeout(_POLL_SECONDS)
        self._job = pool.submit(
            sandbox.run,
            f"{_JOBS}:call_by_turns",
            {"staged": staged, "inputs": dict(timed.inputs)},
            folder=folder,
            where=timed.name,
        )
        self._lines: Any = None
        self._connection: socket.socket | None = None

    def __enter__(self) -> _Caller:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._lines, self._connection, self._listener):
            if each is not None:
                with suppress(OSError):
                    each.close()
        # It ends with its connection; what it says then is of no interest.
        self._job.exception()

    def pilot(self) -> float:
        """Seconds of a warm call; raises what the job does."""
        while self._connection is None:
            try:
                self._connection, _ = self._listener.accept()
            except TimeoutError:
                if self._job.done():
                    self._job.result()
                    raise AotcError("AOTC-R999", "a process ended before its first call") from None
        # A job that is run once more, as its server ended, would wait for turns for ever.
        self._listener.close()
        self._connection.settimeout(None)
        self._lines = self._connection.makefile("rwb")
        return float(self._read())

    def call(self, count: int) -> list[float]:
        """The seconds of so many calls; raises what the job does."""
        try:
            self._lines.write(f"{count}\n".encode())
            self._lines.flush()
        except ConnectionError:
            self._job.result()
            raise
        found: list[float] = self._read()
        return found

    def _read(self) -> Any:
        try:
            line = self._lines.readline()
        except ConnectionError:
            line = b""
        if not line:
            self._job.result()
            raise AotcError("AOTC-R999", "a process ended between calls")
        return json.loads(line)


def judged(interval: Interval, allow: float) -> LatencyVerdict:
    """What an interval of the ratio new by earlier says, which may be 1 / `allow` to `allow`."""
    if interval.rounds < MIN_ROUNDS:
        return "not-judged"
    if interval.lower > allow:
        return "slower"
    if interval.upper < 1 / allow:
        return "faster"
    return "same" if interval.lower >= 1 / allow and interval.upper <= allow else "not-judged"


def _latency_of(found: Sequence[Interval], verdict: LatencyVerdict, reason: str) -> LatencyCompared:
    """The pair in the middle stands for all, with the outermost ends of all intervals."""
    middle = sorted(found, key=lambda each: each.ratio)[len(found) // 2]
    return LatencyCompared(
        verdict=verdict,
        reason=reason,
        ratio=middle.ratio,
        lower=min(each.lower for each in found),
        upper=max(each.upper for each in found),
        rounds=middle.rounds,
        pairs=len(found),
    )


def _not_judged(reason: str) -> LatencyCompared:
    return LatencyCompared(verdict="not-judged", reason=reason)


def _custom_ops(subject: Subject, folder: Path) -> tuple[Path, ...]:
    """Copies of the libraries of operators that a profile names."""
    host = probe(gpus=False)
    staged = stage_custom_ops(subject.profile, host, host, folder / "custom_ops")
    return tuple(each.file for each in staged)


def _outcome(before: SideBuild, after: SideBuild) -> UpgradeOutcome:
    if after.refusal is not None:
        return "fails" if before.refusal is None else "fails-in-both"
    return "same" if before.refusal is None else "builds-now"


def _refused(error: AotcError, folder: Path) -> SideBuild:
    """A build that was refused; texts without the name of the temporary folder."""

    def text(value: str) -> str:
        return value.replace(f"{folder}/", "")

    refusal = Refusal(
        code=error.code,
        what=text(error.what),
        where=text(error.where),
        expected=text(error.expected),
        found=text(error.found),
        fix=error.fix,
    )
    return SideBuild(outcome=outcome_of(error.code), refusal=refusal)


def _not_answering(said: str) -> Refusal:
    """A new artifact that was built, and is refused what the one before answers."""
    named = re.search(r"AOTC-[A-Z]\d{3}", said)
    code = named[0] if named is not None else "AOTC-R005"
    what = "the artifact does not answer what the one before does"
    return Refusal(code=code, what=what, found=said[:500], fix=REASONS[code].fix)


def _digests(answers: ModelAnswers) -> list[tuple[str, str, str]]:
    return [
        (call.name, value.name, value.sha256)
        for call in answers.calls
        for value in (*call.inputs, *call.outputs)
    ]


def _drawn(manifest: Manifest | None) -> frozenset[str]:
    """Outputs that depend on random numbers for which the model has no seed.

    Both builds gave the same; a release may still draw otherwise.
    """
    known = manifest.random if manifest is not None else None
    nodes = known.nodes if known is not None else ()
    return frozenset(name for node in nodes if node.given for name in node.outputs)


def _out_of_tolerance(
    model: str, calls: Iterable[Comparison], drawn: frozenset[str]
) -> tuple[ChangedAnswer, ...]:
    """Of each output the call that is worst, where it did not pass."""
    worst: dict[str, ChangedAnswer] = {}
    for call in calls:
        for error in call.outputs:
            known = worst.get(error.output)
            if error.passed or error.output in drawn:
                continue
            if known is None or known.error.max_abs < error.max_abs:
                worst[error.output] = ChangedAnswer(model=model, call=call.fixture, error=error)
    return tuple(worst.values())


def _line(error: AotcError | OSError) -> str:
    return error.line() if isinstance(error, AotcError) else failures.system_message(error)
