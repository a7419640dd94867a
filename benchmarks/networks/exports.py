"""Networks with random weights, exported as users do.

`python benchmarks/networks/exports.py FOLDER [NAME…] [--small]` writes NAME.onnx with torch's
exporter and `dynamic_shapes`, weights inside; `--opset` and `--dtype` are those of the export.  It
needs packages that neither the toolchain nor its tests need: torch, transformers, onnx and
onnxscript (2.13, 5.23, 1.23 and 0.7.2 wrote the committed files).  `--small` keeps the structure of
a graph, with a few layers and channels: such are the files of `tests/data/exports`.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import torch  # type: ignore[import-not-found,unused-ignore]
import transformers  # type: ignore[import-not-found,unused-ignore]
from transformers.cache_utils import (  # type: ignore[import-not-found,unused-ignore]
    DynamicCache,
    StaticCache,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.networks import exported_networks as networks

OPSET = 18
DTYPES = ("float32", "float16", "bfloat16")
SEED = 1729


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A network, the inputs of its trace, and the names of inputs, free dims and outputs."""

    network: Any
    inputs: dict[str, Any]
    free: dict[str, dict[int, str]]
    outputs: tuple[str, ...]
    dim_names: dict[str, dict[int, str]] | None = None
    """Names for dims of inputs, which replace those of the exporter."""


