"""The graph that the optimizer's worker wrote: its external data, and whether it loads."""

from __future__ import annotations

from pathlib import Path

import onnx

from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import SessionSpec
from aotc.engine.session import create_session
from aotc.errors import AotcError
from aotc.graphs.offline import DATA, MODEL
from aotc.graphs.weights import externalize, gather_tensors


def write_weights(model: onnx.ModelProto) -> None:
    """Write the external data of a changed graph again."""
    before = Path("before")
    before.mkdir(exist_ok=True)
    if Path(DATA).exists():
        Path(DATA).replace(before / DATA)
    gather_tensors(model, before, Path(DATA))
    externalize(model, Path(), DATA)


def why_not_loading(*, in_half: bool) -> str:
    """Why ONNX Runtime does not load the written graph; empty if it does.

    Some kernels want constants, which weights in half precision are once their casts are folded.
    """
    try:
        create_session(
            Path(MODEL).read_bytes(),
            SessionSpec(optimization="basic" if in_half else "disable"),
            providers=[CPU],
            weights_folder=Path(),
        )
    except AotcError as error:
        return error.found
    return ""
