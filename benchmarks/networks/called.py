"""Small networks with random weights whose owners' calls are known, for `benchmarks.ranges`.

`python -m benchmarks.networks.called FOLDER [NAME…]` writes NAME.onnx; the calls are those of
`benchmarks/data/calls`.  It needs what `benchmarks/networks/exports.py` needs.

Architectures: those of `transformers`; D. Ulyanov et al., "Instance Normalization" (2016), for the
transfer of style; R. Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models"
(2022), its decoder; J. Kim et al., "VITS" (2021), how durations become frames.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch  # type: ignore[import-not-found,unused-ignore]
import transformers  # type: ignore[import-not-found,unused-ignore]
from onnx import TensorProto, helper, numpy_helper
from torch import nn  # type: ignore[import-not-found,unused-ignore]
from transformers.cache_utils import (  # type: ignore[import-not-found,unused-ignore]
    DynamicCache,
    EncoderDecoderCache,
)

from benchmarks.networks.exported_networks import Style
from benchmarks.networks.exports import (
    OPSET,
    SEED,
    Export,
    WithPositionalInputs,
    decoder_export,
    write,
)

Weights = Mapping[str, Any]
_HEADS, _HEAD_WIDTH, _LAYERS = 2, 16, 2
_SMALL = {"hidden_size": 32, "num_hidden_layers": _LAYERS, "num_attention_heads": _HEADS}


def gpt2_past() -> Export:
    """GPT-2 of 256 positions with past."""
    sizes = {"n_layer": _LAYERS, "n_embd": 32, "n_head": _HEADS}
    configuration = transformers.GPT2Config(**sizes, vocab_size=200, n_positions=256)
    network = transformers.GPT2LMHeadModel(configuration)
    return decoder_export(network, _LAYERS, _HEADS, _HEAD_WIDTH)


def _whisper() -> Any:
    configuration = transformers.WhisperConfig(
        vocab_size=200,
        d_model=32,
        encoder_layers=_LAYERS,
        decoder_layers=_LAYERS,
        encoder_attention_heads=_HEADS,
        decoder_attention_heads=_HEADS,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=150,
        max_target_positions=64,
        num_mel_bins=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return transformers.WhisperForConditionalGeneration(configuration)


def whisper_encoder() -> Export:
    """Whisper's encoder: spectrograms of a fixed length."""
    return _positional(
        _whisper().model.encoder,
        lambda network, features: network(features).last_hidden_state,
        {"input_features": torch.zeros((2, 16, 300))},
        {"input_features": {0: "batch"}},
        ("hidden",),
    )


def whisper_decoder() -> Export:
    """Whisper's decoder of 64 positions, with a growing past of its own attention."""
    inputs = {
        "decoder_input_ids": torch.ones((2, 3), dtype=torch.int64),
        "encoder_hidden_states": torch.zeros((2, 150, 32)),
    }
    free = {
        "decoder_input_ids": {0: "batch", 1: "sequence"},
        "encoder_hidden_states": {0: "batch"},
    }
    outputs = ["logits"]
    for layer in range(_LAYERS):
        for kind in ("key", "value"):
            name = f"past_key_values.{layer}.decoder.{kind}"
            inputs[name] = torch.zeros((2, _HEADS, 4, _HEAD_WIDTH))
            free[name] = {0: "batch", 2: "past"}
            outputs.append(f"present.{layer}.decoder.{kind}")

    def call(network: Any, ids: Any, hidden: Any, *held: Any) -> Any:
        pairs = list(zip(held[::2], held[1::2], strict=True))
        cache = EncoderDecoderCache(DynamicCache(pairs), DynamicCache())
        answer = network.model.decoder(
            input_ids=ids, encoder_hidden_states=hidden, past_key_values=cache, use_cache=True
        )
        layers = answer.past_key_values.self_attention_cache.layers
        held = tuple(tensor for layer in layers for tensor in (layer.keys, layer.values))
        return network.proj_out(answer.last_hidden_state), *held

    return _positional(_whisper(), call, inputs, free, tuple(outputs))


