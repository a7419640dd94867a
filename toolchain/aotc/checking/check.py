"""Every model below a folder, built in a sandbox and compared: what became of each."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from aotc.checking import outcomes
from aotc.checking.found_models import FoundModel, find_models, matches, user_of
from aotc.checking.sandbox import Sandbox
from aotc.contract.builtin import load_profile, with_plugin_paths
from aotc.contract.codec.parsing import Json, encode
from aotc.contract.profile import Profile, WorkerLimits
from aotc.contract.results.model_checks import (
    CheckModelsReport,
    ModelCheck,
    SkippedFile,
    ToolVersions,
)
from aotc.contract.versions import VERSION
from aotc.engine.session import import_onnxruntime
from aotc.errors import AotcError, missing_package
from aotc.files import failures
from aotc.files.work_folders import temporary_folder
from aotc.host.probe import probe
from aotc.inspection.offered_providers import capabilities
from aotc.records import record, replace
from aotc.signing import provenance
from aotc.signing.keys import key_files
from aotc.stages.clock import Progress

SECONDS: Final = 1800.0
_TRIES, _PAUSE = 100, 0.05


def check_models(
    folder: str | Path,
    *,
    profile: str | Path | Profile = "edge",
    jobs: int = 1,
    seconds: float = SECONDS,
    pattern: str = "*",
    fixtures: bool = False,
    cache: bool = False,
    against: str | Path | None = None,
    progress: Progress | None = None,
) -> CheckModelsReport:
    """Build every ONNX model below `folder`, and tell what became of each.

    `jobs` models are built side by side, each in a process of its own and a temporary folder, for
    `seconds` at most, by the clock.  Where `test_data_set_N` lies beside a model, the artifact runs
    it; with `fixtures` the build gets it too.  With `cache` builds come from the user's cache, and
    go there.  `pattern` is a glob for names of models, and `against` an earlier document.  No
    model's failure ends the run.  An interrupt does, and gives what is known by then.
    Raises AOTC-I001 (no model, a folder that cannot be read), I019 to I022, I026 and I027.
    """
    started = time.monotonic()
    top = Path(folder)
    before = outcomes.read_answer(Path(against)) if against is not None else None
    chosen = (
        with_plugin_paths(profile, Path())
        if isinstance(profile, Profile)
        else load_profile(profile)
    )
    if before is not None:
        # Those that nobody asks for are not gone.
        asked = tuple(each for each in before.models if matches(each.model, pattern))
        before = replace(before, models=asked)
    found, skipped = find_models(top, pattern)
    versions = _versions()
    limits = replace(chosen.limits, seconds=seconds, parallel=min(jobs, 64))
    request: dict[str, Json] = {"profile": encode(chosen, full=True), "cache": cache}
    checks: dict[str, ModelCheck] = {}
    with _temporary() as work:
        private, public = key_files.generate(work / "key.pem")
        pem = public.read_text("ascii")
        request["key"] = str(private)
        checker = _Checker(request, pem, fixtures, work, limits)
        try:
            with closing(checker.check_all(found, jobs, progress)) as told:
                for check in told:
                    checks[check.model] = check
        except KeyboardInterrupt:
            # What is known is told; the caller sees what is left.
            pass
    unchecked = tuple(each.name for each in found if each.name not in checks)
    kept, more = _without_external_data(found, checks)
    return CheckModelsReport(
        folder=str(folder),
        profile=chosen.name,
        fixtures=fixtures,
        versions=versions,
        host=provenance.describe(probe(gpus=False)),
        summary=outcomes.summary_of(kept),
        models=kept,
        skipped=(*skipped, *more),
        unchecked=unchecked,
        against=(
            outcomes.changes(before, str(against), kept, unchecked) if before is not None else None
        ),
        seconds=time.monotonic() - started,
    )


@record(kw_only=False)
class _Checker:
    """Checks one model after the other, or side by side; `pem` is the public half of the key."""

    request: Json
    pem: str
    fixtures: bool
    work: Path
    limits: WorkerLimits

    def check_all(
        self, models: Sequence[FoundModel], jobs: int, progress: Progress | None
    ) -> Generator[ModelCheck, None, None]:
        """Each model's outcome, as soon as it is known."""
        waiting = list(enumerate(models, 1))[::-1]
        running: set[Future[ModelCheck]] = set()
        with ThreadPoolExecutor(jobs) as pool, Sandbox(self.limits) as sandbox:
            while waiting or running:
                while waiting and len(running) < jobs:
                    number, model = waiting.pop()
                    if progress is not None:
                        progress(f"{number}/{len(models)} {model.name}")
                    running.add(pool.submit(self._check, model, number, sandbox))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()

    def _check(self, model: FoundModel, number: int, sandbox: Sandbox) -> ModelCheck:
        """Build one model, and compare its answers; its folder is gone then."""
        started = time.monotonic()
        folder = self.work / str(number)
        folder.mkdir()
        try:
            check = self._outcome(model, folder, sandbox)
        except OSError as error:
            check = _refused(model, failures.refusal_of(error), folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return replace(check, seconds=time.monotonic() - started)

    def _outcome(self, model: FoundModel, folder: Path, sandbox: Sandbox) -> ModelCheck:
        artifact = folder / f"{model.path.stem}.aotc"
        source = str(model.path.absolute())
        request = {
            **self.request,
            "model": source,
            "artifact": str(artifact),
            "fixtures": self._fixtures(model, folder / "fixtures"),
        }
        try:
            built = sandbox.run(
                "aotc.checking.building_job:build_model",
                request,
                folder=folder / "build",
                where=model.path.name,
            ).value
        except AotcError as error:
            return _refused(model, error, folder)
        check = ModelCheck(
            model=model.name,
            outcome="built",
            verdict=built["verdict"],
            findings=tuple(built["findings"]),
        )
        if not model.data:
            return check
        data = [str(each.absolute()) for each in model.data]
        key = {"pem": self.pem, "origin": "the key of this check", "development": False}
        request = {"artifact": str(artifact), "key": key, "model": source, "data": data}
        try:
            found = sandbox.run(
                "aotc.checking.comparing:compare_answers",
                request,
                folder=folder / "answers",
                where=model.path.name,
            ).value
        except AotcError as error:
            found = {"answers": "refused", **error.to_dict()}
        return replace(
            check,
            answers=found["answers"],
            code=found.get("code", ""),
            compared=len(data),
            **_said(found, folder),
        )

    def _fixtures(self, model: FoundModel, folder: Path) -> str | None:
        """A folder of the model's test data for its build; None where there is none to give."""
        if not self.fixtures:
            return None
        for each in model.data:
            for file in sorted(each.glob("input_*.pb")):
                (folder / each.name).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, folder / each.name / file.name)
        return str(folder) if folder.is_dir() else None


