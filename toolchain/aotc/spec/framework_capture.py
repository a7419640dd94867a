"""What is known of how a framework's program became an ONNX model: a part of the manifest.

No path, time or name of a user is in it: a file of code is told by its last two parts and a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.base.records import field, record
from aotc.spec.payload import Sha256

Place = Annotated[str, "of code: file:line, with at most the folder that holds the file; or empty"]
Network = Literal["none", "open", "unknown"]


@record
class SourceFile:
    """A file of the source."""

    name: Annotated[str, "with slashes, below the folder that the source is"]
    size: int
    sha256: Sha256


@record
class CapturedDim:
    """A free dim of the program: where inputs have it, and what the framework says of its sizes."""

    name: str
    inputs: Annotated[tuple[str, ...], "as INPUT.AXIS"] = ()
    min: Annotated[int | None, "that the framework states; None: none"] = None
    max: Annotated[int | None, "that the framework states; None: none"] = None
    symbol: Annotated[str, "the framework's name or expression of it"] = ""


@record
class StaticDim:
    """A dim that was asked to be dynamic, and has one size in the program."""

    input: str
    axis: int
    size: int
    asked: Annotated[str, "name by which it was asked for; empty: none"] = ""
    why: Annotated[str, "the framework's own reason; empty: it gives none"] = ""
    place: Place = ""


@record
class CapturedBranch:
    """A decision of the user's code that depends on values or sizes, and what became of it."""

    kind: Annotated[str, "operator, such as torch.cond; or guard: one side was taken for good"]
    what: str
    place: Place = ""


@record
class FrameworkCapture:
    """How a source of a framework became the ONNX model that was built."""

    importer: Annotated[str, "importer of aotc, such as torch"]
    format: Annotated[str, "of the source, such as torch.export program"]
    source: Annotated[str, "name of the source: a file's or folder's name, or what names it"]
    files: Annotated[tuple[SourceFile, ...], "that the source is made of, by name"] = ()
    revision: Annotated[str, "of the source where it comes from, such as a commit of a hub"] = ""
    weights_sha256: Annotated[
        Sha256 | None, "of all weights with their names, in order; None: not computed"
    ] = None
    made_by: Annotated[str, "framework and version that made the source; empty: unknown"] = ""
    versions: Annotated[
        Mapping[str, str], "of the distributions that captured it: framework and exporter"
    ] = field(default_factory=dict)
    exporter: Annotated[str, "function that made the ONNX model"] = ""
    opset: int = 0
    decomposed: Annotated[
        Mapping[str, int], "operators of the program that became others before export, and how many"
    ] = field(default_factory=dict)
    dims: tuple[CapturedDim, ...] = ()
    static_dims: tuple[StaticDim, ...] = ()
    guards: Annotated[tuple[str, ...], "conditions on inputs under which the capture holds"] = ()
    branches: tuple[CapturedBranch, ...] = ()
    custom_operators: Annotated[
        tuple[str, ...], "operators of the program that are not the framework's own"
    ] = ()
    modules: Annotated[int, "modules of the program that nodes are traced to"] = 0
    network: Annotated[Network, "whether the capturing process could reach a network"] = "unknown"
    shut_in: Annotated[
        bool, "the capturing process could write in its own folder alone, and start no program"
    ] = False
    trusted: Annotated[bool, "code of the source was run, as the build was told to"] = False

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)
