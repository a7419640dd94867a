"""The graph of a variant as it is stored: nodes with their values, and where each weight is.

The model is foreign and not verified, so a sandboxed worker parses it: a file that crashes or hangs
the parser is a problem of the report.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import PAYLOAD
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import record, replace
from aotc.session.worker_pool import Workers
from aotc.spec.codec import decode
from aotc.spec.variant import Variant
from aotc.tools.diff.model_side import MAX_PLAIN_BYTES, is_model
from aotc.tools.diff.opened_artifact import LIMITS, MAX_MODEL_BYTES
from aotc.tools.inspect import ArtifactContents

# In the folder of a job: the model, and the weights that it holds itself.
MODEL: Final = "model.onnx"
HELD: Final = "held.bin"
# Only the worker has a parser.
_JOB: Final = "aotc.tools.diff.graph_parser"


@record(kw_only=False)
class StoredNode:
    """One node: its name, `domain::op_type`, its values in order, and digests of attributes."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, str]


@record(kw_only=False)
class StoredTensor:
    """One weight: `length` bytes at `offset` of a payload file, or of `held` if the model has it.

    `digest` is that of its bytes if the model itself has them.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    length: int
    offset: int
    path: str = ""
    held: str = ""
    digest: str = ""


@record(kw_only=False)
class StoredGraph:
    """The nodes of a model and of its subgraphs in order, its outputs, and its weights by name."""

    nodes: tuple[StoredNode, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, StoredTensor]


class GraphReader:
    """Reads stored graphs in workers; a context manager that removes their files.

    Raises ModuleNotFoundError without onnx.
    """

    def __init__(self) -> None:
        if find_spec("onnx") is None:
            raise ModuleNotFoundError("No module named 'onnx'", name="onnx")
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> GraphReader:
        with ExitStack() as stack:
            self._folder = stack.enter_context(temporary_folder("comparing"))
            self._workers = stack.enter_context(Workers(LIMITS, (_JOB,)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, artifact: ArtifactContents, variant: Variant) -> StoredGraph:
        """The stored graph of a variant; weights in other files are not read.

        Raises AOTC-I062 if the model is no model, or refers to what the manifest does not list,
        G012 if it is too large, what opening a file does, and what `Workers.run` does.
        """
        where = f"{PAYLOAD}/{variant.model}"
        # Weights may be in a plain model itself.
        limit = MAX_PLAIN_BYTES if is_model(artifact) else MAX_MODEL_BYTES
        place = self._folder / f"graph-{self._count}"
        self._count += 1
        place.mkdir()
        (place / MODEL).write_bytes(artifact.container.read(where, limit))
        folder = posixpath.dirname(variant.model) if variant.weights is None else variant.weights
        sizes = {
            entry.path: entry.size
            for entry in artifact.manifest.files
            if entry.path in variant.files
        }
        done = self._workers.run(
            f"{_JOB}:read_graph_job",
            {"model": variant.model, "weights": folder, "sizes": sizes},
            folder=place,
            where=where,
        )
        (place / MODEL).unlink()
        graph = decode(StoredGraph, done.value)
        held = {
            name: replace(each, held=str(place / HELD)) if each.digest else each
            for name, each in graph.tensors.items()
        }
        return replace(graph, tensors=held)


def unreadable(model: str, found: str) -> AotcError:
    """AOTC-I062 of a model in the payload."""
    return AotcError(
        "AOTC-I062",
        "the model cannot be read as the manifest describes it",
        where=f"{PAYLOAD}/{model}",
        found=found,
    )
