"""Running an importer: in a sandboxed process of a build, or of a command that reads a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError, install_extra
from aotc.base.files.reading import file_sha256, file_state
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import field, record, replace
from aotc.session.worker_pool import Workers
from aotc.sources.base import Captured, CaptureRequest, Importer, Taken
from aotc.sources.registry import importer_named, importer_of
from aotc.spec.codec import Json, decode, encode
from aotc.spec.framework_capture import Network, SourceFile
from aotc.spec.payload import Finding

if TYPE_CHECKING:
    from aotc.graph.values import Data


@record
class SourceTrust:
    """What is allowed of a source, and what its importer is told beside."""

    trusted: bool = False
    options: Mapping[str, Json] = field(default_factory=dict)


UNTRUSTED: Final = SourceTrust()
"""What strangers' sources get."""
_CRASHED: Final = "AOTC-I013"
_FREE: Final = ("free", "in its own folder alone, and none")


def take(
    importer: Importer,
    source: str,
    folder: Path,
    workers: Workers,
    allowed: SourceTrust = UNTRUSTED,
) -> Taken:
    """Capture `source` into `folder`.

    Raises AOTC-I127 (the source runs code, and is not trusted), I019 (packages are missing), I152
    (the process ended), and what the importer refuses.
    """
    if importer.runs_code and not allowed.trusted:
        raise AotcError("AOTC-I127", f"{importer.title} runs code of its own", where=source)
    importer.require(source)
    files = importer.files(source)
    states = {path: file_state(path) for path in files}
    asked = CaptureRequest(
        source=str(Path(source).absolute()) if files else source,
        trusted=allowed.trusted,
        options=allowed.options,
        directory=str(Path.cwd()) if allowed.trusted else "",
    )
    where = Path(source).name
    if importer.is_remote(source):
        asked = decode(
            CaptureRequest,
            workers.run(
                "aotc.sources.capturing:fetch_job",
                {"importer": importer.name, "request": encode(asked)},
                folder=folder.with_name(f"{folder.name}-fetched"),
                where=where,
            ).value,
        )
    try:
        result = workers.run(
            "aotc.sources.capturing:capture_job",
            {"importer": importer.name, "request": encode(asked)},
            folder=folder,
            where=where,
        )
    except AotcError as error:
        if error.code != _CRASHED:
            raise
        what = f"the process that captures {importer.title} ended"
        raise AotcError("AOTC-I152", what, where=error.where, found=error.found) from None
    return Taken(
        importer=importer.name,
        request=asked,
        folder=folder,
        captured=decode(Captured, result.value),
        source_name=importer.model_name(source),
        states=states,
    )


@contextmanager
def captured(source: str | Path, allowed: SourceTrust = UNTRUSTED) -> Iterator[Taken | None]:
    """The capture of a source, as long as the context lasts; None if it is an ONNX model.

    Raises what `take` does.
    """
    importer = importer_of(source)
    if importer is None:
        yield None
        return
    with temporary_folder("capture") as work, Workers() as workers:
        yield take(importer, str(source), work / "capture", workers, allowed)


# Jobs of sandboxed processes.


def fetch_job(request: Json) -> Json:
    """In the worker, which keeps the network: fetch a remote source."""
    importer = importer_named(request["importer"])
    try:
        return encode(importer.fetch(decode(CaptureRequest, request["request"])))
    except ModuleNotFoundError as error:
        raise _missing(error, importer) from None


def capture_job(request: Json) -> Json:
    """In the worker: capture the source with the importer that it names."""
    importer = importer_named(request["importer"])
    asked = decode(CaptureRequest, request["request"])
    network, shut_in = _shut_in(importer, asked)
    with _failures_told(importer, asked):
        captured = importer.capture(asked, Path.cwd())
    framework = replace(captured.framework, network=network, shut_in=shut_in)
    if not framework.files:
        files = _described(importer.files(asked.source), asked.source)
        framework = replace(framework, files=files)
    findings = captured.findings
    if not asked.trusted and (network != "none" or not shut_in):
        what = f"network: {network}; writing and starting programs: {_FREE[shut_in]}"
        findings = (*findings, Finding(code="AOTC-I138", what=what, where=framework.source))
    return encode(replace(captured, framework=framework, findings=findings))


