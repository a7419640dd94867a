"""The graph that is quantized: constants are folded, and each node has what it needs at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import onnx

from aotc.contract.codec.parsing import Json
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import SessionSpec
from aotc.engine.session import create_session
from aotc.errors import AotcError
from aotc.graphs.offline import DATA, MODEL, SPOILS_QUANTIZED, write_optimized
from aotc.graphs.value_types import with_types
from aotc.graphs.weights import gather_tensors
from aotc.passes.base import run_passes
from aotc.passes.half_precision.typed_graph import lift_constants
from aotc.passes.name_nodes import NameNodes

_FOLDER: Final = "prepared"


def prepared_graph(request: Json) -> Path:
    """In the worker: the variant's graph as ONNX Runtime's level BASIC writes it, with types.

    That folds constants, and a BatchNormalization into the convolution before it; values keep their
    names.  A graph that does not load again, as some with control flow, is taken as it is.  It is
    written once, to the folder of the request.
    """
    kept = Path(request["folder"]) / _FOLDER
    if not (kept / MODEL).exists():
        made = Path(_FOLDER)
        made.mkdir(exist_ok=True)
        _prepare(request, made)
        kept.parent.mkdir(parents=True, exist_ok=True)
        made.replace(kept)
    return kept / MODEL


def _prepare(request: Json, place: Path) -> None:
    graph, weights = Path(request["graph"]), Path(request["graph_weights"])
    model = _folded(graph, weights, place)
    if model is None:
        model = onnx.load(graph, load_external_data=False)
        lift_constants(model)
        gather_tensors(model, weights, place / DATA)
    run_passes(model, (NameNodes(),))
    typed = with_types(model, place)
    (place / MODEL).write_bytes(typed.SerializeToString(deterministic=True))


def _folded(graph: Path, weights: Path, place: Path) -> onnx.ModelProto | None:
    try:
        write_optimized(graph, "basic", weights, into=place, without=SPOILS_QUANTIZED)
        create_session(
            (place / MODEL).read_bytes(),
            SessionSpec(optimization="disable"),
            providers=[CPU],
            weights_folder=place,
        )
    except AotcError:
        return None
    return onnx.load(place / MODEL, load_external_data=False)
