"""Exported graphs in `tests/data/exports`, and the calls that users of such models make.

The graphs were written by `benchmarks/networks/exports.py --small`: the exporter's form, and a few
layers deep.
If the environment variable `AOTC_EXPORTS` is set, its folder has the same without `--small`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from repository import ROOT

FOLDER = ROOT / "tests" / "data" / "exports"
VOCABULARY = 64
PAST = "past_key_values."
# Sizes of images that networks for vision were made for.
USUAL_IMAGES = (224, 256, 320, 384, 416, 448, 512, 640, 720, 736, 1024)

Sizes = Mapping[str, int]

# Prefill, with and without a past of no tokens; one token after some; several at once.
_WITH_PAST = (
    {"batch": 1, "sequence": 8, "past": 0},
    {"batch": 1, "sequence": 128, "past": 0},
    {"batch": 3, "sequence": 11, "past": 0},
    {"batch": 1, "sequence": 1, "past": 1},
    {"batch": 1, "sequence": 1, "past": 31},
    {"batch": 1, "sequence": 1, "past": 127},
    {"batch": 2, "sequence": 5, "past": 7},
    {"batch": 3, "sequence": 1, "past": 20},
    {"batch": 4, "sequence": 16, "past": 48},
    {"batch": 8, "sequence": 1, "past": 16},
    {"batch": 2, "sequence": 64, "past": 65},
)
_TOKENS = (
    {"batch": 1, "sequence": 1},
    {"batch": 1, "sequence": 8},
    {"batch": 2, "sequence": 5},
    {"batch": 3, "sequence": 77},
    {"batch": 1, "sequence": 128},
    {"batch": 8, "sequence": 128},
)
_IMAGES = (
    {"batch": 1, "height": 64, "width": 64},
    {"batch": 1, "height": 224, "width": 224},
    {"batch": 1, "height": 256, "width": 320},
    {"batch": 1, "height": 320, "width": 256},
    {"batch": 1, "height": 640, "width": 640},
    {"batch": 1, "height": 480, "width": 640},
)

CALLS: dict[str, Sequence[Sizes]] = {
    "gpt2": _WITH_PAST,
    "gpt2_loose": _WITH_PAST,
    "llama_eager": _WITH_PAST,
    "llama_sdpa": _WITH_PAST,
    "decoder": _TOKENS,
    "bert": _TOKENS,
    "whisper_fixed": ({"batch": 1, "frames": 3000}, {"batch": 3, "frames": 3000}),
    "resnet50": (
        *_IMAGES,
        {"batch": 8, "height": 224, "width": 224},
        {"batch": 2, "height": 97, "width": 131},
    ),
    "vit": tuple({"batch": batch, "height": 224, "width": 224} for batch in (1, 2, 8)),
    "unet": _IMAGES,
    "detector": _IMAGES,
    "text": _IMAGES,
    "style": (*_IMAGES, {"batch": 3, "height": 64, "width": 96}),
    "outer": ({"n": 1, "m": 1, "k": 1}, {"n": 3, "m": 50, "k": 7}, {"n": 64, "m": 64, "k": 64}),
}
"""Calls that each model answers under plain ONNX Runtime, by what the sizes mean."""


def exported(name: str, folder: Path = FOLDER) -> onnx.ModelProto:
    """A graph of the folder; two of them are others with renamed dims."""
    if name == "gpt2_loose":
        model = onnx.load(folder / "gpt2.onnx")
        rename_dims(model, "attention_mask", {0: "mask_batch", 1: "total"})
        for value in model.graph.input:
            if value.name.startswith(PAST):
                names = {0: f"{value.name}_batch", 2: f"{value.name}_sequence"}
                rename_dims(model, value.name, names)
        return model
    if name == "whisper_fixed":
        model = onnx.load(folder / "whisper.onnx")
        rename_dims(model, "input_features", {2: 3000})
        return model
    return onnx.load(folder / f"{name}.onnx")


def rename_dims(model: onnx.ModelProto, name: str, dims: Mapping[int, str | int]) -> None:
    """Declare axes of the input `name` as free, with a name, or fixed, with a size."""
    (value,) = (value for value in model.graph.input if value.name == name)
    for axis, dim in dims.items():
        written = value.type.tensor_type.shape.dim[axis]
        if isinstance(dim, int):
            written.dim_value = dim
        else:
            written.dim_param = dim


def inputs_for(session: ort.InferenceSession, sizes: Sizes, seed: int = 5) -> dict[str, Any]:
    """Inputs as a user of the model passes them, at `sizes` by the meaning of its dims.

    `batch`, `sequence` and `past` of decoders, whose mask spans both, and leaves the first token of
    the first row out where another precedes all that is asked; `total` and `mask_batch` size the
    mask otherwise, and `past_of_last` the past of the last layer.  `batch`, `height` and `width` of
    images, `frames` of sound.
    """
    rng = np.random.default_rng(seed)
    last = [value.name for value in session.get_inputs()][-2:]
    inputs: dict[str, Any] = {}
    for value in session.get_inputs():
        if value.name == "attention_mask":
            total = sizes.get("total", sizes["sequence"] + sizes.get("past", 0))
            mask = np.ones((sizes.get("mask_batch", sizes["batch"]), total), np.int64)
            if sizes.get("past", 0) > 1:
                mask[0, 0] = 0
            inputs[value.name] = mask
            continue
        if value.name.startswith(PAST):
            past = sizes["past"]
            if value.name in last:
                past = sizes.get("past_of_last", past)
            shape = [sizes.get("past_batch", sizes["batch"]), value.shape[1], past, value.shape[3]]
        elif value.name in ("input_ids", "token_type_ids"):
            shape = [sizes["batch"], sizes["sequence"]]
        elif value.name == "input_features":
            shape = [sizes["batch"], value.shape[1], sizes["frames"]]
        elif len(value.shape) == 4:
            shape = [sizes["batch"], 3, sizes["height"], sizes["width"]]
        else:
            shape = [sizes[{"x": "n", "y": "m", "z": "k"}[value.name]]]
        if value.type == "tensor(int64)":
            below = 2 if value.name == "token_type_ids" else VOCABULARY
            inputs[value.name] = rng.integers(0, below, shape)
        else:
            inputs[value.name] = rng.standard_normal(shape, np.float32)
    return inputs
