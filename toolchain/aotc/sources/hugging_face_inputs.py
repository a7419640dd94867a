"""What a model of Hugging Face's libraries takes: inputs, dims and values, from its config.

Names of parameters mean the same in all of their models, and configs say the sizes: that is all
that is known here.  That a dim is free is supposed, and put to the test by running the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from aotc.base.errors import AotcError
from aotc.base.records import field, record

if TYPE_CHECKING:
    import numpy as np

Settings = Callable[..., Any]
"""The first of the named settings that the model's config, or a config within it, has; or None."""
Fill = Literal["ids", "ones", "positions", "noise", "steps"]

# Configs within a config, in the order in which a setting is looked for.
_WITHIN: Final = ("text_config", "vision_config", "audio_config", "backbone_config", "decoder")
_BATCH: Final = 2
_IMAGES: Final = 3
_LENGTH: Final = 11
_TARGET: Final = 5
_SAMPLES: Final = 4000
_SIDE: Final = 64
# A range is run at its limit: a build does not end in a context of 128k positions.
LONGEST: Final = 2048
# torch.export did not end within ten minutes on Swin with free sides.
_WINDOWS: Final = "windows are padded and shifted by the image's sides, which torch.export cannot"
_LIMITS: Final = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")


@record
class FreeDim:
    """A dim that may be of several sizes: those that an example and a trial have, and its limit."""

    example: int
    other: Annotated[int, "another size, with which the model is tried"]
    max: Annotated[int | None, "as the config states it; None: it states none"] = None
    kept: Annotated[str, "why it is exported with the example's size alone; empty: it is free"] = ""


@record
class ModelInput:
    """An input: by its name as a parameter, with names of free dims and sizes of the others."""

    name: str
    dims: tuple[str | int, ...]
    fill: Fill = "noise"
    below: Annotated[int, "of ids: the size of the vocabulary"] = 0


