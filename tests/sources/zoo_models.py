"""The zoo: small models with random weights of the architectures that people build.

Each entry writes its source (a folder as Hugging Face's hub has it, or an exported program) and
says at which five sizes users call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An architecture: what writes its source, and the sizes of its dims at five calls.

    A source that is a text is a callable of `zoo_modules`, whose code is trusted.
    """

    name: str
    write: Callable[[Path], Path | str]
    sizes: tuple[Sizes, ...]


def text_sizes(longest: int = 64) -> tuple[Sizes, ...]:
    """Batches and lengths of texts: one short, one at the limit, and some between."""
    return tuple(
        {"batch": batch, "sequence": length}
        for batch, length in ((1, 1), (1, 7), (2, 16), (3, 33), (1, longest))
    )


def image_sizes(*sides: tuple[int, int]) -> tuple[Sizes, ...]:
    """Batches of images of `sides` (height, width)."""
    batches = (1, 2, 3, 4, 8)
    return tuple(
        {
            "batch": batches[at],
            "height": sides[at % len(sides)][0],
            "width": sides[at % len(sides)][1],
        }
        for at in range(5)
    )


def folder_of(architecture: str, config_class: str, **fields: Any) -> Callable[[Path], Path]:
    """What writes a folder of transformers' `architecture` with random weights."""

    def write(folder: Path) -> Path:
        import torch
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, config_class)(
            **{k: v() if callable(v) else v for k, v in fields.items()}
        )
        model = getattr(transformers, architecture)(config).eval()
        model.save_pretrained(folder)
        return folder

    return write


def diffusers_folder(name: str, **fields: Any) -> Callable[[Path], Path]:
    """What writes a folder of diffusers' class `name` with random weights."""

    def write(folder: Path) -> Path:
        import diffusers
        import torch

        torch.manual_seed(0)
        getattr(diffusers, name)(**fields).eval().save_pretrained(folder)
        return folder

    return write


def program_of(name: str, **sizes: int) -> Callable[[Path], Path]:
    """What exports the module `name` of `zoo_modules`, as its user does, and saves the program."""

    def write(folder: Path) -> Path:
        import torch
        import zoo_modules

        torch.manual_seed(0)
        module, inputs, dynamic = getattr(zoo_modules, name)(sizes)
        program = torch.export.export(module.eval(), (), inputs, dynamic_shapes=dynamic)
        path = folder.with_suffix(".pt2")
        torch.export.save(program, path)
        return path

    return write


def config_of(name: str, **fields: Any) -> Callable[[], Any]:
    """A configuration within another, made when it is needed."""

    def make() -> Any:
        import transformers

        return getattr(transformers, name)(**fields)

    return make


