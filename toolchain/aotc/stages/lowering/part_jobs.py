"""Jobs that compile the parts of one variant, each in a new process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

import onnx

from aotc.backends.base import Backend
from aotc.contract.codec.parsing import Json, encode
from aotc.errors import AotcError
from aotc.partitioning.assignment import Part
from aotc.partitioning.compute import sizes_at
from aotc.partitioning.extraction import Extractor, boundary_values
from aotc.partitioning.graph import PartitionGraph
from aotc.records import record
from aotc.stages.build_options import BuildOptions
from aotc.stages.reuse.compiled_parts import cached_or_compiled, part_key
from aotc.stages.types import ClaimedModel


@record(kw_only=False)
class PartJob:
    """A part that is being compiled, and the folder for its files."""

    result: Future[Json]
    folder: Path


class PartJobs:
    """Compiles parts of one claimed graph; lookups that many parts need are made once."""

    def __init__(
        self,
        claimed: ClaimedModel,
        model: onnx.ModelProto,
        graph: PartitionGraph,
        options: BuildOptions,
    ) -> None:
        """`graph` is that of `model`, the graph of `claimed`, which must not change meanwhile."""
        self._claimed = claimed
        self._graph = graph
        self._options = options
        self._extractor = Extractor(model, graph)
        smallest = claimed.optimized.specialized.sizes.corner("min")
        self._minimum_shapes: Mapping[str, tuple[int, ...]] = sizes_at(model, smallest).shapes

    def submit(self, part: Part, backend: Backend, attempt: int, *, share: bool) -> PartJob:
        """Start to compile `part`; the result raises AOTC-P005, P010 and I013 to I015.

        `attempt` counts from 0; with `share` constants are read from the shared weights.
        """
        plan, options = self._claimed.plan, self._options
        # The name depends on the part alone, not on the rest: equal parts have equal bytes.
        names = "\n".join(self._graph.nodes[index].name for index in part.nodes)
        stem = f"{backend.name}-{hashlib.sha256(names.encode()).hexdigest()[:12]}"
        folder = options.work / f"compile-{plan.name}-{stem}-{attempt}"
        folder.mkdir()
        try:
            extracted = self._extractor.extract(part.nodes, stem)
        except ValueError as error:
            failed: Future[Json] = Future()
            failed.set_exception(AotcError("AOTC-P005", str(error), where=stem))
            return PartJob(failed, folder)
        text = extracted.SerializeToString(deterministic=True)
        (folder / f"{stem}.onnx").write_bytes(text)
        request: dict[str, Json] = {
            "backend": backend.name,
            "plugins": encode(dict(options.profile.plugins)),
            "stem": stem,
            "target": encode(options.target, full=True),
            "precision": backend.computes_in(plan.precision),
            "shapes": self._shapes(part),
            "share": share,
        }
        key = part_key(request, extracted, text, self._claimed.weights, backend, options)
        job = options.workers.submit(
            cached_or_compiled,
            request,
            key,
            self._claimed.weights,
            folder,
            f"variant {plan.name}, provider {backend.name}",
            options,
        )
        return PartJob(job, folder)

    def _shapes(self, part: Part) -> dict[str, list[list[int]]]:
        """(Minimum, optimum, maximum) shapes of each boundary input, if all are known."""
        if self._claimed.sizes is None:
            return {}
        opt, largest = self._claimed.sizes
        found = {}
        for value in boundary_values(self._graph, part.nodes)[0]:
            shapes = [
                known.get(value) for known in (self._minimum_shapes, opt.shapes, largest.shapes)
            ]
            if all(shape is not None for shape in shapes):
                found[value] = [list(shape or ()) for shape in shapes]
        return found
