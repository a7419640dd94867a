"""What an importer is: from a framework's source to an ONNX model, and the framework's answers.

An importer is a class in a file of its own, with a row in `registry`, or an entry point of the
group `aotc.importers` in another package.  Its file is imported wherever a source may be its own,
so that it imports the framework in `capture` and `answering` alone: these run in sandboxed
processes, each of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aotc.base.files.reading import FileState, require_model_file
from aotc.base.records import field, record
from aotc.spec.allowed_values import AllowedValues
from aotc.spec.codec import Json
from aotc.spec.framework_capture import FrameworkCapture
from aotc.spec.payload import Finding
from aotc.spec.shapes import DimRange

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

MODEL: Final = "model.onnx"
EXAMPLES: Final = "examples.npz"
MODULES: Final = "modules.json"


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
    other sizes are not tried, and not claimed.  `values` are those that inputs may have, by name,
    as if a profile stated them, which comes first.
    `examples` is a `.npz` of inputs by name that the source itself has; empty: none.  `modules` is
    a JSON file: from a node's name to the path of its module, and the place in the user's code.
    """

    framework: FrameworkCapture
    outputs: tuple[str, ...]
    model: str = MODEL
    dims: Mapping[str, DimRange] = field(default_factory=dict)
    relations: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    values: Mapping[str, AllowedValues] = field(default_factory=dict)
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