def vit_64() -> Export:
    """ViT at 64 by 64."""
    sizes = {"intermediate_size": 64, "image_size": 64, "patch_size": 16, "num_labels": 10}
    configuration = transformers.ViTConfig(**_SMALL, **sizes)
    return _positional(
        transformers.ViTForImageClassification(configuration),
        lambda network, image: network(pixel_values=image).logits,
        {"pixel_values": torch.zeros((2, 3, 64, 64))},
        {"pixel_values": {0: "batch"}},
        ("logits",),
    )


def wav2vec2() -> Export:
    """wav2vec 2.0 on sound of any number of samples."""
    configuration = transformers.Wav2Vec2Config(
        **_SMALL,
        intermediate_size=64,
        vocab_size=32,
        conv_dim=(16,) * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    return _positional(
        transformers.Wav2Vec2ForCTC(configuration),
        lambda network, sound: network(sound).logits,
        {"input_values": torch.zeros((2, 16000))},
        {"input_values": {0: "batch", 1: "samples"}},
        ("logits",),
    )


def _positional(
    network: Any,
    call: Callable[..., Any],
    inputs: dict[str, Any],
    free: dict[str, dict[int, str]],
    outputs: tuple[str, ...],
) -> Export:
    positional = WithPositionalInputs(network, call)
    return Export(network=positional, inputs=inputs, free=free, outputs=outputs)


def style(width: int, blocks: int) -> Export:
    """Style transfer of images of any size."""
    return Export(
        network=Style(width, blocks),
        inputs={"image": torch.zeros((2, 3, 64, 96))},
        free={"image": {0: "batch", 2: "height", 3: "width"}},
        outputs=("stylized",),
    )


def _scanned(network: Any, output: str, *, free: bool) -> Export:
    """A network of scans [batch, 1, 256, 256, 256], or of any three sizes."""
    names = {2: "depth", 3: "height", 4: "width"} if free else {}
    size = (2, 1, 32, 48, 64) if free else (2, 1, 256, 256, 256)
    return Export(
        network=network,
        inputs={"scan": torch.zeros(size)},
        free={"scan": {0: "batch", **names}},
        outputs=(output,),
    )


def _volumetric(*channels: tuple[int, int]) -> list[Any]:
    """3-D convolutions with ReLU, from each (outer channels, stride) to the next."""
    layers, inner = [], 1
    for outer, stride in channels:
        layers += [nn.Conv3d(inner, outer, 3, stride, 1), nn.ReLU()]
        inner = outer
    return layers


def volume(*, free: bool) -> Export:
    """A classifier of scans, whose last features are averaged."""
    layers = _volumetric((12, 2), (24, 1), (16, 2), (32, 2))
    head = [nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(32, 3)]
    return _scanned(nn.Sequential(*layers, *head), "logits", free=free)


def segments(*, free: bool) -> Export:
    """A segmentation of scans, whose first features have the scan's own size."""
    layers = _volumetric((8, 1), (16, 2), (16, 1), (32, 2), (32, 1))
    head = [nn.Upsample(scale_factor=4), nn.Conv3d(32, 2, 1), nn.Softmax(dim=1)]
    return _scanned(nn.Sequential(*layers, *head), "classes", free=free)


class Residual(nn.Module):  # type: ignore[misc,unused-ignore]
    """Two convolutions behind group norms, added to what they read."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.GroupNorm(4, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1)),
            *(nn.GroupNorm(4, outer), nn.SiLU(), nn.Conv2d(outer, outer, 3, padding=1)),
        )
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, value: Any) -> Any:
        """Float32 [batch, inner, height, width] to [batch, outer, height, width]."""
        return self.skip(value) + self.layers(value)


class Attention(nn.Module):  # type: ignore[misc,unused-ignore]
    """Attention of each place to all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.read = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, value: Any) -> Any:
        """Float32 [batch, width, height, width] to the same shape."""
        rows = self.norm(value).flatten(2).transpose(1, 2)
        read = (layer(rows).unsqueeze(1) for layer in self.read)
        told = self.out(nn.functional.scaled_dot_product_attention(*read).squeeze(1))
        return value + told.transpose(1, 2).reshape(value.shape)


