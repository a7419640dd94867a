"""Checks every model below a folder: built in a sandbox, answers compared, outcomes reported."""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files import failures
from aotc.base.files.reading import require_model_file
from aotc.base.files.work_folders import temporary_folder
from aotc.base.progress import Progress, Reporter
from aotc.base.records import replace
from aotc.fleet.building import LOCAL, executor_of
from aotc.fleet.cell_jobs import with_shipped
from aotc.fleet.checked_models import CHECK, refused_check
from aotc.fleet.executors.base import Executor, Job, JobOutcome
from aotc.fleet.planning import source_of
from aotc.graph.model import model_bytes, read_model, refuse_junk
from aotc.host.probe import probe
from aotc.pipeline.custom_ops import stage_custom_ops
from aotc.spec.answers import ModelAnswers
from aotc.spec.codec import Json, decode, encode
from aotc.spec.command_reports import CheckModelsReport, ModelCheck, SkippedFile
from aotc.spec.profile import FixtureSpec, Profile, WorkerLimits
from aotc.spec.profile_files import load_profile, with_absolute_paths
from aotc.tools import check_outcomes
from aotc.tools.doctor import tool_versions
from aotc.tools.found_models import FoundModel, find_models, matches, model_referring_to
from aotc.tools.kept_answers import (
    MAX_MODEL_BYTES,
    VALUES,
    AnswersSoFar,
    Compared,
    Earlier,
    KeptFolder,
    is_kept_folder,
    other_model,
    read_kept,
    require_intact,
    require_seed,
)
from aotc.tools.model_sandbox import Sandbox
from aotc.trust import key_files, provenance

# Of the folder of all builds, at its end.
_MAX_REMOVALS, _PAUSE_SECONDS = 100, 0.05
# Of one model, at different sizes.
_KEPT_CALLS: Final = 4
# Of a job: the build, and the comparison of answers.
_STEPS, _MARGIN_SECONDS = 2, 60.0
_PARSED_HERE_BYTES, _COUNTED_HERE_BYTES = 8 << 20, 256 << 20


def check_models(
    folder: str | Path,
    *,
    profile: str | Path | Profile = "edge",
    on: str = LOCAL,
    jobs: int | None = 1,
    seconds: float = 1800.0,
    pattern: str = "*",
    fixtures: bool = False,
    cache: bool = False,
    against: str | Path | None = None,
    keep_answers: str | Path | None = None,
    renew_answers: bool = False,
    progress: Progress | None = None,
) -> CheckModelsReport:
    """Build every ONNX model below `folder`, and report the outcome of each.

    Up to `jobs` models (None: as many as there is room for) are built at a time by the executor
    `on`, `NAME` or `NAME://ADDRESS`, each in its own process and temporary folder, for at most
    `seconds` of wall time.  If there is a folder `test_data_set_N` next to a model, the
    artifact runs it; with `fixtures` the build also gets it.  With `cache`, builds use the user's
    cache.  `pattern` is a glob for names of models.  `against` is the file of an earlier report to
    compare outcomes and answers with, or a folder of kept answers.  `keep_answers` is a folder for
    what the original models answer: models that it has are compared, others are added to it; with
    `renew_answers` it is not compared with, and all are kept anew.  A failing model does not end
    the run; an interrupt does, and the report covers the models until then.  Raises AOTC-I001 (no
    model, or an unreadable folder), I017, I019 to I022, I026, I027, and I090 to I092 for kept
    answers that cannot be used.
    """
    started = time.monotonic()
    top = Path(folder)
    kept_before = Path(against) if against is not None and is_kept_folder(Path(against)) else None
    before = None
    if against is not None and kept_before is None:
        before = check_outcomes.read_report(Path(against))
    chosen = (
        with_absolute_paths(profile, Path())
        if isinstance(profile, Profile)
        else load_profile(profile)
    )
    if before is not None:
        # Models that the pattern excludes do not count as gone.
        matching = tuple(check for check in before.models if matches(check.model, pattern))
        before = replace(before, models=matching)
    found, skipped = find_models(top, pattern)
    names = [model.name for model in found]
    kept = None
    if keep_answers is not None:
        kept = KeptFolder(Path(keep_answers), names, renew=renew_answers)
    earlier = _earlier(before, str(against), kept_before, kept, names, chosen)
    versions = tool_versions("aotc check-models")
    limits = replace(chosen.limits, seconds=seconds, parallel=1)
    checks: dict[str, ModelCheck] = {}
    with _temporary_folder() as work:
        host = probe(gpus=False)
        staged = stage_custom_ops(chosen, host, host, work / "custom_ops")
        checker = _Checker(
            chosen if cache else with_larger_fixtures(chosen),
            cache=cache,
            fixtures=fixtures,
            limits=limits,
            work=work,
            earlier=earlier,
            kept=kept,
            custom_ops=[library.file for library in staged],
        )
        try:
            with (
                executor_of(on, jobs) as executor,
                closing(checker.check_all(found, executor, progress)) as done_checks,
            ):
                for check in done_checks:
                    checks[check.model] = check
        except KeyboardInterrupt:
            # The report has what is known; the caller sees which models are unchecked.
            pass
    if kept is not None:
        kept.write()
    unchecked = tuple(model.name for model in found if model.name not in checks)
    models, not_models = _split_external_data(found, checks)
    return CheckModelsReport(
        folder=str(folder),
        profile=chosen.name,
        fixtures=fixtures,
        versions=versions,
        host=provenance.describe_host(probe(gpus=False)),
        summary=check_outcomes.summary_of(models),
        models=models,
        skipped=(*skipped, *not_models),
        unchecked=unchecked,
        against=(
            check_outcomes.changes(before, str(against), models, unchecked)
            if before is not None
            else None
        ),
        answers=checker.answers.report(models, earlier, kept),
        seconds=time.monotonic() - started,
    )