def _refused(model: FoundModel, error: AotcError, folder: Path) -> ModelCheck:
    """What became of a model that was not built."""
    return ModelCheck(
        model=model.name,
        outcome=outcomes.outcome_of(error.code),
        code=error.code,
        **_said(error.to_dict(), folder),
    )


def _said(error: Json, folder: Path) -> dict[str, Any]:
    """What a refusal says, without the name of the folder that was there for a while."""
    names = ("what", "where", "expected", "found")
    return {name: error.get(name, "").replace(f"{folder}/", "") for name in names}


def _without_external_data(
    found: Sequence[FoundModel], checks: dict[str, ModelCheck]
) -> tuple[tuple[ModelCheck, ...], tuple[SkippedFile, ...]]:
    """Outcomes of models; and files that are none, and of which a model beside them speaks."""
    kept: list[ModelCheck] = []
    skipped: list[SkippedFile] = []
    for model in found:
        check = checks.get(model.name)
        if check is None:
            continue
        user = user_of(model.path) if check.code == "AOTC-I002" else ""
        if user:
            skipped.append(SkippedFile(path=model.name, why=f"external data of {user}"))
        else:
            kept.append(check)
    return tuple(kept), tuple(skipped)


def _versions() -> ToolVersions:
    """Of what builds here; raises AOTC-I019 and I020."""
    runtime = import_onnxruntime()
    try:
        onnx, numpy = metadata.version("onnx"), metadata.version("numpy")
    except metadata.PackageNotFoundError as error:
        lacking = ModuleNotFoundError(name=error.name)
        raise missing_package(lacking, "'aotc check-models'") from None
    return ToolVersions(
        aotc=VERSION,
        python=platform.python_version(),
        onnx=onnx,
        onnxruntime=runtime.__version__,
        numpy=numpy,
        providers={each.name: each.version for each in capabilities() if each.available},
    )


@contextmanager
def _temporary() -> Iterator[Path]:
    """A folder for everything that is built, gone at the end; raises AOTC-I018 and I026."""
    with temporary_folder("check") as folder:
        try:
            yield folder
        finally:
            # What an interrupt ends may write for a moment yet.
            for _ in range(_TRIES):
                shutil.rmtree(folder, ignore_errors=True)
                if not folder.exists():
                    break
                time.sleep(_PAUSE)