def vae(width: int) -> Export:
    """A decoder of latents, of an eighth of the image, with attention at their size."""

    def doubled(channels: int) -> tuple[Any, ...]:
        return nn.Upsample(scale_factor=2), nn.Conv2d(channels, channels, 3, padding=1)

    half, quarter = width // 2, width // 4
    network = nn.Sequential(
        *(nn.Conv2d(4, width, 3, padding=1), Residual(width, width), Attention(width)),
        *(Residual(width, width), *doubled(width), Residual(width, half), *doubled(half)),
        *(Residual(half, half), *doubled(half), Residual(half, quarter)),
        *(nn.GroupNorm(4, quarter), nn.SiLU(), nn.Conv2d(quarter, 3, 3, padding=1)),
    )
    return Export(
        network=network,
        inputs={"latent": torch.zeros((2, 4, 16, 24))},
        free={"latent": {0: "batch", 2: "height", 3: "width"}},
        outputs=("image",),
    )


EXPORTS: Mapping[str, Callable[[], Export]] = {
    "gpt2_past": gpt2_past,
    "whisper_encoder": whisper_encoder,
    "whisper_decoder": whisper_decoder,
    "vit_64": vit_64,
    "wav2vec2": wav2vec2,
    "style_narrow": partial(style, 8, 2),
    "style_wide": partial(style, 32, 5),
    "volume": partial(volume, free=False),
    "volume_free": partial(volume, free=True),
    "segments": partial(segments, free=False),
    "segments_free": partial(segments, free=True),
    "vae_narrow": partial(vae, 32),
    "vae_wide": partial(vae, 128),
}


def _drawn(**shapes: Sequence[int]) -> Weights:
    rng = np.random.default_rng(SEED)
    return {
        name: (rng.standard_normal(shape) * 0.3).astype(np.float32)
        for name, shape in shapes.items()
    }


def lstm_lengths() -> onnx.ModelProto:
    """A packed LSTM as torch's older exporter writes it: texts of `lengths` are sorted by these."""
    node, inner, width = helper.make_node, 16, 24
    weights = {
        **_drawn(words=(100, inner), kernel=(2, 4 * width, inner)),
        **_drawn(recurrent=(2, 4 * width, width), biases=(2, 8 * width)),
        **_drawn(head=(2 * width, 5), head_bias=(5,)),
        "first": np.int64(0),
        "second": np.int64(1),
    }
    nodes = [
        node("Shape", ["lengths"], ["count"]),
        node("TopK", ["lengths", "count"], ["sorted", "order"], axis=0),
        node("Gather", ["tokens", "order"], ["ordered"], axis=0),
        node("Gather", ["words", "ordered"], ["embedded"]),
        node("Transpose", ["embedded"], ["steps"], perm=[1, 0, 2]),
        node("Cast", ["sorted"], ["sorted32"], to=TensorProto.INT32),
        node(
            "LSTM",
            ["steps", "kernel", "recurrent", "biases", "sorted32"],
            ["", "state"],
            hidden_size=width,
            direction="bidirectional",
        ),
        node("TopK", ["order", "count"], ["by_row", "back"], axis=0, largest=0),
        node("Gather", ["state", "back"], ["states"], axis=1),
        node("Gather", ["states", "first"], ["forward"], axis=0),
        node("Gather", ["states", "second"], ["backward"], axis=0),
        node("Concat", ["forward", "backward"], ["both"], axis=1),
        node("Gemm", ["both", "head", "head_bias"], ["logits"]),
    ]
    value, integer = helper.make_tensor_value_info, TensorProto.INT64
    inputs = [value("tokens", integer, ["batch", "time"]), value("lengths", integer, ["batch"])]
    return _model(nodes, inputs, [value("logits", TensorProto.FLOAT, ["batch", 5])], weights)