class WithPositionalInputs(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A network with positional tensors as inputs, which `call` converts to its own form."""

    def __init__(self, network: Any, call: Callable[..., Any]) -> None:
        super().__init__()
        self.network = network
        self.call = call

    def forward(self, *tensors: Any) -> Any:
        """The result of `call`."""
        return self.call(self.network, *tensors)


def decoder_export(
    network: Any, layers: int, heads: int, width: int, *, past: bool = True
) -> Export:
    """A decoder of `input_ids`, `attention_mask` and, per layer, keys and values of the past."""
    batch, sequence, before = 2, 5, 7 if past else 0
    inputs = {
        "input_ids": torch.zeros((batch, sequence), dtype=torch.int64),
        "attention_mask": torch.ones((batch, sequence + before), dtype=torch.int64),
    }
    free = {"input_ids": {0: "batch", 1: "sequence"}}
    free["attention_mask"] = {0: "batch", 1: "total" if past else "sequence"}
    outputs = ["logits"]
    if past:
        for layer in range(layers):
            for kind in ("key", "value"):
                name = f"past_key_values.{layer}.{kind}"
                inputs[name] = torch.zeros((batch, heads, before, width))
                free[name] = {0: "batch", 2: "past_sequence"}
                outputs.append(f"present.{layer}.{kind}")

    def call(network: Any, ids: Any, mask: Any, *held: Any) -> Any:
        pairs = list(zip(held[::2], held[1::2], strict=True))
        cache = DynamicCache(pairs) if past else None
        answer = network(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=past)
        if not past:
            return answer.logits
        layers = answer.past_key_values.layers
        return answer.logits, *(tensor for layer in layers for tensor in (layer.keys, layer.values))

    return Export(
        network=WithPositionalInputs(network, call),
        inputs=inputs,
        free=free,
        outputs=tuple(outputs),
    )


def gpt2(small: bool) -> Export:
    """GPT-2 with past."""
    sizes = {"n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 64}
    configuration = transformers.GPT2Config(**sizes if small else {})
    network = transformers.GPT2LMHeadModel(configuration)
    heads = configuration.n_head
    return decoder_export(network, configuration.n_layer, heads, configuration.n_embd // heads)


def gpt2_loose(small: bool) -> Export:
    """`gpt2`, with separate names for the mask's batch and each layer's past."""
    export = gpt2(small)
    names = {"attention_mask": {0: "mask_batch", 1: "total"}}
    for name in list(export.inputs)[2:]:
        names[name] = {0: f"{name}_batch", 2: f"{name}_sequence"}
    return replace(export, dim_names=names)


def _llama(small: bool, attention: str) -> Export:
    sizes = {
        "hidden_size": 16 if small else 512,
        "intermediate_size": 32 if small else 1376,
        "num_hidden_layers": 2 if small else 8,
        "num_attention_heads": 2 if small else 8,
        "num_key_value_heads": 1 if small else 4,
        "vocab_size": 64 if small else 16000,
    }
    configuration = transformers.LlamaConfig(**sizes, attn_implementation=attention)
    network = transformers.LlamaForCausalLM(configuration)
    width = configuration.hidden_size // configuration.num_attention_heads
    return decoder_export(
        network, configuration.num_hidden_layers, configuration.num_key_value_heads, width
    )


def llama_eager(small: bool) -> Export:
    """Llama with past; its attention is written as single operators."""
    return _llama(small, "eager")


def llama_sdpa(small: bool) -> Export:
    """Llama with past; its attention is torch's one operator."""
    return _llama(small, "sdpa")


def qwen3(small: bool) -> Export:
    """Qwen3 with past, and positions as an input; its queries and keys are normalized."""
    sizes = {
        "hidden_size": 16 if small else 512,
        "intermediate_size": 32 if small else 1376,
        "num_hidden_layers": 2 if small else 8,
        "num_attention_heads": 4 if small else 8,
        "num_key_value_heads": 2 if small else 4,
        "head_dim": 4 if small else 64,
        "vocab_size": 64 if small else 16000,
    }
    configuration = transformers.Qwen3Config(**sizes)
    return _with_positions(
        decoder_export(
            transformers.Qwen3ForCausalLM(configuration),
            configuration.num_hidden_layers,
            configuration.num_key_value_heads,
            configuration.head_dim,
        )
    )


def _with_positions(export: Export) -> Export:
    """A decoder whose last input are the positions of its ids."""
    ids, named = export.inputs["input_ids"], export.network

    def call(network: Any, *tensors: Any) -> Any:
        def at_positions(**given: Any) -> Any:
            return network(**given, position_ids=tensors[-1])

        return named.call(at_positions, *tensors[:-1])

    return replace(
        export,
        network=WithPositionalInputs(named.network, call),
        inputs={**export.inputs, "position_ids": torch.zeros_like(ids)},
        free={**export.free, "position_ids": export.free["input_ids"]},
    )


def gpt_neox(small: bool) -> Export:
    """GPT-NeoX with past: a quarter of each head is turned by its position."""
    sizes = {
        "hidden_size": 32 if small else 512,
        "intermediate_size": 32 if small else 2048,
        "num_hidden_layers": 2 if small else 8,
        "num_attention_heads": 2 if small else 8,
        "vocab_size": 64 if small else 16000,
    }
    configuration = transformers.GPTNeoXConfig(**sizes)
    network = transformers.GPTNeoXForCausalLM(configuration)
    heads = configuration.num_attention_heads
    width = configuration.hidden_size // heads
    return decoder_export(network, configuration.num_hidden_layers, heads, width)


def modernbert(small: bool) -> Export:
    """ModernBERT: local and global attention, with positions of their own."""
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "vocab_size": 64,
        "local_attention": 4,
        "global_attn_every_n_layers": 2,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    }
    network = transformers.ModernBertModel(transformers.ModernBertConfig(**sizes if small else {}))
    names = ("input_ids", "attention_mask")
    return Export(
        network=WithPositionalInputs(
            network,
            lambda network, ids, mask: (
                network(input_ids=ids, attention_mask=mask).last_hidden_state
            ),
        ),
        inputs={name: torch.ones((2, 7), dtype=torch.int64) for name in names},
        free={name: {0: "batch", 1: "sequence"} for name in names},
        outputs=("last_hidden_state",),
    )


def llama_static(small: bool) -> Export:
    """The network of `llama_sdpa`, one sequence, with a static cache of 32 rows.

    It is called with how many rows hold tokens, and with all of them.
    """
    growing = llama_sdpa(small)
    rows = 32
    before = {name: held for name, held in growing.inputs.items() if "key_values" in name}
    caches = {
        name: torch.zeros((1, held.shape[1], rows, held.shape[3])) for name, held in before.items()
    }

    def call(network: Any, ids: Any, length: Any, *held: Any) -> Any:
        cache = StaticCache(config=network.config, max_cache_len=rows)
        pairs = zip(held[::2], held[1::2], strict=True)
        for layer, (keys, values) in zip(cache.layers, pairs, strict=True):
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys.clone(), values.clone()
            layer.cumulative_length = length.clone()
        answer = network(input_ids=ids, past_key_values=cache, use_cache=True)
        return answer.logits, *(held for each in cache.layers for held in (each.keys, each.values))

    return Export(
        network=WithPositionalInputs(growing.network.network, call),
        inputs={
            "input_ids": torch.zeros((1, 5), dtype=torch.int64),
            "length": torch.tensor(7),
            **caches,
        },
        free={"input_ids": {1: "sequence"}},
        outputs=growing.outputs,
    )