def with_larger_fixtures(profile: Profile) -> Profile:
    """The profile with room for the answers that are kept, unless it limits the artifact's size."""
    if profile.budgets.artifact_bytes is not None:
        return profile
    given = profile.fixtures
    room = FixtureSpec(
        max_count=max(_KEPT_CALLS, given.max_count), max_bytes=max(MAX_MODEL_BYTES, given.max_bytes)
    )
    return replace(profile, fixtures=room)


def _earlier(
    document: CheckModelsReport | None,
    path: str,
    folder: Path | None,
    kept: KeptFolder | None,
    names: Sequence[str],
    profile: Profile,
) -> tuple[Earlier, ...]:
    """What there is to compare with: the folder that answers are added to, another, a document."""
    found = [kept.earlier] if kept is not None and kept.earlier.models else []
    if folder is not None and (kept is None or folder != kept.folder):
        found.append(Earlier(path=path, models=read_kept(folder, names), values=folder / VALUES))
    if document is not None:
        answered = [check.original for check in document.models if check.original is not None]
        for each in answered:
            require_intact(each, path)
        found.append(Earlier(path=path, models={each.model: each for each in answered}))
    for source in found:
        judged = [source.models[name] for name in names if name in source.models]
        require_seed(judged, profile.parity.seed, source.path)
    return tuple(found)


