"""What original models answered is kept, and compared with what they answer now.

A document of `aotc check-models` has a sketch of every answer, and is compared where the inputs are
the same again.  A folder of kept answers has inputs and answers whole, in files by their digest:
where aotc makes other inputs than then, the original model is run on those of the folder.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from aotc.base.codes import REASONS
from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read, cannot_write
from aotc.base.files.folders import PAYLOAD
from aotc.base.files.reading import file_sha256, open_plain, read_at_most
from aotc.base.files.writing import write_atomically
from aotc.base.records import record, replace
from aotc.graph import values
from aotc.session.inference import open_original
from aotc.session.parity import compare
from aotc.session.sessions import run
from aotc.session.sketches import judge_sketch, sketch, unmeasured
from aotc.spec.answers import (
    AnswersCheck,
    ChangedAnswer,
    KeptAnswers,
    KeptCall,
    KeptValue,
    LeftOut,
    ModelAnswers,
)
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.command_reports import ModelCheck
from aotc.spec.evidence import OutputError
from aotc.spec.json import MAX_JSON_BYTES, canonical_json, canonical_sha256, strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.payload import FixtureTensor
from aotc.spec.precision import Tolerance
from aotc.spec.reports import Refusal

INDEX: Final = "answers.json"
VALUES: Final = "values"
# Of files in a folder: of one model, and of all.
MAX_MODEL_BYTES: Final = 64 << 20
MAX_TOTAL_BYTES: Final = 4 << 30
# Of sketches in a document, as JSON: of one model, and of all.
MAX_MODEL_SKETCH: Final = 256 << 10
MAX_TOTAL_SKETCH: Final = 24 << 20
_UNUSABLE: Final = ("AOTC-I091", "AOTC-I092")
_VALUE_FILE: Final = re.compile(r"[0-9a-f]{64}\.(npy|json)", re.ASCII)


# What an artifact's build saw the original model answer.


def answers_of(artifact: Path, manifest: Manifest, model: str, seed: int) -> ModelAnswers:
    """The answers in the fixtures of an artifact that was just built, with their sketches.

    Sketches are left out from where they take more than `MAX_MODEL_SKETCH`.
    """
    payload = artifact / PAYLOAD
    entries = {entry.path: entry for entry in manifest.files}
    taken = 0

    def kept(tensor: FixtureTensor, *, is_output: bool) -> KeptValue:
        nonlocal taken
        value, entry = values.load(payload / tensor.path), entries[tensor.path]
        drawn = sketch(value) if is_output else None
        taken += len(str(drawn)) if drawn is not None else 0
        return KeptValue(
            name=tensor.name,
            value=values.describe(value),
            sha256=entry.sha256,
            bytes=entry.size,
            form="npy" if tensor.path.endswith(".npy") else "json",
            sketch=drawn if taken <= MAX_MODEL_SKETCH else None,
        )

    calls = tuple(
        KeptCall(
            name=fixture.name,
            inputs=tuple(kept(tensor, is_output=False) for tensor in fixture.inputs),
            outputs=tuple(kept(tensor, is_output=True) for tensor in fixture.outputs),
        )
        for fixture in manifest.fixtures
    )
    return with_digest(
        ModelAnswers(
            model=model,
            source=source_digest(manifest),
            seed=seed,
            onnxruntime=manifest.toolchain.onnxruntime,
            calls=calls,
        )
    )


def with_digest(answers: ModelAnswers) -> ModelAnswers:
    """The same with the digest that its fields have."""
    return replace(answers, digest=answers.contents_sha256())


def source_digest(manifest: Manifest) -> str:
    """The sha256 of the model file, or of its own and those of its external data."""
    source = manifest.source
    if not source.external_data:
        return source.sha256
    return canonical_sha256([source.sha256, encode(source.external_data, full=True)])


# A folder of kept answers.


@record
class Earlier:
    """Earlier answers by model, from the document or the folder `path`, which has their files."""

    path: str
    models: Mapping[str, ModelAnswers]
    values: Path | None = None


class KeptFolder:
    """A folder that answers are added to, and what it had: `earlier`; safe for several threads."""

    def __init__(self, folder: Path, names: Sequence[str], *, renew: bool = False) -> None:
        """Read a folder, or begin one; with `renew` it has nothing of the models `names`.

        Raises AOTC-I017 for a folder of something else, I018 and I026, and what `read_kept` does;
        with `renew`, one that cannot be used is begun anew.
        """
        self.folder = folder
        self.kept = 0
        self.left_out: list[LeftOut] = []
        self._lock = Lock()
        self._renew = renew
        before: dict[str, ModelAnswers] = {}
        if _has_answers(folder):
            try:
                before = read_kept(folder, () if renew else names)
            except AotcError as error:
                if not renew or error.code not in _UNUSABLE:
                    raise
        if renew:
            before = {name: each for name, each in before.items() if name not in names}
        self._models = dict(before)
        self.earlier = Earlier(path=str(folder), models=before, values=folder / VALUES)
        self._sizes = {
            value.file: value.bytes
            for answers in before.values()
            for value in _files_of(answers.calls)
        }
        try:
            (folder / VALUES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(error, "answers cannot be kept there", str(folder)) from None

    def has(self, model: str) -> bool:
        """Whether it has answers of a model of this name."""
        return model in self._models

    def answers_of(self, model: str) -> ModelAnswers:
        """The answers of a model, as it has them; raises KeyError."""
        return self._models[model]

    def add(self, answers: ModelAnswers, files: Mapping[str, str]) -> None:
        """Keep the answers of a model, call by call as far as the limits allow; raises OSError.

        `files` are those of their values, by digest.
        """
        with self._lock:
            calls, room = [], MAX_MODEL_BYTES
            for call in answers.calls:
                wanted = {value.file: value for value in (*call.inputs, *call.outputs)}
                new = {name: each for name, each in wanted.items() if name not in self._sizes}
                size = sum(each.bytes for each in new.values())
                fits = size <= min(room, MAX_TOTAL_BYTES - sum(self._sizes.values()))
                if fits:
                    # What is renewed may be damaged.
                    for name, each in (wanted if self._renew else new).items():
                        with (
                            open_plain(files[each.sha256]) as source,
                            (self.folder / VALUES / name).open("wb") as copy,
                        ):
                            shutil.copyfileobj(source, copy)
                        self._sizes[name] = each.bytes
                    room -= size
                else:
                    why = f"fixture {call.name}: {size} bytes are more than is kept"
                    self.left_out.append(LeftOut(model=answers.model, reason=why))
                calls.append(replace(call, in_folder=fits))
            self._models[answers.model] = with_digest(replace(answers, calls=tuple(calls)))
            self.kept += 1

    def write(self) -> None:
        """Write the index; of a folder that was renewed, remove files that it does not name."""
        index = KeptAnswers(models=tuple(self._models[name] for name in sorted(self._models)))
        try:
            write_atomically(self.folder / INDEX, canonical_json(encode(index)))
            if self._renew:
                for file in (self.folder / VALUES).iterdir():
                    if _VALUE_FILE.fullmatch(file.name) and file.name not in self._sizes:
                        file.unlink()
        except OSError as error:
            raise cannot_write(error, "answers cannot be kept", str(self.folder)) from None


def read_kept(folder: Path, names: Iterable[str]) -> dict[str, ModelAnswers]:
    """The answers in a folder by model; of the models `names`, their files were read through.

    Raises AOTC-I001, I091 for damaged files and I092 for an index of another form.
    """
    found = {each.model: each for each in read_index(folder).models}
    for name in names:
        if name in found:
            _require_whole(folder, found[name])
    return found


def _has_answers(folder: Path) -> bool:
    """Whether answers are kept there; raises AOTC-I017 where something else is."""
    try:
        if is_kept_folder(folder):
            return True
        if not folder.is_dir():
            empty = not folder.exists()
        else:
            empty = all(each.name == VALUES for each in folder.iterdir())
    except OSError as error:
        raise cannot_read(error, "the kept answers cannot be read", str(folder)) from None
    if not empty:
        raise AotcError(
            "AOTC-I017",
            "this is not a folder of kept answers, and not empty",
            where=str(folder),
            fix="Name another folder, which need not exist.",
        )
    return False


def is_kept_folder(path: Path) -> bool:
    """Whether a path is that of a folder of kept answers."""
    return (path / INDEX).is_file()


def read_index(folder: Path) -> KeptAnswers:
    """`answers.json` of a folder; raises AOTC-I001, I091 if it is damaged, and I092."""
    file = folder / INDEX
    try:
        data = read_at_most(file, MAX_JSON_BYTES)
    except OSError as error:
        raise cannot_read(error, "the kept answers cannot be read", str(file)) from None
    try:
        found = strict_json(data)
    except ParseError as error:
        raise _damaged(file, str(error.problems[0])) from None
    schema = found.get("schema") if isinstance(found, dict) else None
    try:
        index = decode(KeptAnswers, found)
    except ParseError as error:
        if schema == KeptAnswers().schema:
            raise _damaged(file, str(error.problems[0])) from None
        raise AotcError(
            "AOTC-I092",
            "these answers were kept in another form",
            where=str(file),
            expected=KeptAnswers().schema,
            found=str(schema)[:100],
        ) from None
    for each in index.models:
        require_intact(each, str(file))
    return index


def require_intact(answers: ModelAnswers, where: str) -> None:
    """Raise AOTC-I091 where kept answers are not what their digest says."""
    if answers.contents_sha256() != answers.digest:
        raise _damaged(where, f"the entry of {answers.model} has another digest")


def require_seed(before: Iterable[ModelAnswers], seed: int, where: str) -> None:
    """Raise AOTC-I090 where answers were kept for inputs from another seed."""
    for answers in before:
        if answers.seed != seed:
            raise AotcError(
                "AOTC-I090",
                "the kept answers are to inputs from another seed",
                where=f"{where}: {answers.model}",
                expected=f"parity.seed {answers.seed}, as then",
                found=f"parity.seed {seed}",
            )


def other_model(before: ModelAnswers, source: str, where: str) -> Refusal | None:
    """AOTC-I089 if the kept answers are those of another model of this name."""
    if before.source == source:
        return None
    code = "AOTC-I089"
    return Refusal(
        code=code,
        what="the kept answers are those of another model",
        where=f"{where}: {before.model}",
        expected=f"sha256 {before.source}",
        found=f"sha256 {source}",
        fix=REASONS[code].fix,
    )


def _damaged(where: Path | str, found: str) -> AotcError:
    return AotcError("AOTC-I091", "kept answers are damaged", where=str(where), found=found)


def _files_of(calls: Iterable[KeptCall]) -> list[KeptValue]:
    return [each for call in calls if call.in_folder for each in (*call.inputs, *call.outputs)]


def _require_whole(folder: Path, answers: ModelAnswers) -> None:
    """Raise AOTC-I091 where a file of the answers is missing or has another digest."""
    for each in {value.file: value for value in _files_of(answers.calls)}.values():
        file = folder / VALUES / each.file
        try:
            found = file_sha256(file)
        except OSError as error:
            raise _damaged(file, error.strerror or str(error)) from None
        if found != each.sha256:
            raise _damaged(file, f"sha256 {found}")


# Earlier answers and those of now.


class AnswersSoFar:
    """What was found of the answers of all models, by several threads."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.refused: list[Refusal] = []
        self._compared: set[str] = set()
        self._changed: dict[tuple[str, str], ChangedAnswer] = {}
        self._skipped: list[LeftOut] = []
        self._left_out: list[LeftOut] = []
        self._sketched = 0
        self._lock = Lock()

    def judged(self, model: str, found: Compared) -> None:
        """The answers of a model were compared with one source; the first one tells the most."""
        with self._lock:
            if found.calls:
                self._compared.add(model)
            for each in found.changed:
                self._changed.setdefault((model, each.error.output), each)
        for reason in found.reasons:
            self.skip(model, reason)

    def skip(self, model: str, reason: str) -> None:
        """Some answers of a model were not compared."""
        with self._lock:
            self._skipped.append(LeftOut(model=model, reason=reason))

    def shortened(self, answers: ModelAnswers) -> ModelAnswers:
        """The same for a document, without sketches once there are enough of all models."""
        size = sum(len(str(value.sketch)) for call in answers.calls for value in call.outputs)
        with self._lock:
            if self._sketched + size <= MAX_TOTAL_SKETCH:
                self._sketched += size
                return answers
            why = f"the document has {self._sketched >> 20} MiB of sketches already"
            self._left_out.append(LeftOut(model=answers.model, reason=why))
        calls = tuple(
            replace(call, outputs=tuple(replace(value, sketch=None) for value in call.outputs))
            for call in answers.calls
        )
        return with_digest(replace(answers, calls=calls))

    def report(
        self, checks: Sequence[ModelCheck], earlier: Sequence[Earlier], kept: KeptFolder | None
    ) -> AnswersCheck:
        """All of it, in the order of the models."""
        names = [check.model for check in checks]
        before = [each.models[name] for each in earlier for name in names if name in each.models]
        without = [
            LeftOut(model=check.model, reason="its fixtures are too large, or it has none")
            for check in checks
            if check.original is not None and not check.original.calls
        ]
        return AnswersCheck(
            folder=str(kept.folder) if kept is not None else "",
            kept=kept.kept if kept is not None else 0,
            before=tuple(each.path for each in earlier),
            onnxruntime=tuple(sorted({each.onnxruntime for each in before})),
            compared=len(self._compared),
            changed=tuple(sorted(self._changed.values(), key=lambda each: each.model)),
            refused=tuple(sorted(self.refused, key=lambda each: each.where)),
            not_compared=tuple(sorted(self._skipped, key=lambda each: each.model)),
            not_kept=(*without, *self._left_out, *(kept.left_out if kept is not None else ())),
        )