def decoder(small: bool) -> Export:
    """A decoder of some 5 million parameters, without a past."""
    sizes = {
        "n_layer": 2 if small else 5,
        "n_embd": 8 if small else 256,
        "n_head": 2 if small else 4,
        "vocab_size": 64 if small else 4000,
        "n_positions": 512,
    }
    network = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    return decoder_export(network, 0, 0, 0, past=False)


def bert(small: bool) -> Export:
    """BERT-base: ids, mask and token types to hidden states and the pooled first."""
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "vocab_size": 64,
    }
    network = transformers.BertModel(transformers.BertConfig(**sizes if small else {}))
    names = ("input_ids", "attention_mask", "token_type_ids")
    filled = dict(zip(names, (0, 1, 0), strict=True))
    return Export(
        network=WithPositionalInputs(
            network,
            lambda network, ids, mask, types: tuple(
                network(input_ids=ids, attention_mask=mask, token_type_ids=types).values()
            ),
        ),
        inputs={name: torch.full((2, 7), value) for name, value in filled.items()},
        free={name: {0: "batch", 1: "sequence"} for name in names},
        outputs=("last_hidden_state", "pooler_output"),
    )


def _whisper(small: bool, free: dict[int, str]) -> Export:
    sizes = {
        "d_model": 8 if small else 384,
        "encoder_layers": 2 if small else 4,
        "encoder_attention_heads": 2 if small else 6,
        "encoder_ffn_dim": 32 if small else 1536,
        "num_mel_bins": 8 if small else 80,
        "max_source_positions": 1500,
    }
    configuration = transformers.WhisperConfig(**sizes)
    network = transformers.models.whisper.modeling_whisper.WhisperEncoder(configuration)

    def call(network: Any, features: Any) -> Any:
        return network(input_features=features).last_hidden_state

    features = torch.zeros((2, configuration.num_mel_bins, 3000))
    return Export(
        network=WithPositionalInputs(network, call),
        inputs={"input_features": features},
        free={"input_features": free},
        outputs=("last_hidden_state",),
    )


def whisper(small: bool) -> Export:
    """Whisper's encoder, batch and frames declared free, although it only takes 3,000 frames."""
    names = {"input_features": {0: "batch", 2: "frames"}}
    return replace(_whisper(small, {0: "batch"}), dim_names=names)


def whisper_fixed(small: bool) -> Export:
    """Whisper's encoder with only the batch declared free, 3,000 frames stated by the graph."""
    return _whisper(small, {0: "batch"})


def _classifier(network: Any) -> Any:
    return WithPositionalInputs(network, lambda network, image: network(pixel_values=image).logits)


def resnet50(small: bool) -> Export:
    """ResNet-50 for images of any size, whose last features are averaged."""
    sizes = {
        "embedding_size": 8,
        "hidden_sizes": [8, 8, 16, 16],
        "depths": [1, 1, 1, 1],
        "num_labels": 10,
    }
    configuration = transformers.ResNetConfig(**sizes if small else {"num_labels": 1000})
    return Export(
        network=_classifier(transformers.ResNetForImageClassification(configuration)),
        inputs={"pixel_values": torch.zeros((2, 3, 224, 224))},
        free={"pixel_values": {0: "batch", 2: "height", 3: "width"}},
        outputs=("logits",),
    )


def vit(small: bool) -> Export:
    """ViT at 224 by 224, batch free."""
    sizes = {
        "num_hidden_layers": 2 if small else 12,
        "hidden_size": 8 if small else 384,
        "num_attention_heads": 2 if small else 6,
        "intermediate_size": 32 if small else 1536,
        "num_labels": 10 if small else 1000,
    }
    network = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes))
    return Export(
        network=_classifier(network),
        inputs={"pixel_values": torch.zeros((2, 3, 224, 224))},
        free={"pixel_values": {0: "batch"}},
        outputs=("logits",),
    )


