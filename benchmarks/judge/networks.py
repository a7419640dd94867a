"""The networks of the bench: where each comes from, and at which sizes its inputs are made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from benchmarks.fresh import ROOT
from benchmarks.judge.graphs import WRITERS
from benchmarks.judge.slices import Slice
from benchmarks.networks.models import FULL, SEED, SMOKE
from benchmarks.networks.vit import write_vit

# Sizes of a free dim: the smallest, the largest, and what they are multiples of.
Range = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A model, the ranges of its free dims, and how many fixtures show enough of it."""

    name: str
    write: Callable[[Path], None]
    dims: Mapping[str, Range] = field(default_factory=dict)
    sums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Dims that are the sum of others."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """Inputs that are a scalar, the same in every fixture."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Inputs that are drawn below a number."""
    range_of: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Inputs that are drawn between two numbers."""
    parts: Mapping[str, tuple[Slice, ...]] = field(default_factory=dict)
    """By output: what was joined."""
    fixtures: int = 8
    calibration: int = 8
    large: bool = False

    def sizes(self, seed: int, fixture: int) -> dict[str, int]:
        """Sizes of the free dims: the smallest, the largest, then drawn ones."""
        rng = np.random.default_rng((seed, fixture))
        found = {}
        for name, (low, high, step) in self.dims.items():
            drawn = int(rng.integers(low // step, high // step + 1)) * step
            found[name] = low if fixture == 0 else high if fixture == 1 else drawn
        for name, parts in self.sums.items():
            found[name] = sum(found[part] for part in parts)
        return found

    def inputs(self, values: Any, hints: Any, seed: int, fixture: int) -> dict[str, Any]:
        """Inputs as a build makes them for the sizes of one fixture."""
        from aotc.sizes.inputs.fixtures import generate

        made = generate(values, self.sizes(seed, fixture), hints, seed * 1000 + fixture)
        rng = np.random.default_rng((seed, fixture, 1))
        for name, number in self.constants.items():
            made[name] = np.array(number, made[name].dtype)
        for name, most in self.tokens.items():
            made[name] = rng.integers(0, most, made[name].shape).astype(made[name].dtype)
        for name, (low, high) in self.range_of.items():
            made[name] = rng.uniform(low, high, made[name].shape).astype(made[name].dtype)
        return made


def _copied(source: Path, path: Path) -> None:
    path.write_bytes(source.read_bytes())


def _export(name: str, **fields: Any) -> Network:
    source = ROOT / "tests" / "data" / "exports" / f"{name}.onnx"
    return Network(name=f"export_{name}", write=partial(_copied, source), **fields)


def _ours(name: str, **fields: Any) -> Network:
    return Network(name=name, write=WRITERS[name], **fields)


_BATCH: Final[Range] = (1, 8, 1)
_TEXT: Final[Mapping[str, Range]] = {"batch": (1, 4, 1), "sequence": (3, 24, 1)}
_PAST: Final[Mapping[str, Any]] = {
    "dims": {"batch": (1, 4, 1), "sequence": (2, 12, 1), "past_sequence": (1, 12, 1)},
    "sums": {"total": ("past_sequence", "sequence")},
}

_CELLS: Final = 256
_JOINED: Final[Mapping[str, tuple[Slice, ...]]] = {
    "joined": (Slice(1, 0, 4), Slice(1, 4, 84)),
    "transposed": (Slice(2, 0, 4), Slice(2, 4, 84)),
    "flat": (
        Slice(1, 0, 4 * _CELLS),
        Slice(1, 4 * _CELLS, 84 * _CELLS),
        *(Slice(1, channel * _CELLS, (channel + 1) * _CELLS) for channel in range(84)),
    ),
}

OURS: Final = (
    *(
        _ours(
            f"detector_{form}",
            dims={"batch": (1, 2, 1)},
            range_of={"image": (0, 1)},
            parts={"detections": parts},
        )
        for form, parts in _JOINED.items()
    ),
    _ours("segmentation", dims={"batch": (1, 2, 1)}),
    _ours("decoder_masked", dims={"batch": (1, 4, 1), "length": (4, 20, 1)}),
    _ours("decoder_lowest", dims={"batch": (1, 4, 1), "length": (4, 20, 1)}),
    _ours("decoder_infinite", dims={"batch": (1, 4, 1), "length": (4, 20, 1)}),
    _ours("regression", dims={"batch": _BATCH}),
    _ours("image", dims={"batch": (1, 2, 1)}, range_of={"image": (0, 255)}),
    _ours("ranking", dims={"batch": _BATCH}),
)

GENERATED: Final = (
    Network(
        name="bert_small",
        write=SMOKE["bert"].write,
        dims={"batch": (1, 4, 1), "sequence": (3, 48, 1)},
    ),
    Network(
        name="vit_small",
        write=partial(write_vit, layers=2, hidden=64, heads=4, size=64, classes=10, seed=SEED),
        dims={"batch": (1, 4, 1)},
    ),
    Network(name="squeezenet", write=SMOKE["resnet50_17"].write),
    Network(name="dense", write=SMOKE["dense"].write, dims={"batch": _BATCH}),
    Network(name="resnet50", write=FULL["resnet50_17"].write, large=True),
    Network(name="densenet121", write=FULL["densenet"].write, large=True),
    Network(
        name="bert_base",
        write=FULL["bert"].write,
        dims={"batch": (1, 2, 1), "sequence": (8, 64, 1)},
        fixtures=4,
        calibration=4,
        large=True,
    ),
)

EXPORTS: Final = (
    _export("bert", dims=_TEXT),
    _export("decoder", dims=_TEXT),
    _export("gpt2", **_PAST),
    _export("llama_eager", **_PAST),
    _export("llama_sdpa", **_PAST),
    _export("whisper", dims={"batch": (1, 2, 1), "frames": (3000, 3000, 1)}, fixtures=4),
    _export("resnet50", dims={"batch": _BATCH, "height": (32, 96, 32), "width": (32, 96, 32)}),
    _export("vit", dims={"batch": (1, 4, 1)}),
    _export("unet", dims={"height": (16, 64, 16), "width": (16, 64, 16)}),
    _export("detector", dims={"height": (64, 192, 32), "width": (64, 192, 32)}),
    _export("text", dims={"height": (32, 128, 32), "width": (32, 128, 32)}),
    _export("style", dims={"batch": (1, 2, 1), "height": (32, 64, 4), "width": (32, 64, 4)}),
    _export("outer", dims={"n": (4, 32, 1), "m": (4, 32, 1), "k": (4, 32, 1)}),
)

DIGITS: Final = Network(
    name="digits",
    write=partial(_copied, ROOT / "examples" / "digits" / "digits.onnx"),
    dims={"batch": _BATCH},
    range_of={"image": (0, 1)},
)

_THIRD_PARTY: Final[Mapping[str, Mapping[str, Any]]] = {
    "basic_pitch_nmp": {"dims": {"unk__749": (1, 2, 1)}, "fixtures": 4, "calibration": 2},
    "gtcrn_stream": {},
    "magika_v3_3": {"dims": {"unk__214": (1, 4, 1)}, "tokens": {"bytes": 257}},
    "mobilenet_qdq_int8": {"dims": {"batch": (1, 2, 1)}},
    "silero_vad_op18_ifless": {
        "dims": {"batch": (1, 4, 1), "sequence": (576, 576, 1)},
        "constants": {"sr": 16000},
    },
    "silero_vad_v6": {
        "dims": {"batch": (1, 4, 1), "sequence": (576, 576, 1)},
        "constants": {"sr": 16000},
    },
    "tiny_gpt2_past_genai": {
        "dims": {"batch_size": (1, 4, 1), "seq_len": (2, 8, 1), "past_seq_len": (1, 8, 1)},
        "sums": {"total_seq_len": ("past_seq_len", "seq_len")},
    },
    "tinybert_untrained": {"dims": _TEXT},
    "tract_bidi_lstm": {"dims": {"batch": (1, 4, 1), "length": (4, 40, 1)}},
    "ultraface_rfb320": {},
    "xgboost_onnxmltools": {"dims": {"batch": (8, 32, 1)}},
    "yunet_n_dynamic": {
        "dims": {"batch": (1, 2, 1), "height": (64, 160, 32), "width": (64, 160, 32)},
        "range_of": {"input": (0, 255)},
    },
}
# Free dims without a name in the file get one, so that they have a range.
_NAMED: Final[Mapping[str, Mapping[str, tuple[str | int, ...]]]] = {
    "silero_vad_v6": {"input": ("batch", "sequence"), "state": (2, "batch", 128)},
    "xgboost_onnxmltools": {"X": ("batch", 4)},
    "export_style": {"image": ("batch", 3, "height", "width")},
}


def third_party() -> tuple[Network, ...]:
    """The models of the folder that AOTC_MODELS names; none where it names none."""
    folder = Path(os.environ.get("AOTC_MODELS") or "/nonexistent")
    return tuple(
        Network(name=name, write=partial(_copied, folder / f"{name}.onnx"), **fields)
        for name, fields in _THIRD_PARTY.items()
        if (folder / f"{name}.onnx").exists()
    )


def all_networks() -> dict[str, Network]:
    """By name."""
    every = (*OURS, DIGITS, *GENERATED, *EXPORTS, *third_party())
    return {network.name: network for network in every}


def written(network: Network, folder: Path) -> Path:
    """The model's file below `folder`; it is written once, each node with a name."""
    from aotc.graph.passes.base import run_passes
    from aotc.graph.passes.on_import import NameNodes

    path = folder / "model.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    raw = folder / "raw.onnx"
    network.write(raw)
    model = onnx.load(raw)
    for value in model.graph.input:
        for axis, dim in enumerate(_NAMED.get(network.name, {}).get(value.name, ())):
            if isinstance(dim, str):
                value.type.tensor_type.shape.dim[axis].dim_param = dim
    run_passes(model, (NameNodes(),))
    onnx.save(model, path)
    raw.unlink()
    return path