class _Checker:
    """Has models checked by an executor; `pem` is the public half of the key in the file `key`.

    `custom_ops` are copies of the profile's libraries of operators.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        cache: bool,
        fixtures: bool,
        limits: WorkerLimits,
        work: Path,
        earlier: Sequence[Earlier],
        kept: KeptFolder | None,
        custom_ops: Sequence[Path],
    ) -> None:
        self.work, self.limits, self.earlier, self.kept = work, limits, earlier, kept
        self.custom_ops = tuple(custom_ops)
        self.answers = AnswersSoFar()
        private, public = key_files.generate(work / "key.pem")
        key = {"pem": public.read_text("ascii"), "origin": "the key of this check"}
        self._files = {f"key/{private.name}": private}

        def shipped(place: str, path: str) -> str:
            name = f"{place}/{Path(path).name}"
            self._files[name] = Path(path)
            return f"{{file:{name}}}"

        self._request: Mapping[str, Json] = {
            "profile": encode(with_shipped(profile, shipped), full=True),
            "cache": cache,
            "key": f"{{file:key/{private.name}}}",
            "keys": [{**key, "development": False}],
            "custom_ops": [
                shipped(f"operators-{number}", str(path))
                for number, path in enumerate(self.custom_ops)
            ],
            "limits": encode(limits, full=True),
            "fixtures": fixtures,
            "answers": bool(self.earlier) or kept is not None,
        }

    def check_all(
        self, models: Sequence[FoundModel], executor: Executor, progress: Progress | None
    ) -> Generator[ModelCheck, None, None]:
        """Each model's outcome, as soon as it is known."""
        reporter = Reporter(progress)
        reporter.begin_items("check", len(models), "models")
        jobs: dict[str, tuple[FoundModel, Job]] = {}
        checked = 0
        for number, model in enumerate(models, 1):
            step = f"{number}/{len(models)} {model.name}"
            refused = self._refused_here(model)
            if refused is None:
                jobs[step] = (model, self._job(step, model))
                continue
            checked += 1
            reporter.note(step)
            reporter.finished(step, 0.0)
            yield refused
        reporter.count(checked, len(models), "models")
        executor.begun = lambda job: reporter.note(job.name)

        def told(name: str, line: str) -> None:
            # What models write is not shown; what becomes of workers is.
            if name not in jobs:
                reporter.note(f"{name}: {line}")

        with (
            # For comparisons with earlier answers, which lie here.
            Sandbox(self.limits) if self.earlier else nullcontext() as sandbox,
            closing(executor.run([job for _, job in jobs.values()], told)) as outcomes,
        ):
            for outcome in outcomes:
                model = jobs[outcome.job.name][0]
                folder = self.work / str(checked)
                folder.mkdir()
                try:
                    check = self._check(model, outcome, folder, sandbox)
                except OSError as error:
                    check = _refused(model, failures.refusal_of(error), folder)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                checked += 1
                reporter.count(checked, len(models), "models")
                reporter.finished(outcome.job.name, outcome.seconds)
                yield replace(check, seconds=outcome.seconds)
        reporter.end()

    def _refused_here(self, model: FoundModel) -> ModelCheck | None:
        """The outcome of what is no model, which is known without a process of its own."""
        try:
            _refuse_junk(model.path.absolute())
        except AotcError as error:
            return _refused(model, error, self.work)
        except OSError as error:
            return _refused(model, failures.refusal_of(error), self.work)
        return None

    def _job(self, step: str, model: FoundModel) -> Job:
        source, files, _ = source_of(str(model.path.absolute()))
        data = {f"data/{path.name}": path.absolute() for path in model.data}
        return Job(
            name=step,
            function=CHECK,
            request={
                **self._request,
                "model": source,
                "path": str(model.path.absolute()),
                "name": model.name,
                "data": [f"{{file:{name}}}" for name in data],
            },
            files={**self._files, **files, **data},
            # Each step is held to its own limit.
            seconds=_STEPS * self.limits.seconds + _MARGIN_SECONDS,
        )

    def _check(
        self, model: FoundModel, outcome: JobOutcome, folder: Path, sandbox: Sandbox | None
    ) -> ModelCheck:
        """The outcome of a model; its answers are compared with earlier ones, and kept."""
        if outcome.error is not None:
            return _refused(model, outcome.error, folder)
        check = decode(ModelCheck, outcome.value["check"])
        built = outcome.value["built"]
        if built is None:
            return check
        assert outcome.folder is not None
        built["files"] = {sha256: str(outcome.folder / sha256) for sha256 in built["files"]}
        return replace(check, original=self._original(model, built, folder, sandbox))

    def _original(
        self, model: FoundModel, built: Json, folder: Path, sandbox: Sandbox | None
    ) -> ModelAnswers:
        """What the original model answers now; it is compared with earlier answers, and kept."""
        now = decode(ModelAnswers, built["original"])
        for number, before in enumerate(self.earlier):
            if model.name not in before.models:
                continue
            given = before.models[model.name]
            other = other_model(given, now.source, before.path)
            if other is not None:
                self.answers.refused.append(other)
                continue
            request: Json = {
                "before": encode(given, full=True),
                "now": built["original"],
                "tolerance": built["tolerance"],
                "files": built["files"],
                "values": str(before.values.absolute()) if before.values is not None else None,
                "model": str(model.path.absolute()),
            }
            assert sandbox is not None
            try:
                found = sandbox.run(
                    "aotc.tools.kept_answers:compare_job",
                    request,
                    folder=folder / f"kept-{number}",
                    where=model.path.name,
                    custom_ops=self.custom_ops,
                ).value
            except AotcError as error:
                self.answers.skip(model.name, error.line())
            else:
                self.answers.judged(model.name, decode(Compared, found))
        if self.kept is not None and not self.kept.has(model.name):
            self.kept.add(now, built["files"])
        return self.answers.shortened(now)


def _refuse_junk(path: Path) -> None:
    """Raise what the build of a file that is no model would, without a process of its own.

    A large model may take much memory, and is only parsed in a process that is limited.
    """
    require_model_file(path)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise failures.cannot_read(error, "cannot read the model", str(path)) from None
    if size <= _PARSED_HERE_BYTES:
        read_model(path)
    elif size <= _COUNTED_HERE_BYTES:
        refuse_junk(model_bytes(path), path)


def _refused(model: FoundModel, error: AotcError, folder: Path) -> ModelCheck:
    """The outcome of a model that was not built."""
    return refused_check(model.name, error, {f"{folder}/": ""})


def _split_external_data(
    found: Sequence[FoundModel], checks: dict[str, ModelCheck]
) -> tuple[tuple[ModelCheck, ...], tuple[SkippedFile, ...]]:
    """Outcomes of models; and files that are external data of a model in the same folder."""
    models: list[ModelCheck] = []
    skipped: list[SkippedFile] = []
    for model in found:
        check = checks.get(model.name)
        if check is None:
            continue
        user = model_referring_to(model.path) if check.code == "AOTC-I002" else ""
        if user:
            skipped.append(SkippedFile(path=model.name, reason=f"external data of {user}"))
        else:
            models.append(check)
    return tuple(models), tuple(skipped)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder for everything that is built, removed at the end; raises AOTC-I018 and I026."""
    with temporary_folder("check") as folder:
        try:
            yield folder
        finally:
            # A process that an interrupt ends may still write for a moment.
            for _ in range(_MAX_REMOVALS):
                shutil.rmtree(folder, ignore_errors=True)
                if not folder.exists():
                    break
                time.sleep(_PAUSE_SECONDS)