@record
class Described:
    """All inputs of a model, and the free dims that they have."""

    inputs: tuple[ModelInput, ...]
    dims: Mapping[str, FreeDim] = field(default_factory=dict)

    def arrays(self, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """Values of all inputs, equal for equal seeds; dims without a size have the example's."""
        import numpy as np

        drawn = np.random.default_rng(seed)
        made: dict[str, np.ndarray[Any, Any]] = {}
        for each in self.inputs:
            shape = tuple(self.size(dim, sizes) for dim in each.dims)
            if each.fill == "ids":
                made[each.name] = drawn.integers(0, each.below, shape, dtype=np.int64)
            elif each.fill == "ones":
                made[each.name] = np.ones(shape, np.int64)
            elif each.fill == "positions":
                first = sizes.get("past_sequence", self.dims["past_sequence"].example)
                made[each.name] = np.broadcast_to(
                    np.arange(first, first + shape[-1], dtype=np.int64), shape
                ).copy()
            elif each.fill == "steps":
                made[each.name] = drawn.integers(0, 1000, shape, dtype=np.int64)
            else:
                made[each.name] = drawn.standard_normal(shape, dtype=np.float32)
        return made

    def size(self, dim: str | int, sizes: Mapping[str, int]) -> int:
        """The size of a dim of an input where free dims have `sizes`."""
        if isinstance(dim, int):
            return dim
        if dim == "total_sequence":
            return self.size("past_sequence", sizes) + self.size("sequence", sizes)
        return sizes[dim] if dim in sizes else self.dims[dim].example

    def fixed(self, names: Collection[str]) -> Described:
        """The same with the dims `names` at their example's size, and no longer free."""
        inputs = tuple(
            ModelInput(
                name=each.name,
                dims=tuple(
                    self.dims[dim].example if isinstance(dim, str) and dim in names else dim
                    for dim in each.dims
                ),
                fill=each.fill,
                below=each.below,
            )
            for each in self.inputs
        )
        return Described(
            inputs=inputs, dims={name: of for name, of in self.dims.items() if name not in names}
        )


def settings_of(config: object) -> Settings:
    """How settings are found in `config`, a config of transformers or diffusers."""

    def find(*names: str) -> Any:
        places = [config, *(getattr(config, name, None) for name in _WITHIN)]
        for name in names:
            for place in places:
                value = getattr(place, name, None)
                if value is not None and not callable(value):
                    return value
        return None

    return find


def describe(
    parameters: Mapping[str, bool],
    settings: Settings,
    *,
    model: str,
    tokenizer: Collection[str] = (),
    cached: Cached | None = None,
) -> Described:
    """What a model takes whose `forward` has `parameters`, by name whether it must be given.

    `tokenizer` are the inputs that the model's own tokenizer gives; `cached`: the model takes its
    cache.  Raises AOTC-I148 for a parameter that must be given and is not known.
    """
    inputs: list[ModelInput] = []
    dims: dict[str, FreeDim] = {}
    for group in (_text, _image, _speech, _diffusion, _target):
        more, free = group(parameters, settings, tokenizer, cached)
        inputs += more
        dims.update(free)
    known = {each.name for each in inputs}
    unknown = [name for name, needed in parameters.items() if needed and name not in known]
    if unknown or not inputs:
        raise AotcError(
            "AOTC-I148",
            f"what {model} takes is not known",
            where=f"{model}.forward",
            expected="input_ids, pixel_values, input_features, input_values or sample",
            found=", ".join(unknown or parameters),
        )
    return Described(inputs=tuple(inputs), dims=dims)


@record
class Cached:
    """The keys and values that a decoder takes and gives, one of each for a layer."""

    layers: tuple[tuple[int, int, int], ...]
    """Of each layer: heads, and the widths of a key and of a value."""


Group = tuple[list[ModelInput], dict[str, FreeDim]]
Parameters = Mapping[str, bool]


def _text(
    parameters: Parameters, settings: Settings, tokenizer: Collection[str], cached: Cached | None
) -> Group:
    vocabulary = settings("vocab_size")
    if "input_ids" not in parameters or not isinstance(vocabulary, int):
        return [], {}
    limit = next((v for v in map(settings, _LIMITS) if isinstance(v, int) and v > 1), None)
    length = min(_LENGTH, limit - 1) if limit else _LENGTH
    total = "total_sequence" if cached else "sequence"
    inputs = [
        ModelInput(name="input_ids", dims=("batch", "sequence"), fill="ids", below=vocabulary)
    ]
    dims = {
        "batch": FreeDim(example=_BATCH, other=_BATCH + 1),
        "sequence": FreeDim(example=length, other=max(length - 2, 1), max=limit),
    }
    if "attention_mask" in parameters and (not tokenizer or "attention_mask" in tokenizer):
        inputs.append(ModelInput(name="attention_mask", dims=("batch", total), fill="ones"))
    types = settings("type_vocab_size")
    if "token_type_ids" in parameters and "token_type_ids" in tokenizer and types:
        inputs.append(
            ModelInput(
                name="token_type_ids", dims=("batch", "sequence"), fill="ids", below=int(types)
            )
        )
    if cached:
        dims["past_sequence"] = FreeDim(example=7, other=0, max=limit)
        if "position_ids" in parameters:
            inputs.append(
                ModelInput(name="position_ids", dims=("batch", "sequence"), fill="positions")
            )
        for layer, (heads, *widths) in enumerate(cached.layers):
            inputs += [
                ModelInput(
                    name=cache_name(layer, part), dims=("batch", heads, "past_sequence", width)
                )
                for part, width in zip(("key", "value"), widths, strict=True)
            ]
    return inputs, dims


def cache_name(layer: int, part: str) -> str:
    """The input that is the cache of a layer; `part`: key or value.

    As ONNX Runtime's GenAI and Optimum name it.
    """
    return f"past_key_values.{layer}.{part}"


def _image(
    parameters: Parameters, settings: Settings, tokenizer: Collection[str], cached: Cached | None
) -> Group:
    if "pixel_values" not in parameters:
        return [], {}
    height, width = _sides(settings("image_size", "input_size"))
    batch = "image_batch" if "input_ids" in parameters else "batch"
    inputs = [
        ModelInput(
            name="pixel_values", dims=(batch, settings("num_channels") or 3, "height", "width")
        )
    ]
    if parameters.get("pixel_mask"):
        inputs.append(ModelInput(name="pixel_mask", dims=(batch, "height", "width"), fill="ones"))
    kept = _WINDOWS if settings("window_size") else ""
    count = _IMAGES if batch == "image_batch" else _BATCH
    return inputs, {
        batch: FreeDim(example=count, other=count + 1),
        "height": FreeDim(example=height, other=height + height // 2, kept=kept),
        "width": FreeDim(example=width, other=2 * width, kept=kept),
    }


def _sides(size: object) -> tuple[int, int]:
    """Height and width of an image, from what a config has of it."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, (list, tuple)) and len(size) == 2:
        return int(size[0]), int(size[1])
    return _SIDE, _SIDE


def _speech(
    parameters: Parameters, settings: Settings, tokenizer: Collection[str], cached: Cached | None
) -> Group:
    batch = {"batch": FreeDim(example=_BATCH, other=_BATCH + 1)}
    bins, positions = settings("num_mel_bins"), settings("max_source_positions")
    if "input_features" in parameters and bins and positions:
        frames = 2 * int(positions)
        return (
            [ModelInput(name="input_features", dims=("batch", int(bins), "frames"))],
            batch | {"frames": FreeDim(example=frames, other=frames - 2)},
        )
    if "input_values" in parameters and settings("conv_kernel"):
        inputs = [ModelInput(name="input_values", dims=("batch", "samples"))]
        # Models that normalize by layer were trained with masks, and those by group without.
        if "attention_mask" in parameters and settings("feat_extract_norm") == "layer":
            inputs.append(ModelInput(name="attention_mask", dims=("batch", "samples"), fill="ones"))
        return inputs, batch | {"samples": FreeDim(example=_SAMPLES, other=_SAMPLES * 3 // 2)}
    return [], {}


def _diffusion(
    parameters: Parameters, settings: Settings, tokenizer: Collection[str], cached: Cached | None
) -> Group:
    channels = settings("in_channels")
    if "sample" not in parameters or not isinstance(channels, int):
        return [], {}
    height, width = _sides(settings("sample_size"))
    inputs = [ModelInput(name="sample", dims=("batch", channels, "height", "width"))]
    dims = {
        "batch": FreeDim(example=_BATCH, other=_BATCH + 1),
        "height": FreeDim(example=height, other=height + height // 2),
        "width": FreeDim(example=width, other=2 * width),
    }
    if "timestep" in parameters:
        inputs.append(ModelInput(name="timestep", dims=("batch",), fill="steps"))
    context = settings("cross_attention_dim")
    if "encoder_hidden_states" in parameters and isinstance(context, int):
        inputs.append(ModelInput(name="encoder_hidden_states", dims=("batch", "sequence", context)))
        dims["sequence"] = FreeDim(example=_LENGTH, other=_LENGTH - 2)
    return inputs, dims


def _target(
    parameters: Parameters, settings: Settings, tokenizer: Collection[str], cached: Cached | None
) -> Group:
    vocabulary = settings("vocab_size")
    if "decoder_input_ids" not in parameters or not isinstance(vocabulary, int):
        return [], {}
    limit = settings("max_target_positions", *_LIMITS)
    return (
        [
            ModelInput(
                name="decoder_input_ids",
                dims=("batch", "decoder_sequence"),
                fill="ids",
                below=vocabulary,
            )
        ],
        {
            "decoder_sequence": FreeDim(
                example=_TARGET, other=_TARGET - 2, max=limit if isinstance(limit, int) else None
            )
        },
    )
