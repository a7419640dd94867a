"""What a model takes, as its configuration and the names of its parameters say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aotc.base.errors import AotcError
from aotc.sources.hugging_face_inputs import Cached, Described, describe, settings_of


def described(*parameters: str, needed: tuple[str, ...] = (), **settings: Any) -> Described:
    """What a model with these parameters and settings takes."""
    config = SimpleNamespace(**settings)
    names = {**dict.fromkeys(parameters, False), **dict.fromkeys(needed, True)}
    return describe(names, settings_of(config), model="Model")


def shapes(found: Described, **sizes: int) -> dict[str, tuple[int, ...]]:
    """The shapes of all inputs at `sizes`."""
    return {name: array.shape for name, array in found.arrays(sizes).items()}


def test_a_text_has_ids_and_a_mask_up_to_the_limit() -> None:
    found = described("input_ids", "attention_mask", vocab_size=50, n_positions=64)
    arrays = found.arrays({"batch": 3, "sequence": 9})
    assert shapes(found, batch=3, sequence=9) == {"input_ids": (3, 9), "attention_mask": (3, 9)}
    assert arrays["input_ids"].dtype == np.int64
    assert 0 <= arrays["input_ids"].min() <= arrays["input_ids"].max() < 50
    assert (arrays["attention_mask"] == 1).all()
    assert found.dims["sequence"].max == 64


def test_the_tokenizer_says_which_of_them_there_are() -> None:
    config = SimpleNamespace(vocab_size=50, type_vocab_size=2)
    names = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), False)
    found = describe(
        names, settings_of(config), model="Model", tokenizer=("input_ids", "token_type_ids")
    )
    assert [each.name for each in found.inputs] == ["input_ids", "token_type_ids"]
    assert found.arrays({})["token_type_ids"].max() <= 1


def test_a_decoder_takes_its_past() -> None:
    config = SimpleNamespace(vocab_size=50, max_position_embeddings=32)
    names = dict.fromkeys(("input_ids", "attention_mask", "position_ids", "cache"), False)
    found = describe(
        names, settings_of(config), model="Model", cached=Cached(layers=((2, 8, 4), (2, 8, 4)))
    )
    assert shapes(found, batch=1, sequence=3, past_sequence=5) == {
        "input_ids": (1, 3),
        "attention_mask": (1, 8),
        "position_ids": (1, 3),
        "past_key_values.0.key": (1, 2, 5, 8),
        "past_key_values.0.value": (1, 2, 5, 4),
        "past_key_values.1.key": (1, 2, 5, 8),
        "past_key_values.1.value": (1, 2, 5, 4),
    }
    positions = found.arrays({"batch": 1, "sequence": 3, "past_sequence": 5})["position_ids"]
    assert positions.tolist() == [[5, 6, 7]]


def test_images_have_the_size_of_the_config() -> None:
    found = described(needed=("pixel_values",), image_size=32, num_channels=1)
    assert shapes(found) == {"pixel_values": (2, 1, 32, 32)}
    assert shapes(found, batch=1, height=48) == {"pixel_values": (1, 1, 48, 32)}
    assert found.dims["height"].other != found.dims["height"].example


def test_windows_keep_the_size_of_the_image() -> None:
    found = described("pixel_values", image_size=32, window_size=4)
    assert {name for name, dim in found.dims.items() if dim.kept} == {"height", "width"}


def test_texts_and_images_have_batches_of_their_own() -> None:
    config = SimpleNamespace(
        text_config=SimpleNamespace(vocab_size=50, max_position_embeddings=16),
        vision_config=SimpleNamespace(image_size=(32, 48), num_channels=3),
    )
    names = dict.fromkeys(("input_ids", "pixel_values"), False)
    found = describe(names, settings_of(config), model="Model")
    assert shapes(found, batch=1, image_batch=5, sequence=4) == {
        "input_ids": (1, 4),
        "pixel_values": (5, 3, 32, 48),
    }


def test_speech_is_frames_or_samples() -> None:
    frames = described(
        "input_features", "decoder_input_ids", num_mel_bins=16, max_source_positions=50,
        vocab_size=30, max_target_positions=8,
    )  # fmt: skip
    assert shapes(frames) == {"input_features": (2, 16, 100), "decoder_input_ids": (2, 5)}
    assert frames.dims["decoder_sequence"].max == 8
    samples = described(needed=("input_values",), conv_kernel=(10, 3), feat_extract_norm="layer")
    assert shapes(samples, batch=1, samples=800) == {"input_values": (1, 800)}


def test_diffusion_has_steps_and_a_context() -> None:
    found = described(
        needed=("sample", "timestep", "encoder_hidden_states"), in_channels=4, sample_size=16,
        cross_attention_dim=32,
    )  # fmt: skip
    assert shapes(found, batch=1, sequence=7) == {
        "sample": (1, 4, 16, 16),
        "timestep": (1,),
        "encoder_hidden_states": (1, 7, 32),
    }


def test_values_are_those_of_the_seed() -> None:
    found = described("input_ids", vocab_size=50)
    assert (found.arrays({}, 1)["input_ids"] == found.arrays({}, 1)["input_ids"]).all()
    assert (found.arrays({}, 1)["input_ids"] != found.arrays({}, 2)["input_ids"]).any()


def test_a_fixed_dim_has_the_size_of_the_example() -> None:
    found = described("pixel_values", image_size=32).fixed({"height", "width"})
    assert found.inputs[0].dims == ("batch", 3, 32, 32)
    assert set(found.dims) == {"batch"}


@pytest.mark.parametrize(
    ("parameters", "needed", "settings", "found"),
    [
        (("points",), (), {}, "points"),
        (("input_ids", "boxes"), ("boxes",), {"vocab_size": 9}, "boxes"),
        (("input_ids",), (), {}, "input_ids"),
    ],
)
def test_other_inputs_are_refused_by_name(
    parameters: tuple[str, ...], needed: tuple[str, ...], settings: dict[str, Any], found: str
) -> None:
    with pytest.raises(AotcError) as raised:
        described(*parameters, needed=needed, **settings)
    assert (raised.value.code, raised.value.where) == ("AOTC-I148", "Model.forward")
    assert raised.value.found == found