@record(kw_only=False)
class Compared:
    """What became of the answers of one model: outputs that changed, and why some say nothing."""

    calls: int = 0
    changed: tuple[ChangedAnswer, ...] = ()
    reasons: tuple[str, ...] = ()


def compare_job(request: Json) -> Json:
    """In a worker: `before` of a model and its answers `now`, with the `artifact` of the build.

    Values of `before` are in the folder `values` (None: there are only sketches).  Calls of other
    inputs than now are made again with the original `model`.
    """
    before = decode(ModelAnswers, request["before"])
    now = decode(ModelAnswers, request["now"])
    folder = Path(request["values"]) if request["values"] else None
    found = compared(
        before,
        now,
        decode(Tolerance, request["tolerance"]),
        files={sha256: Path(path) for sha256, path in request["files"].items()},
        values_folder=folder,
        original=Path(request["model"]),
    )
    return encode(found, full=True)


def compared(
    before: ModelAnswers,
    now: ModelAnswers,
    tolerance: Tolerance,
    *,
    files: Mapping[str, Path],
    values_folder: Path | None,
    original: Path,
) -> Compared:
    """Judge every call of `before`; of each output that changed, the call that is worst.

    `files` are those of the answers of now, by digest.
    """
    worst: dict[str, ChangedAnswer] = {}
    reasons: list[str] = []
    judged = 0
    calls = {call.name: call for call in now.calls}
    for call in before.calls:
        here = calls.get(call.name)
        folder = values_folder if call.in_folder else None
        if here is not None and _digests(here.inputs) == _digests(call.inputs):
            answers = {value.name: files[value.sha256] for value in here.outputs}
            found = _judged(call, answers, tolerance, folder)
        elif folder is not None:
            try:
                again = _run_again(call, folder, original)
            except AotcError as error:
                reasons.append(f"fixture {call.name}: {error.line()}")
                continue
            found = _judged(call, again, tolerance, folder)
        else:
            reasons.append(f"fixture {call.name}: other inputs than then")
            continue
        judged += any(error is not None for error in found.values())
        for name, judgement in found.items():
            if judgement is None:
                reasons.append(f"fixture {call.name}, output {name!r}: the document has no sketch")
            elif not judgement.passed:
                each = ChangedAnswer(
                    model=now.model, call=call.name, error=judgement, whole=folder is not None
                )
                known = worst.get(name)
                if known is None or known.error.max_abs < judgement.max_abs:
                    worst[name] = each
    if not before.calls:
        reasons.append("no answer was kept")
    return Compared(calls=judged, changed=tuple(worst.values()), reasons=tuple(reasons))