def tts_durations() -> onnx.ModelProto:
    """Speech whose length follows from values: each token lasts as long as the network says."""
    node, width, hop = helper.make_node, 16, 32
    weights = {
        **_drawn(sounds=(60, width), before=(width, width, 3), lasting=(1, width, 1)),
        **_drawn(after=(width, width, 5), wave_kernel=(width, 1, hop)),
        "time": np.int64(2),
        "row": np.array([0, 1], np.int64),
        "zero": np.int64(0),
        "one": np.int64(1),
    }
    nodes = [
        node("Gather", ["sounds", "tokens"], ["embedded"]),
        node("Transpose", ["embedded"], ["channels"], perm=[0, 2, 1]),
        node("Conv", ["channels", "before"], ["seen"], pads=[1, 1]),
        node("Relu", ["seen"], ["features"]),
        node("Conv", ["features", "lasting"], ["logarithms"]),
        node("Exp", ["logarithms"], ["exact"]),
        node("Mul", ["exact", "length_scale"], ["scaled"]),
        node("Ceil", ["scaled"], ["durations"]),
        # A frame belongs to the token whose durations' running sum is the first above it.
        node("CumSum", ["durations", "time"], ["ends"]),
        node("Sub", ["ends", "durations"], ["starts"]),
        node("ReduceSum", ["durations"], ["total"], keepdims=0),
        node("Cast", ["total"], ["count"], to=TensorProto.INT64),
        node("Range", ["zero", "count", "one"], ["numbers"]),
        node("Cast", ["numbers"], ["places"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["places", "row"], ["frames"]),
        node("Transpose", ["ends"], ["ends_column"], perm=[0, 2, 1]),
        node("Transpose", ["starts"], ["starts_column"], perm=[0, 2, 1]),
        node("Less", ["frames", "ends_column"], ["not_ended"]),
        node("GreaterOrEqual", ["frames", "starts_column"], ["started"]),
        node("And", ["not_ended", "started"], ["inside"]),
        node("Cast", ["inside"], ["path"], to=TensorProto.FLOAT),
        node("MatMul", ["features", "path"], ["spread"]),
        node("Conv", ["spread", "after"], ["smooth"], pads=[2, 2]),
        node("Tanh", ["smooth"], ["bounded"]),
        node("ConvTranspose", ["bounded", "wave_kernel"], ["wave"], strides=[hop]),
    ]
    value, real = helper.make_tensor_value_info, TensorProto.FLOAT
    inputs = [
        value("tokens", TensorProto.INT64, [1, "phonemes"]),
        value("length_scale", real, [1]),
    ]
    outputs = [value("wave", real, [1, 1, "samples"])]
    return _model(nodes, inputs, outputs, weights)


def _model(
    nodes: Sequence[onnx.NodeProto], inputs: Any, outputs: Any, weights: Weights
) -> onnx.ModelProto:
    for number, node in enumerate(nodes):
        node.name = f"{node.op_type}_{number}"
    kept = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "called", inputs, outputs, kept)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


WRITTEN: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "lstm_lengths": lstm_lengths,
    "tts_durations": tts_durations,
}


def main() -> int:
    """Write each named network, or all of them."""
    names = (*EXPORTS, *WRITTEN)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks.called")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or names:
        path = arguments.folder / f"{name}.onnx"
        if name in WRITTEN:
            model = WRITTEN[name]()
            onnx.checker.check_model(model)
            path.write_bytes(model.SerializeToString(deterministic=True))
        else:
            torch.manual_seed(SEED)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                write(EXPORTS[name](), path)
        print(f"{path.stat().st_size:>11,} {path}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
