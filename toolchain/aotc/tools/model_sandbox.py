"""The process from which checked models are built, and in which their answers are compared."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import MANIFEST, PAYLOAD
from aotc.base.records import record
from aotc.pipeline.build import PRELOADED_MODULES, build
from aotc.runtime.answers import original_tolerance
from aotc.runtime.model import Model
from aotc.runtime.rehearsal_jobs import open_staged
from aotc.session.decisions import Judge
from aotc.session.inference import open_original
from aotc.session.parity import compare
from aotc.session.sessions import run
from aotc.session.worker_pool import JobResult, Workers
from aotc.sizes.inputs.fixtures import read_test_data
from aotc.spec.codec import Json, decode, encode
from aotc.spec.command_reports import Answers
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Value
from aotc.spec.precision import ParitySpec
from aotc.spec.profile import Profile, WorkerLimits
from aotc.spec.variant import Parity
from aotc.tools.kept_answers import answers_of
from aotc.trust.compatibility import judge, probe_host

# Imported once, so that the processes of models need not do it.
_IMPORTS: Final = (
    "onnxruntime",
    "aotc.pipeline.build",
    "cyclonedx.contrib.license.factories",
    "cyclonedx.model.bom",
    "cyclonedx.model.tool",
    "cyclonedx.output.json",
    "packageurl",
    "aotc.sizes.analysis",
    "aotc.pipeline.optimize",
    "aotc.pipeline.prove",
    "aotc.runtime.rehearsal_jobs",
    "aotc.tools.model_sandbox",
)


class Sandbox:
    """Runs jobs within `limits`, each in a separate process; use with `with`.

    `python` is the interpreter of another environment.
    """

    def __init__(self, limits: WorkerLimits, python: str | None = None) -> None:
        self._limits = limits
        self._python = python
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Sandbox:
        self._workers = Workers(self._limits, _IMPORTS, python=self._python).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
        self._workers.__exit__(*error)

    def run(
        self,
        job: str,
        request: Json,
        *,
        folder: Path,
        where: str,
        custom_ops: Sequence[Path] = (),
        seconds: float | None = None,
    ) -> JobResult:
        """As `Workers.run`; if all processes went down together, the job is run once more.

        Sessions of the job register the libraries `custom_ops`.  It may take `seconds` (None: as
        the limits say).
        """
        workers = self._workers
        within = self._limits.seconds if seconds is None else seconds
        asked = partial(Workers.run, job=job, request=request, folder=folder, where=where)
        try:
            return asked(workers.registering(custom_ops).within(within))
        except AotcError:
            if not self._renew(workers):
                raise
        return asked(self._workers.registering(custom_ops).within(within))

    def _renew(self, workers: Workers) -> bool:
        """Whether `workers` had ended; then new ones replace them for all threads."""
        if not workers.ended:
            return False
        with self._lock:
            if self._closed:
                return False
            if self._workers is workers:
                workers.__exit__(None, None, None)
                self._workers = Workers(self._limits, _IMPORTS, python=self._python).__enter__()
        return True


# Builds one model in a separate process, as `aotc build` would.


def build_model(request: Json) -> Json:
    """Build the `model` to `artifact`, signed with the key in the file `key`.

    `options` are further arguments of `build`.

    Returns the verdict on this host, the codes of findings, what the original model answered, with
    the files of that by digest, and the tolerance of its answers.  Raises as `build` does.
    """
    profile = decode(Profile, request["profile"])
    artifact = Path(request["artifact"])
    with Workers(profile.limits, PRELOADED_MODULES, forked=True) as workers:
        report = build(
            Path(request["model"]),
            profile=profile,
            output=artifact,
            key=request["key"],
            fixtures=request["fixtures"],
            # Else a model without dims would have no answers that could be kept.
            embed_fixtures=request["fixtures"] is not None,
            cache=request["cache"],
            workers=workers,
            **request.get("options", {}),
        )
    manifest = decode(Manifest, strict_json((artifact / MANIFEST).read_bytes()))
    libraries = {plugin.provider: Path(plugin.library) for plugin in profile.plugins.values()}
    custom_ops = [Path(each.library) for each in profile.custom_ops]
    return {
        "verdict": judge(manifest, probe_host(manifest, libraries, custom_ops)).verdict,
        "findings": sorted({finding.code for finding in report.findings}),
        "original": encode(
            answers_of(artifact, manifest, request["name"], profile.parity.seed), full=True
        ),
        "files": {
            entry.sha256: str(artifact / PAYLOAD / entry.path)
            for entry in manifest.files
            if entry.role == "fixture"
        },
        "tolerance": encode(original_tolerance(manifest, profile.parity)),
    }


# Compares an artifact's answers to test data with the data's outputs, or ONNX Runtime's.


# With several sets of test data, the worst answer counts.
_WORST_LAST: Final[tuple[Answers, ...]] = ("", "as-expected", "as-onnxruntime", "refused", "differ")

Outputs = Mapping[str, Any]


def compare_answers(request: Json) -> Json:
    """Run every set of the `data` with the `artifact`, and if necessary with the `model`.

    `keys` is the one that signed the artifact, and `custom_ops` are the libraries of the build.
    Answers are compared by the tolerance of the artifact's own parity.  Returns `answers`, the
    `code` of a refusal, `what` and `where`.
    """
    try:
        with open_staged({**request, "libraries": {}}, None) as model:
            original = _Original(
                path=Path(request["model"]),
                custom_ops=tuple(Path(path) for path in request["custom_ops"]),
            )
            result = [_compare_set(model, original, Path(set_)) for set_ in request["data"]]
    except AotcError as error:
        return _refused(error, "")
    return max(result, key=lambda answer: _WORST_LAST.index(answer["answers"]))


@record
class _Original:
    """The model that was built, and the libraries of its operators."""

    path: Path
    custom_ops: tuple[Path, ...]


def _compare_set(model: Model, original: _Original, folder: Path) -> dict[str, Json]:
    try:
        inputs = read_test_data(folder, model.inputs)
        expected = _expected_outputs(folder, model.outputs)
    except AotcError as error:
        return _refused(error, folder.name)
    try:
        result = model.run(inputs)
    except AotcError as error:
        refused = _refused(error, folder.name)
        # If the original model does not run the data either, the data is at fault.
        same = error.code == "AOTC-R005" and not _original_runs(original, inputs, model.outputs)
        return {**refused, "code": "", "answers": "as-onnxruntime"} if same else refused
    parity = model.variant.parity
    random = model.manifest.random
    drawing = random.nodes if random is not None else ()
    if expected is not None and not _difference(expected, result, parity):
        return {"answers": "as-expected"}
    # With which numbers outputs of the data were drawn is not known.
    drawn = {name for node in drawing for name in node.outputs}
    expected = {name: v for name, v in (expected or {}).items() if name not in drawn}
    wrong = _difference(expected, result, parity)
    if expected and not wrong:
        return {"answers": "as-expected"}
    unseeded = {name for node in drawing if node.given for name in node.outputs}
    if not wrong and unseeded.issuperset(result):
        what = "all outputs depend on random numbers, for which the model has no seeds"
        return {"answers": "", "what": what, "where": folder.name}
    try:
        other = _run_original(original, inputs, model.outputs)
    except AotcError as error:
        # There are only the outputs in the data to compare with.
        return {
            "answers": "differ" if wrong else "",
            "what": wrong or f"ONNX Runtime does not run the data: {error.found or error.what}",
            "where": folder.name,
        }
    seeded = {name: value for name, value in other.items() if name not in unseeded}
    against = _difference(seeded, result, parity)
    if not against:
        return {"answers": "as-onnxruntime", "what": wrong, "where": folder.name}
    return {"answers": "differ", "what": against, "where": folder.name}


def _expected_outputs(folder: Path, outputs: Sequence[Value]) -> Outputs | None:
    """The outputs in the test data; None if it has none."""
    if not any(folder.glob("output_*.pb")):
        return None
    return read_test_data(folder, outputs, "output")


def _run_original(
    original: _Original, inputs: Mapping[str, Any], outputs: Sequence[Value]
) -> Outputs:
    _, opened = open_original(original.path, custom_ops=original.custom_ops)
    names = [value.name for value in outputs]
    return dict(zip(names, run(opened, inputs, names), strict=True))


def _original_runs(
    original: _Original, inputs: Mapping[str, Any], outputs: Sequence[Value]
) -> bool:
    try:
        _run_original(original, inputs, outputs)
    except AotcError:
        return False
    return True


def _difference(expected: Outputs, result: Outputs, parity: Parity) -> str:
    """How the first differing output differs, in words; "" if none does."""
    tolerance = parity.tolerance or ParitySpec().float32
    for name, value in expected.items():
        stated = parity.decided.get(name)
        judge = Judge(stated) if stated is not None else None
        compared = compare(value, result[name], tolerance, name, decided=judge)
        if not compared.passed:
            return f"{name}: {compared.reason}"
    return ""


def _refused(error: AotcError, where: str) -> dict[str, Json]:
    return {
        "answers": "refused",
        "code": error.code,
        "what": error.what,
        "where": where or error.where,
        "expected": error.expected,
        "found": error.found,
    }
