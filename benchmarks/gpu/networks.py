"""The networks with random weights, exported by torch's exporter with a free batch, in float32.

`python -m benchmarks.gpu.networks NAME PATH OPSET [--small]` writes one of them.  Configurations
are those of `transformers` unless stated; MobileNetV3 is timm's, DenseNet torchvision's.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
import transformers  # type: ignore[import-not-found,unused-ignore]

from benchmarks.gpu.diffusion import DiffusionUNet
from benchmarks.gpu.initial_weights import settle
from benchmarks.networks import exports
from benchmarks.networks.exports import Export, WithPositionalInputs, decoder_export

_HIDDEN = "last_hidden_state"
# torch 2.13 does not export the fused attention of these; what it is compared with has it.
_EAGER = frozenset({"swin_t", "beit"})
_TINY = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
_TINY_TEXT = {**_TINY, "vocab_size": 64}


def _of_image(network: Any, output: str = "", *, size: int = 224) -> Export:
    """A network of images, batch free, to one of its outputs; without a name its only one."""

    def call(network: Any, image: Any) -> Any:
        return getattr(network(pixel_values=image), output) if output else network(image)

    return Export(
        network=WithPositionalInputs(network, call),
        inputs={"pixel_values": torch.zeros((2, 3, size, size))},
        free={"pixel_values": {0: "batch"}},
        outputs=(output or "logits",),
    )


def _of_text(network: Any, *, masked: bool = True) -> Export:
    """A network of ids, and of a padding mask, to its last hidden state."""
    names = ("input_ids", "attention_mask")[: 1 + masked]

    def call(network: Any, ids: Any, *mask: Any) -> Any:
        given = {"attention_mask": mask[0]} if mask else {}
        return network(input_ids=ids, **given).last_hidden_state

    return Export(
        network=WithPositionalInputs(network, call),
        inputs={name: torch.ones((2, 7), dtype=torch.int64) for name in names},
        free={name: {0: "batch", 1: "sequence"} for name in names},
        outputs=(_HIDDEN,),
    )


# Tuned: what earlier work was measured on.


def _resnet50(small: bool) -> Export:
    return replace(exports.resnet50(small), free={"pixel_values": {0: "batch"}})


def _vit(small: bool) -> Export:
    configuration = transformers.ViTConfig(**_TINY if small else {})
    return _of_image(transformers.ViTModel(configuration, add_pooling_layer=False), _HIDDEN)


def _bert(small: bool) -> Export:
    configuration = transformers.BertConfig(**_TINY_TEXT if small else {})
    return _of_text(transformers.BertModel(configuration, add_pooling_layer=False))


# Named: those that were found wanting.


def _mobilenet_v3(small: bool) -> Export:
    import timm  # type: ignore[import-not-found,unused-ignore]

    return _of_image(
        timm.create_model("mobilenetv3_small_050" if small else "mobilenetv3_large_100")
    )


def _efficientnet_b0(small: bool) -> Export:
    scale = 0.1 if small else 1.0
    configuration = transformers.EfficientNetConfig(
        width_coefficient=scale,
        depth_coefficient=scale,
        hidden_dim=int(1280 * scale),
        dropout_rate=0.2,
    )
    return _of_image(transformers.EfficientNetForImageClassification(configuration), "logits")


def _convnext_t(small: bool) -> Export:
    sizes = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]} if small else {}
    configuration = transformers.ConvNextConfig(**sizes)
    return _of_image(transformers.ConvNextForImageClassification(configuration), "logits")


def _swin_t(small: bool) -> Export:
    sizes = {"embed_dim": 12, "depths": [1, 1, 2, 1]} if small else {}
    configuration = transformers.SwinConfig(**sizes)
    return _of_image(transformers.SwinForImageClassification(configuration), "logits")


def _modernbert(small: bool) -> Export:
    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
    ends |= dict.fromkeys(("cls_token_id", "sep_token_id"), 0)
    sizes = {**_TINY_TEXT, **ends} if small else {}
    configuration = transformers.ModernBertConfig(**sizes, attn_implementation="sdpa")
    return _of_text(transformers.ModernBertModel(configuration))


def _clip_text(small: bool) -> Export:
    sizes = {**_TINY_TEXT, "bos_token_id": 1, "eos_token_id": 2} if small else {}
    network = transformers.CLIPTextModel(transformers.CLIPTextConfig(**sizes))

    def call(network: Any, ids: Any) -> Any:
        found = network(input_ids=ids)
        return found.last_hidden_state, found.pooler_output

    return Export(
        network=WithPositionalInputs(network, call),
        inputs={"input_ids": torch.ones((2, 77), dtype=torch.int64)},
        free={"input_ids": {0: "batch"}},
        outputs=(_HIDDEN, "pooler_output"),
    )


def _llama_step(small: bool) -> Export:
    """16 layers of 1,024, with 16 heads and 4 of keys and values."""
    configuration = transformers.LlamaConfig(
        hidden_size=32 if small else 1024,
        intermediate_size=64 if small else 2816,
        num_hidden_layers=2 if small else 16,
        num_attention_heads=4 if small else 16,
        num_key_value_heads=2 if small else 4,
        vocab_size=64 if small else 32000,
    )
    network = transformers.LlamaForCausalLM(configuration)
    heads, layers = configuration.num_key_value_heads, configuration.num_hidden_layers
    return decoder_export(network, layers, heads, 8 if small else 64)


def _segformer(small: bool) -> Export:
    """B0 at 512 by 512, 150 classes."""
    sizes = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16}
    configuration = transformers.SegformerConfig(num_labels=150, **sizes if small else {})
    network = transformers.SegformerForSemanticSegmentation(configuration)
    return _of_image(network, "logits", size=64 if small else 512)


def _wav2vec2(small: bool) -> Export:
    """Base, for five seconds of sound."""
    sizes = {"conv_dim": [8] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    configuration = transformers.Wav2Vec2Config(**{**_TINY, **sizes} if small else {})
    network = transformers.Wav2Vec2Model(configuration)
    return Export(
        network=WithPositionalInputs(network, lambda network, sound: network(sound)[0]),
        inputs={"input_values": torch.zeros((2, 4000 if small else 80000))},
        free={"input_values": {0: "batch"}},
        outputs=(_HIDDEN,),
    )


def _unet(small: bool) -> Export:
    """A U-Net of diffusion at 64 by 64, of a noisy image and a step to the noise."""
    size = 16 if small else 64
    return Export(
        network=DiffusionUNet(32 if small else 128),
        inputs={"sample": torch.zeros((2, 4, size, size)), "step": torch.zeros((2,))},
        free={"sample": {0: "batch"}, "step": {0: "batch"}},
        outputs=("noise",),
    )


def _focalnet(small: bool) -> Export:
    sizes = {"embed_dim": 8, "depths": [1, 1, 1, 1]} if small else {}
    configuration = transformers.FocalNetConfig(**sizes)
    return _of_image(transformers.FocalNetForImageClassification(configuration), "logits")


# Untouched: nobody looks at them while tuning (ADR 99).


def _regnet(small: bool) -> Export:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
    configuration = transformers.RegNetConfig(**{**sizes, "groups_width": 8} if small else {})
    return _of_image(transformers.RegNetForImageClassification(configuration), "logits")


def _dinov2(small: bool) -> Export:
    sizes = {"hidden_size": 384, "num_attention_heads": 6, "image_size": 224, "patch_size": 14}
    configuration = transformers.Dinov2Config(**{**sizes, **(_TINY if small else {})})
    return _of_image(transformers.Dinov2Model(configuration), _HIDDEN)


def _yolos(small: bool) -> Export:
    sizes = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768}
    size = [64, 64] if small else [512, 512]
    configuration = transformers.YolosConfig(
        **{**sizes, **(_TINY if small else {})}, image_size=size
    )
    return _of_image(transformers.YolosForObjectDetection(configuration), "logits", size=size[0])


def _siglip(small: bool) -> Export:
    configuration = transformers.SiglipVisionConfig(**_TINY if small else {})
    return _of_image(transformers.SiglipVisionModel(configuration), _HIDDEN)


def _beit(small: bool) -> Export:
    configuration = transformers.BeitConfig(
        **_TINY if small else {}, use_relative_position_bias=True, use_mask_token=False
    )
    return _of_image(transformers.BeitModel(configuration, add_pooling_layer=False), _HIDDEN)


def _densenet(small: bool) -> Export:
    from torchvision.models import (  # type: ignore[import-not-found,unused-ignore]
        DenseNet,
        densenet121,
    )

    return _of_image(DenseNet(4, (1, 1, 1, 1), 8) if small else densenet121())


def _poolformer(small: bool) -> Export:
    sizes = {"depths": [1] * 4, "hidden_sizes": [8, 8, 16, 16]} if small else {}
    configuration = transformers.PoolFormerConfig(**sizes)
    return _of_image(transformers.PoolFormerForImageClassification(configuration), "logits")


def _levit(small: bool) -> Export:
    sizes = {"hidden_sizes": [16, 24, 32], "depths": [1, 1, 1], "num_attention_heads": [1, 2, 2]}
    configuration = transformers.LevitConfig(**{**sizes, "key_dim": [8] * 3} if small else {})
    return _of_image(transformers.LevitForImageClassification(configuration), "logits")


def _distilbert(small: bool) -> Export:
    sizes = {"n_layers": 2, "dim": 32, "n_heads": 2, "hidden_dim": 64, "vocab_size": 64}
    configuration = transformers.DistilBertConfig(**sizes if small else {})
    return _of_text(transformers.DistilBertModel(configuration))


def _electra(small: bool) -> Export:
    configuration = transformers.ElectraConfig(**_TINY_TEXT if small else {})
    return _of_text(transformers.ElectraModel(configuration))


def _albert(small: bool) -> Export:
    sizes = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    configuration = transformers.AlbertConfig(**{**sizes, **(_TINY_TEXT if small else {})})
    return _of_text(transformers.AlbertModel(configuration, add_pooling_layer=False))


def _bart(small: bool) -> Export:
    sizes = {"vocab_size": 64, "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2}
    configuration = transformers.BartConfig(**{**sizes, "encoder_ffn_dim": 64} if small else {})
    return _of_text(transformers.BartModel(configuration).get_encoder())


def _opt_step(small: bool) -> Export:
    sizes = {**_TINY_TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32} if small else {}
    configuration = transformers.OPTConfig(**sizes)
    heads, layers = configuration.num_attention_heads, configuration.num_hidden_layers
    network = transformers.OPTForCausalLM(configuration)
    return decoder_export(network, layers, heads, configuration.hidden_size // heads)


def _persimmon_step(small: bool) -> Export:
    """Of 160 million parameters; half of each head is turned, and heads are normalized."""
    sizes = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    sizes |= {"intermediate_size": 3072, "vocab_size": 50304, **(_TINY_TEXT if small else {})}
    configuration = transformers.PersimmonConfig(**sizes)
    heads, layers = configuration.num_attention_heads, configuration.num_hidden_layers
    network = transformers.PersimmonForCausalLM(configuration)
    return decoder_export(network, layers, heads, configuration.hidden_size // heads)


NETWORKS: Mapping[str, Callable[[bool], Export]] = {
    "resnet50": _resnet50,
    "bert": _bert,
    "vit": _vit,
    "mobilenet_v3": _mobilenet_v3,
    "efficientnet_b0": _efficientnet_b0,
    "convnext_t": _convnext_t,
    "swin_t": _swin_t,
    "modernbert": _modernbert,
    "clip_text": _clip_text,
    "llama_step": _llama_step,
    "segformer": _segformer,
    "wav2vec2": _wav2vec2,
    "unet": _unet,
    "focalnet": _focalnet,
    "regnet": _regnet,
    "dinov2": _dinov2,
    "yolos": _yolos,
    "siglip": _siglip,
    "beit": _beit,
    "densenet": _densenet,
    "poolformer": _poolformer,
    "levit": _levit,
    "distilbert": _distilbert,
    "electra": _electra,
    "albert": _albert,
    "bart": _bart,
    "opt_step": _opt_step,
    "persimmon_step": _persimmon_step,
}


def settled(name: str, small: bool) -> Export:
    """A network whose answers can be judged, with the same weights each time."""
    torch.manual_seed(exports.SEED)
    export = NETWORKS[name](small)
    settle(export.network, list(export.inputs.values()))
    return export


def network(name: str, small: bool) -> Any:
    """The torch module, whose inputs are those of the exported graph, in order."""
    return settled(name, small).network


def main() -> int:
    """Export one network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(NETWORKS))
    parser.add_argument("path", type=Path)
    parser.add_argument("opset", type=int)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    partial = arguments.path.with_suffix(".partial")
    export = settled(arguments.name, arguments.small)
    if arguments.name in _EAGER:
        export.network.network.set_attn_implementation("eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exports.write(export, partial, arguments.opset)
    partial.rename(arguments.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
