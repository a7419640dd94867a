"""ONNX Runtime's offline optimizer, with fixed file names in the working directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import Optimization, SessionSpec
from aotc.engine.session import import_onnxruntime, ort_errors, session_options
from aotc.graphs.rejection import rejection
from aotc.graphs.weights import EXTERNAL_BYTES

MODEL: Final = "model.onnx"
# Makes a Gemm of a product and a sum: between QuantizeLinear and DequantizeLinear no fusion takes
# that up, and it stays in float32 (BERT-base 1.8 times as slow as without any quantization).  Where
# it runs twice it may fail with "Attempt to replace the existing tensor".
SPOILS_QUANTIZED: Final = ("MatMulAddFusion",)
DATA: Final = "model.bin"


def write_optimized(
    graph: Path,
    level: Optimization,
    weights: Path,
    *,
    prepack: bool = False,
    into: Path | None = None,
    without: Sequence[str] = (),
) -> None:
    """Let ONNX Runtime write `graph`, optimized at `level`, to `MODEL` and its weights to `DATA`.

    Both are written to the folder `into` (default: the working directory); the weights of `graph`
    are in the folder `weights`.  With `prepack`, weights are also written in the packed form of the
    kernels of this CPU.  Optimizers that `without` names, as ONNX Runtime does, do not run.
    Raises AOTC-O001.
    """
    place = into or Path()
    settings = {
        "session.optimized_model_external_initializers_file_name": DATA,
        "session.optimized_model_external_initializers_min_size_in_bytes": str(EXTERNAL_BYTES),
        "session.model_external_initializers_file_folder_path": str(weights),
    }
    if prepack:
        settings["session.save_external_prepacked_constant_initializers"] = "1"
    options = session_options(SessionSpec(optimization=level, config=settings))
    options.optimized_model_filepath = str(place / MODEL)
    (place / DATA).unlink(missing_ok=True)
    try:
        import_onnxruntime().InferenceSession(
            str(graph), options, providers=[CPU], disabled_optimizers=list(without)
        )
    except ort_errors() as error:
        raise rejection(
            error, "AOTC-O001", "ONNX Runtime cannot optimize the model", where=f"level {level}"
        ) from None