def _described(files: Sequence[Path], source: str) -> tuple[SourceFile, ...]:
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    found = (
        SourceFile(
            name=path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name,
            size=path.stat().st_size,
            sha256=file_sha256(path),
        )
        for path in files
    )
    return tuple(sorted(found, key=lambda file: file.name))


def answers_job(request: Json) -> Json:
    """In the worker: the framework's answers to value files, by name of output, or why it has none.

    `fixtures` have files of `inputs`, and of the exported model's `outputs`, whose types of floats
    the answers get; of each there are `outputs`, files in this folder, or `error`, the framework's
    own words.
    """
    from aotc.base.files.names import file_names
    from aotc.graph import values

    importer = importer_named(request["importer"])
    asked = decode(CaptureRequest, request["request"])
    captured = decode(Captured, request["captured"])
    _shut_in(importer, asked)
    with _failures_told(importer, asked):
        answer = importer.answering(asked, Path(request["folder"]), captured)
    found: list[Json] = []
    for number, item in enumerate(request["fixtures"]):
        given = {name: values.load(Path(path)) for name, path in item["inputs"].items()}
        types = {name: values.load(Path(path)) for name, path in item["outputs"].items()}
        try:
            answered = dict(answer(given))
            outputs = {name: _as(types[name], answered[name]) for name in types}
        except Exception as error:
            found.append({"error": _first_line(error)})
            continue
        place = Path(f"answers{number}")
        place.mkdir()
        files = file_names(outputs, ".npy")
        written = {name: values.save(outputs[name], place / file) for name, file in files.items()}
        found.append({"outputs": {name: str(path) for name, path in written.items()}})
    return found


def inner_job(request: Json) -> Json:
    """In the worker: files of the values inside the framework's program on `inputs`, by name."""
    from aotc.base.files.names import file_names
    from aotc.graph import values

    importer = importer_named(request["importer"])
    captured = decode(Captured, request["captured"])
    asked = decode(CaptureRequest, request["request"])
    _shut_in(importer, asked)
    inside = importer.inside(asked, Path(request["folder"]), captured)
    if inside is None:
        return {}
    found = inside({name: values.load(Path(path)) for name, path in request["inputs"].items()})
    place = Path("inside")
    place.mkdir()
    files = file_names(found, ".npy")
    return {name: str(values.save(found[name], place / file)) for name, file in files.items()}


def _shut_in(importer: Importer, asked: CaptureRequest) -> tuple[Network, bool]:
    """Shut this process in as far as the system grants it; how far that is."""
    from aotc.sources.sandbox import only_writing_in, without_network

    if importer.is_free(asked):
        return "open", False
    return without_network(), only_writing_in(Path.cwd())


def _as(exported: Data, own: Data) -> Data:
    """`own`, in the type of the `exported` model where both are floats: a profile may change it."""
    wanted, given = getattr(exported, "dtype", None), getattr(own, "dtype", None)
    if wanted is None or given is None or wanted == given:
        return own
    return own.astype(wanted) if {wanted.kind, given.kind} <= {*"fV"} else own


@contextmanager
def _failures_told(importer: Importer, asked: CaptureRequest) -> Iterator[None]:
    """A refusal in place of what the framework or an exporter raises."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise _missing(error, importer) from None
    except (AotcError, MemoryError, OSError):
        raise
    except Exception as error:
        raise _failed(error, importer, asked) from None


def _missing(error: ModuleNotFoundError, importer: Importer) -> Exception:
    missing = (error.name or "").partition(".")[0]
    if missing not in importer.modules:
        return AotcError(
            "AOTC-I121",
            f"{importer.title} needs the package {missing or 'that is named'}",
            found=str(error)[:300],
            fix=f"Install it: pip install {missing}." if missing else "",
        )
    return AotcError(
        "AOTC-I019",
        f"{importer.title} needs the package {missing}",
        fix=install_extra(importer.extra),
    )


def _failed(error: Exception, importer: Importer, asked: CaptureRequest) -> AotcError:
    """What a framework or an exporter ended with of which its importer knows nothing.

    The log of the process has all of it.
    """
    import traceback

    traceback.print_exception(error)
    return AotcError(
        "AOTC-I121",
        f"{importer.name} cannot read or export {importer.title}",
        where=Path(asked.source).name,
        found=_first_line(error),
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    first = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {first}"[:300]