def unet(small: bool) -> Export:
    """A U-Net with batch 1; height and width are free multiples of 16 (8 if small)."""
    return Export(
        network=networks.UNet(*((2, 3, 2) if small else (32, 4, 2))),
        inputs={"image": torch.zeros((1, 3, 64, 96))},
        free={"image": {2: "height", 3: "width"}},
        outputs=("mask",),
        dim_names={"image": {2: "height", 3: "width"}},
    )


def _detector_export(network: Any) -> Export:
    return Export(
        network=network,
        inputs={"images": torch.zeros((1, 3, 320, 448))},
        free={"images": {2: "height", 3: "width"}},
        outputs=("scores", "boxes"),
        dim_names={"images": {2: "height", 3: "width"}},
    )


def detector(small: bool) -> Export:
    """A detector whose levels are concatenated: batch 1, height and width multiples of 32."""
    return _detector_export(networks.Detector(*((2, 3) if small else (48, 80))))


def text(small: bool) -> Export:
    """A detector whose levels are added: multiples of 32, and by accident sizes 1 to 4."""
    export = _detector_export(networks.Text(2 if small else 48))
    return replace(export, outputs=("text",))


def style(small: bool) -> Export:
    """Style transfer, whose three free dims are all named `None`."""
    return Export(
        network=networks.Style(*((2, 1) if small else (32, 5))),
        inputs={"image": torch.zeros((2, 3, 64, 96))},
        free={"image": {0: "batch", 2: "height", 3: "width"}},
        outputs=("stylized",),
        dim_names={"image": {0: "None", 2: "None", 3: "None"}},
    )


def outer(small: bool) -> Export:
    """A product of three vectors: less than 1 kB, and n·m·k elements."""
    sizes = (("x", "n", 3), ("y", "m", 4), ("z", "k", 5))
    return Export(
        network=networks.Outer(),
        inputs={name: torch.zeros(size) for name, _, size in sizes},
        free={name: {0: dim} for name, dim, _ in sizes},
        outputs=("mean",),
    )


EXPORTS: dict[str, Callable[[bool], Export]] = {
    network.__name__: network
    for network in (
        gpt2,
        gpt2_loose,
        llama_eager,
        llama_sdpa,
        qwen3,
        gpt_neox,
        modernbert,
        llama_static,
        decoder,
        bert,
        whisper,
        whisper_fixed,
        resnet50,
        vit,
        unet,
        detector,
        text,
        style,
        outer,
    )
}


def write(export: Export, path: Path, opset: int = OPSET) -> None:
    """Export to `path`, weights inside."""
    names = list(export.inputs)
    program = torch.onnx.export(
        export.network.eval(),
        tuple(export.inputs.values()),
        dynamo=True,
        opset_version=opset,
        input_names=names,
        output_names=list(export.outputs),
        dynamic_shapes=_dynamic(export),
        external_data=False,
        verbose=False,
    )
    model = program.model_proto
    for value in model.graph.input:
        for axis, name in (export.dim_names or {}).get(value.name, {}).items():
            value.type.tensor_type.shape.dim[axis].dim_param = name
    _remove_traces(model)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def in_type(export: Export, dtype: Any) -> Export:
    """The network, and its inputs of floating-point numbers, in another type of torch."""
    inputs = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in export.inputs.items()
    }
    return replace(export, network=export.network.to(dtype), inputs=inputs)


def _dynamic(export: Export) -> Any:
    shapes = tuple(export.free.get(name, {}) for name in export.inputs)
    return (shapes,) if isinstance(export.network, WithPositionalInputs) else shapes


def _remove_traces(model: onnx.ModelProto) -> None:
    """Remove traces of the exporting machine: paths, stack traces and module names."""
    del model.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in model.graph.value_info:
        del value.metadata_props[:]
    for tensor in model.graph.initializer:
        tensor.doc_string = ""
    for value in [*model.graph.input, *model.graph.output]:
        del value.metadata_props[:]


def main() -> int:
    """Write each named export, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXPORTS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--opset", type=int, default=OPSET)
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
    arguments = parser.parse_args()
    dtype = getattr(torch, arguments.dtype)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or EXPORTS:
        torch.manual_seed(SEED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = arguments.folder / f"{name}.onnx"
            write(in_type(EXPORTS[name](arguments.small), dtype), path, arguments.opset)
        print(f"{path.stat().st_size:>11,} {path}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
