"""Optimize: ONNX Runtime's offline optimizer, in a fresh process under canonical file names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aotc.contract.manifest import PassRecord, SessionSpec
from aotc.contract.parsing import Json, decode, encode
from aotc.engine.worker import run_job
from aotc.stages.types import BuildOptions, OptimizedModel, SpecializedModel

# EXTENDED leaves out the layout step, which bakes in the CPU of the build host.
LEVELS: Final = {"baseline": "extended", "host": "all"}
_MODEL = "model.onnx"
_DATA = "model.bin"


def optimize(specialized: SpecializedModel, options: BuildOptions) -> OptimizedModel:
    """Run the optimizer at the variant's level; weights land in one external file.

    Raises AOTC-O001, and I013 to I015 from the sandbox.
    """
    level = LEVELS[specialized.spec.isa]
    folder = options.work / f"optimize-{specialized.spec.name}"
    source = specialized.analyzed.source
    value = run_job(
        "aotc.stages.optimize:optimize_job",
        {"graph": str(specialized.graph), "weights": str(source.weights), "level": level},
        folder=folder,
        limits=options.profile.limits,
        where=f"variant {specialized.spec.name}",
    ).value
    return OptimizedModel(
        specialized=specialized,
        graph=folder / _MODEL,
        data=folder / _DATA,
        nodes=tuple((name, op) for name, op in value["nodes"]),
        passes=(*specialized.passes, *(decode(PassRecord, item) for item in value["passes"])),
    )


def optimize_job(request: Json) -> Json:
    """In the worker: optimize the graph, then name its nodes and strip what ORT added."""
    import onnx

    from aotc.engine.rejection import rejection
    from aotc.engine.session import import_onnxruntime, ort_errors, session_options
    from aotc.engine.weights import EXTERNAL_BYTES
    from aotc.passes.base import run_passes, walk_nodes
    from aotc.passes.name_nodes import NameNodes
    from aotc.passes.strip_metadata import StripMetadata

    ort = import_onnxruntime()
    graph = Path(request["graph"])
    level = request["level"]
    before = len(onnx.load(graph, load_external_data=False).graph.node)
    settings = {
        "session.optimized_model_external_initializers_file_name": _DATA,
        "session.optimized_model_external_initializers_min_size_in_bytes": str(EXTERNAL_BYTES),
        "session.model_external_initializers_file_folder_path": request["weights"],
    }
    options = session_options(SessionSpec(optimization=level, config=settings))
    options.optimized_model_filepath = _MODEL
    try:
        ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except ort_errors() as error:
        raise rejection(
            error, "AOTC-O001", "ONNX Runtime cannot optimize the model", where=f"level {level}"
        ) from None
    model = onnx.load(_MODEL, load_external_data=False)
    record = PassRecord(
        name="onnxruntime-optimizer",
        options={"level": level, "external_bytes": EXTERNAL_BYTES},
        nodes_before=before,
        nodes_after=len(model.graph.node),
    )
    records = (record, *run_passes(model, (StripMetadata(), NameNodes())))
    Path(_MODEL).write_bytes(model.SerializeToString(deterministic=True))
    return {
        "passes": [encode(item) for item in records],
        "nodes": [
            [node.name, f"{node.domain}::{node.op_type}" if node.domain else node.op_type]
            for node in walk_nodes(model)
        ],
    }