def _digests(inputs: Iterable[KeptValue]) -> dict[str, str]:
    return {value.name: value.sha256 for value in inputs}


def _judged(
    call: KeptCall,
    now: Mapping[str, Path | values.Data],
    tolerance: Tolerance,
    folder: Path | None,
) -> dict[str, OutputError | None]:
    """The error of each output of a call; None where there is nothing to judge it by."""
    found: dict[str, OutputError | None] = {}
    for before in call.outputs:
        if before.name not in now:
            found[before.name] = unmeasured(before.name, "the model has no such output any more")
            continue
        given = now[before.name]
        if isinstance(given, Path) and file_sha256(given) == before.sha256:
            found[before.name] = OutputError(output=before.name, max_abs=0.0, max_rel=0.0)
            continue
        answer = values.load(given) if isinstance(given, Path) else given
        if folder is not None:
            expected = values.load(folder / before.file, refusal="AOTC-I091")
            found[before.name] = compare(expected, answer, tolerance, before.name)
            continue
        try:
            found[before.name] = judge_sketch(before, answer, tolerance)
        except values.MALFORMED as error:
            raise _damaged("the sketch of an answer", str(error)[:200]) from None
    return found


def _run_again(call: KeptCall, folder: Path, original: Path) -> dict[str, values.Data]:
    """What the original model answers now to the kept inputs; raises as ONNX Runtime refuses."""
    inputs = {
        value.name: values.load(folder / value.file, refusal="AOTC-I091") for value in call.inputs
    }
    _, opened = open_original(original)
    known = {value.name for value in opened.get_outputs()}
    names = [value.name for value in call.outputs if value.name in known]
    return dict(zip(names, run(opened, inputs, names), strict=True))
