"""What an importer is: from a framework's source to an ONNX model, and the framework's answers.

An importer is a class in a file of its own, with a row in `registry`, or an entry point of the
group `aotc.importers` in another package.  Its file is imported wherever a source may be its own,
so that it imports the framework in `capture` and `answering` alone: these run in sandboxed
processes, each of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aotc.base.errors import AotcError, install_extra
from aotc.base.files.reading import FileState, file_sha256, require_model_file
from aotc.base.records import field, record, replace
from aotc.spec.codec import Json, decode, encode
from aotc.spec.framework_capture import FrameworkCapture, Network, SourceFile
from aotc.spec.payload import Finding
from aotc.spec.shapes import DimRange

if TYPE_CHECKING:
    import numpy as np

    from aotc.graph.values import Data

    Arrays = Mapping[str, np.ndarray[Any, Any]]

MODEL: Final = "model.onnx"
EXAMPLES: Final = "examples.npz"
MODULES: Final = "modules.json"
_FREE: Final = ("free", "in its own folder alone, and none")


@record
class CaptureRequest:
    """What is to be captured.

    `source` is a path, absolute, or what else names a source.  `trusted`: code of the source may be
    run.  `options` are an importer's own.  `directory` is the working directory of who asks, where
    such code is imported.
    """

    source: str
    trusted: bool = False
    options: Mapping[str, Json] = field(default_factory=dict)
    directory: str = ""


@record
class Captured:
    """What a capture leaves: files of its folder, by their names in it, and what it found.

    `model` is the ONNX file, whose external data is beside it; nodes have no metadata any more.
    `outputs` are the names of its outputs, in order.
    `dims` are ranges by the names of the model's dims, and `relations` relations among them, both
    as a profile writes them: what the user states comes first, and each is tried as theirs are.
    `conditions` on dims (see `spec.conditions`) are those under which the framework takes a call:
    other sizes are not tried, and not claimed.
    `examples` is a `.npz` of inputs by name that the source itself has; empty: none.  `modules` is
    a JSON file: from a node's name to the path of its module, and the place in the user's code.
    """

    framework: FrameworkCapture
    outputs: tuple[str, ...]
    model: str = MODEL
    dims: Mapping[str, DimRange] = field(default_factory=dict)
    relations: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    examples: str = ""
    modules: str = ""
    findings: tuple[Finding, ...] = ()


Answers = Callable[["Arrays"], "Arrays"]
"""From arrays by input name to arrays by output name, both as the ONNX model names them."""


class Importer(ABC):
    """A kind of source; see the module for where one is written."""

    name: ClassVar[str]
    """As evidence names it, such as `torch`."""
    extra: ClassVar[str]
    """The extra of aotc that installs what it needs, or a command's words that do."""
    title: ClassVar[str]
    """What a source of its kind is, in words: `a PyTorch program`."""
    modules: ClassVar[tuple[str, ...]] = ()
    """Top-level modules that the extra installs: where one is missing, the user is told of it."""
    distributions: ClassVar[tuple[str, ...]] = ()
    """Distributions whose versions decide what is captured: part of the key of caches."""
    runs_code: ClassVar[bool] = False
    """Whether a capture runs code of the source: then only with `--trust-source`."""

    @abstractmethod
    def recognizes(self, source: str) -> bool:
        """Whether `source` is of this kind, by its name or its first bytes; need not exist."""

    def require(self, source: str) -> None:
        """Raise what is wrong with a source that can be told before a process is started."""
        require_model_file(Path(source))

    def files(self, source: str) -> tuple[Path, ...]:
        """The files that the source is made of; empty: it is no files, and nothing is cached."""
        return (Path(source),)

    def model_name(self, source: str) -> str:
        """The name of the model, which the artifact has where nothing else is said."""
        return Path(source).stem

    def is_remote(self, source: str) -> bool:
        """Whether `source` is elsewhere, such as on a hub: then it is fetched first."""
        return False

    def fetch(self, request: CaptureRequest) -> CaptureRequest:
        """In a process that has the network, of a remote source: where it is from now on.

        It runs nothing of what it fetches.
        """
        return request

    @abstractmethod
    def capture(self, request: CaptureRequest, folder: Path) -> Captured:
        """In a sandboxed process, whose working directory is `folder`: make the ONNX model there.

        Raises `AotcError`; a module that is missing is told by the caller.
        """

    @abstractmethod
    def answering(self, request: CaptureRequest, folder: Path, captured: Captured) -> Answers:
        """In another sandboxed process: what answers as the framework does, without compilation.

        `folder` is that of the capture.  What the function raises is the framework's own failure.
        """

    def is_free(self, request: CaptureRequest) -> bool:
        """Whether trusted code runs, which may need the network and the user's folders."""
        return False

    def inside(self, request: CaptureRequest, folder: Path, captured: Captured) -> Answers | None:
        """As `answering`, but values inside, by the names that the ONNX model has; None: none."""
        return None

    def versions(self) -> dict[str, str]:
        """The versions of its distributions that are installed."""
        found = {}
        for name in self.distributions:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        return found


@record
class Taken:
    """A captured source: the folder has what `captured` names.

    `states` are those of the source's files before it, and `source_name` is the model's name.
    """

    importer: str
    request: CaptureRequest
    folder: Path
    captured: Captured
    source_name: str
    states: Mapping[Path, FileState]

    @property
    def title(self) -> str:
        """The source, as errors name it."""
        return self.captured.framework.source

    @property
    def model(self) -> Path:
        """The ONNX file."""
        return self.folder / self.captured.model


# Jobs of sandboxed processes.


def fetch_job(request: Json) -> Json:
    """In the worker, which keeps the network: fetch a remote source."""
    importer = _importer(request["importer"])
    try:
        return encode(importer.fetch(decode(CaptureRequest, request["request"])))
    except ModuleNotFoundError as error:
        raise _missing(error, importer) from None


def capture_job(request: Json) -> Json:
    """In the worker: capture the source with the importer that it names."""
    importer = _importer(request["importer"])
    asked = decode(CaptureRequest, request["request"])
    network, shut_in = _shut_in(importer, asked)
    try:
        captured = importer.capture(asked, Path.cwd())
    except ModuleNotFoundError as error:
        raise _missing(error, importer) from None
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

    importer = _importer(request["importer"])
    asked = decode(CaptureRequest, request["request"])
    captured = decode(Captured, request["captured"])
    _shut_in(importer, asked)
    try:
        answer = importer.answering(asked, Path(request["folder"]), captured)
    except ModuleNotFoundError as error:
        raise _missing(error, importer) from None
    found: list[Json] = []
    for number, item in enumerate(request["fixtures"]):
        given = {name: values.load(Path(path)) for name, path in item["inputs"].items()}
        types = {name: values.load(Path(path)) for name, path in item["outputs"].items()}
        try:
            outputs = {name: _as(types[name], each) for name, each in answer(given).items()}
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

    importer = _importer(request["importer"])
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


def _importer(name: str) -> Importer:
    from aotc.sources.registry import importer_named

    return importer_named(name)


def _missing(error: ModuleNotFoundError, importer: Importer) -> Exception:
    missing = (error.name or "").partition(".")[0]
    if missing not in importer.modules:
        return error
    return AotcError(
        "AOTC-I019",
        f"{importer.title} needs the package {missing}",
        fix=install_extra(importer.extra),
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    first = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {first}"[:300]