TEXT: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
DECODER: dict[str, Any] = TEXT | {
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
SPEECH: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 3),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
SQUARE = ((32, 32),)
PHOTOS = ((64, 64), (96, 64), (64, 128), (128, 128), (160, 96))
CLIPS: tuple[Sizes, ...] = tuple(
    {"batch": batch, "samples": samples}
    for batch, samples in ((1, 800), (1, 1600), (2, 3200), (3, 4001), (1, 8000))
)
PAIRS: tuple[Sizes, ...] = tuple(
    {"batch": batch, "sequence": length, "decoder_sequence": target}
    for batch, length, target in ((1, 5, 1), (1, 16, 4), (2, 9, 9), (3, 33, 12), (1, 64, 32))
)
CACHED: tuple[Sizes, ...] = tuple(
    {"batch": batch, "sequence": length, "past_sequence": past}
    for batch, length, past in ((1, 7, 0), (1, 1, 7), (2, 16, 0), (2, 1, 33), (1, 4, 12))
)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="resnet",
        write=folder_of(
            "ResNetForImageClassification",
            "ResNetConfig",
            embedding_size=16,
            hidden_sizes=[16, 32, 48, 64],
            depths=[1, 1, 1, 1],
            layer_type="basic",
        ),
        sizes=image_sizes(*PHOTOS),
    ),
    Entry(
        name="convnext",
        write=folder_of(
            "ConvNextForImageClassification",
            "ConvNextConfig",
            hidden_sizes=[16, 32, 48, 64],
            depths=[1, 1, 2, 1],
        ),
        sizes=image_sizes(*PHOTOS),
    ),
    Entry(
        name="vit",
        write=folder_of("ViTForImageClassification", "ViTConfig", **VISION),
        sizes=image_sizes(*SQUARE),
    ),
    Entry(
        name="dinov2",
        write=folder_of(
            "Dinov2Model",
            "Dinov2Config",
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
        ),
        sizes=image_sizes((32, 32), (48, 64), (96, 40), (64, 64), (56, 80)),
    ),
    Entry(
        name="swin",
        write=folder_of(
            "SwinForImageClassification",
            "SwinConfig",
            image_size=32,
            patch_size=2,
            embed_dim=16,
            depths=[1, 1],
            num_heads=[2, 4],
            window_size=4,
        ),
        sizes=image_sizes(*SQUARE),
    ),
    Entry(
        name="detr",
        write=folder_of(
            "DetrForObjectDetection",
            "DetrConfig",
            use_timm_backbone=False,
            backbone=None,
            use_pretrained_backbone=False,
            backbone_config=config_of(
                "ResNetConfig",
                embedding_size=16,
                hidden_sizes=[16, 32, 48, 64],
                depths=[1, 1, 1, 1],
                layer_type="basic",
                out_features=["stage4"],
            ),
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            num_queries=10,
        ),
        sizes=image_sizes(*PHOTOS),
    ),
    Entry(
        name="segformer",
        write=folder_of(
            "SegformerForSemanticSegmentation",
            "SegformerConfig",
            hidden_sizes=[16, 32, 48, 64],
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 2, 4, 4],
            decoder_hidden_size=32,
        ),
        sizes=image_sizes(*PHOTOS),
    ),
    Entry(
        name="clip",
        write=folder_of(
            "CLIPModel",
            "CLIPConfig",
            text_config=TEXT | {"eos_token_id": 2},
            vision_config=VISION,
            projection_dim=16,
        ),
        sizes=tuple(
            {"batch": texts, "sequence": length, "image_batch": images}
            for texts, length, images in ((1, 5, 1), (2, 16, 1), (3, 33, 2), (1, 64, 4), (4, 7, 3))
        ),
    ),
    Entry(
        name="sam_encoder",
        write=folder_of(
            "SamVisionModel",
            "SamVisionConfig",
            hidden_size=32,
            output_channels=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=64,
            patch_size=8,
            window_size=4,
            global_attn_indexes=[1],
            mlp_dim=64,
        ),
        sizes=image_sizes((64, 64)),
    ),
    Entry(
        name="bert",
        write=folder_of("BertForSequenceClassification", "BertConfig", **TEXT),
        sizes=text_sizes(),
    ),
    Entry(
        name="modernbert",
        write=folder_of(
            "ModernBertForMaskedLM",
            "ModernBertConfig",
            **TEXT
            | {
                "pad_token_id": 0,
                "local_attention": 16,
                "global_attn_every_n_layers": 2,
                "cls_token_id": 1,
                "sep_token_id": 2,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
        ),
        sizes=text_sizes(),
    ),
    Entry(
        name="roberta",
        write=folder_of("RobertaModel", "RobertaConfig", **TEXT | {"pad_token_id": 1}),
        sizes=text_sizes(62),
    ),
    Entry(
        name="longformer",
        write=folder_of(
            "LongformerForSequenceClassification",
            "LongformerConfig",
            **TEXT | {"pad_token_id": 1, "attention_window": 8},
        ),
        sizes=text_sizes(62),
    ),
    Entry(
        name="distilbert",
        write=folder_of(
            "DistilBertForTokenClassification",
            "DistilBertConfig",
            vocab_size=128,
            dim=32,
            n_layers=2,
            n_heads=4,
            hidden_dim=64,
            max_position_embeddings=64,
        ),
        sizes=text_sizes(),
    ),
    Entry(
        name="t5",
        write=folder_of(
            "T5ForConditionalGeneration",
            "T5Config",
            vocab_size=128,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        ),
        sizes=PAIRS,
    ),
    Entry(
        name="bart",
        write=folder_of(
            "BartForConditionalGeneration",
            "BartConfig",
            vocab_size=128,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=64,
        ),
        sizes=PAIRS,
    ),
    Entry(
        name="gpt2",
        write=folder_of(
            "GPT2LMHeadModel",
            "GPT2Config",
            vocab_size=128,
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=4,
            bos_token_id=1,
            eos_token_id=2,
        ),
        sizes=CACHED,
    ),
    Entry(
        name="llama", write=folder_of("LlamaForCausalLM", "LlamaConfig", **DECODER), sizes=CACHED
    ),
    Entry(
        name="mistral",
        write=folder_of("MistralForCausalLM", "MistralConfig", **DECODER | {"sliding_window": 16}),
        sizes=CACHED,
    ),
    Entry(name="qwen", write=folder_of("Qwen2ForCausalLM", "Qwen2Config", **DECODER), sizes=CACHED),
    Entry(name="phi", write=folder_of("PhiForCausalLM", "PhiConfig", **DECODER), sizes=CACHED),
    Entry(
        name="gemma",
        write=folder_of("GemmaForCausalLM", "GemmaConfig", **DECODER | {"head_dim": 8}),
        sizes=CACHED,
    ),
    Entry(
        name="mamba",
        write=folder_of(
            "MambaForCausalLM",
            "MambaConfig",
            vocab_size=128,
            hidden_size=32,
            state_size=8,
            num_hidden_layers=2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
        sizes=tuple({"batch": batch, "sequence": 11} for batch in (1, 2, 3, 5, 8)),
    ),
    Entry(
        name="whisper",
        write=folder_of(
            "WhisperForConditionalGeneration",
            "WhisperConfig",
            vocab_size=128,
            num_mel_bins=16,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=50,
            max_target_positions=32,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            suppress_tokens=None,
            begin_suppress_tokens=None,
        ),
        sizes=tuple(
            {"batch": batch, "decoder_sequence": length}
            for batch, length in ((1, 1), (1, 4), (2, 9), (3, 12), (1, 32))
        ),
    ),
    Entry(
        name="wav2vec2", write=folder_of("Wav2Vec2ForCTC", "Wav2Vec2Config", **SPEECH), sizes=CLIPS
    ),
    Entry(name="hubert", write=folder_of("HubertModel", "HubertConfig", **SPEECH), sizes=CLIPS),
    Entry(
        name="vae",
        write=diffusers_folder(
            "AutoencoderKL",
            block_out_channels=(16, 32),
            norm_num_groups=8,
            latent_channels=4,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            sample_size=32,
        ),
        sizes=image_sizes((32, 32), (64, 64), (64, 32), (48, 80), (96, 96)),
    ),
    Entry(
        name="unet",
        write=diffusers_folder(
            "UNet2DConditionModel",
            sample_size=16,
            block_out_channels=(16, 32),
            norm_num_groups=8,
            layers_per_block=1,
            cross_attention_dim=32,
            attention_head_dim=4,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        ),
        sizes=tuple(
            {"batch": batch, "height": height, "width": width, "sequence": length}
            for batch, height, width, length in (
                (1, 16, 16, 7),
                (2, 16, 16, 7),
                (1, 32, 32, 12),
                (2, 24, 16, 5),
                (1, 8, 32, 20),
            )
        ),
    ),
    Entry(
        name="mobilenetv3",
        write=program_of("mobilenetv3", batch=2, height=64, width=96),
        sizes=image_sizes(*PHOTOS),
    ),
    Entry(
        name="gru",
        write=lambda _: "zoo_modules:packed_gru",
        sizes=tuple({"batch": batch, "length": length} for batch, length in ((1, 7), (4, 20))),
    ),
    Entry(
        name="tabnet",
        write=program_of("tabnet", batch=3),
        sizes=tuple({"batch": batch} for batch in (1, 2, 7, 64, 256)),
    ),
    Entry(
        name="gnn",
        write=program_of("gnn", nodes=6, edges=11),
        sizes=tuple(
            {"nodes": nodes, "edges": edges}
            for nodes, edges in ((2, 1), (5, 12), (10, 30), (34, 156), (100, 400))
        ),
    ),
    Entry(
        name="policy",
        write=program_of("policy", batch=3),
        sizes=tuple({"batch": batch} for batch in (1, 2, 8, 64, 256)),
    ),
)
