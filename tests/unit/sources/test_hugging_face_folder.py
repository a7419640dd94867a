"""Folders of the hub: what is read of them, and what is refused before anything of them is run."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from aotc.base.errors import AotcError
from aotc.sources.hugging_face import HuggingFace
from aotc.sources.hugging_face_folder import HubFolder, hub_name, is_hub_folder, read_hub_folder

CONFIG = {"architectures": ["BertModel"], "model_type": "bert"}


def safetensors(path: Path, *names: str, cut: int = 0) -> None:
    """A file with a float32 for each of `names`, without its last `cut` bytes."""
    header = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * at, 4 * at + 4]}
        for at, name in enumerate(names)
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    data = struct.pack("<Q", len(text)) + text + bytes(4 * len(names))
    path.write_bytes(data[: len(data) - cut])


def folder_of(path: Path, config: Mapping[str, Any] | None = None) -> Path:
    """A folder `bert` with a configuration and one file of weights."""
    folder = path / "bert"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    safetensors(folder / "model.safetensors", "weight")
    return folder


def sharded(path: Path, **promised: str) -> Path:
    """A folder whose index promises tensors of files, none of which is there."""
    folder = folder_of(path)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": promised}))
    return folder


def refusal(folder: Path, *, trusted: bool = False) -> AotcError:
    """What reading the folder raises."""
    with pytest.raises(AotcError) as raised:
        read_hub_folder(folder, trusted=trusted)
    return raised.value


def test_a_folder_with_one_file_of_weights_is_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    found = read_hub_folder(folder)
    assert (found.library, found.architecture) == ("transformers", "BertModel")
    assert [(file.name, file.tensors) for file in found.weights] == [
        ("model.safetensors", ("weight",))
    ]
    assert not found.tokenizer
    assert not found.custom_code
    (folder / "tokenizer_config.json").touch()
    assert read_hub_folder(folder).tokenizer


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    folder = sharded(tmp_path, a="one.safetensors", b="two.safetensors")
    safetensors(folder / "one.safetensors", "a")
    safetensors(folder / "two.safetensors", "b")
    assert [file.name for file in read_hub_folder(folder).weights] == [
        "one.safetensors",
        "two.safetensors",
    ]


def test_a_model_of_diffusers_is_told_by_its_class(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"_class_name": "AutoencoderKL", "_diffusers_version": "0.42.0"})
    found = read_hub_folder(folder)
    assert (found.library, found.architecture) == ("diffusers", "AutoencoderKL")


def test_a_snapshot_of_the_cache_says_its_name_and_revision(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = tmp_path / "models--org--small" / "snapshots" / commit
    snapshot.parent.mkdir(parents=True)
    folder_of(tmp_path).rename(snapshot)
    found = read_hub_folder(snapshot)
    assert (found.name, found.revision) == ("org/small", commit)


def write(name: str, text: str) -> Callable[[Path], None]:
    """What replaces a file of the folder by a text."""

    def change(folder: Path) -> None:
        (folder / name).write_text(text)

    return change


def remove(name: str, *others: str) -> Callable[[Path], None]:
    """What removes a file, and adds empty `others`."""

    def change(folder: Path) -> None:
        (folder / name).unlink()
        for other in others:
            (folder / other).touch()

    return change


def config(**fields: Any) -> Callable[[Path], None]:
    """What sets further fields of the configuration."""
    return write("config.json", json.dumps({**CONFIG, **fields}))


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    ("change", "code", "what", "found"),
    [
        (remove("config.json"), "I140", "bert has no configuration", ""),
        (write("config.json", "{"), "I140", "config.json is not the configuration of a model", ""),
        (write("config.json", "[1]"), "I140", "not the configuration of a model", "holds a list"),
        (write("config.json", LFS), "I140", "not the configuration", "a pointer of Git LFS"),
        (write("config.json", "[" * 100_000), "I140", "not the configuration of a model", ""),
        (config(architectures=None), "I140", "names no architecture", "None"),
        (config(architectures=["a.b"]), "I140", "names no architecture", "a.b"),
        (config(auto_map={"AutoModel": "own.Model"}), "I127", "code of its own", "own.Model"),
        (config(quantization_config={"quant_method": "gptq"}), "I142", "quantized", "gptq"),
        (
            remove("model.safetensors", "pytorch_model.bin"),
            "I143",
            "loading a pickle runs code",
            "pytorch_model.bin",
        ),
        (remove("model.safetensors", "tf_model.h5"), "I143", "not in safetensors", "tf_model.h5"),
        (remove("model.safetensors"), "I144", "bert holds no weights", "no safetensors file"),
        (
            remove("model.safetensors", "model-00001-of-00002.safetensors"),
            "I145",
            "the index of the shards of bert is missing",
            "model-00001-of-00002.safetensors",
        ),
        (write("model.safetensors", LFS), "I145", "model.safetensors is a pointer of Git LFS", ""),
        (write("model.safetensors", ""), "I145", "model.safetensors is damaged", "longer"),
        (write("model.safetensors", "\0" * 99), "I145", "model.safetensors is damaged", ""),
        (
            lambda folder: safetensors(folder / "model.safetensors", "weight", cut=1),
            "I145",
            "model.safetensors is damaged",
            "where its header tells of",
        ),
    ],
)
def test_a_folder_that_cannot_be_built_is_refused(
    tmp_path: Path, change: Callable[[Path], None], code: str, what: str, found: str
) -> None:
    folder = folder_of(tmp_path)
    change(folder)
    error = refusal(folder)
    assert error.code == f"AOTC-{code}"
    assert what in error.what
    assert found in error.found


def test_missing_shards_are_named(tmp_path: Path) -> None:
    folder = sharded(tmp_path, a="one.safetensors", b="two.safetensors")
    safetensors(folder / "one.safetensors", "a")
    error = refusal(folder)
    assert (error.code, error.what, error.expected, error.found) == (
        "AOTC-I145",
        "1 of 2 shards of bert are missing",
        "two.safetensors",
        "1 of 2 files",
    )


def test_tensors_that_a_shard_lacks_are_named(tmp_path: Path) -> None:
    folder = sharded(tmp_path, a="one.safetensors", b="one.safetensors")
    safetensors(folder / "one.safetensors", "a")
    error = refusal(folder)
    assert (error.what, error.expected) == (
        "one.safetensors lacks 1 tensors that the index promises",
        "b",
    )


def test_shards_outside_the_folder_are_not_opened(tmp_path: Path) -> None:
    folder = sharded(tmp_path, a="../secret.safetensors")
    safetensors(tmp_path / "secret.safetensors", "a")
    error = refusal(folder)
    assert error.what == "1 of 1 shards of bert are named outside its folder"


def test_a_pipeline_says_which_folders_to_build(tmp_path: Path) -> None:
    folder_of(tmp_path)
    (tmp_path / "model_index.json").write_text("{}")
    error = refusal(tmp_path)
    assert error.code == "AOTC-I140"
    assert error.fix == f"Build each by itself: aotc build {tmp_path / 'bert'}."


def test_code_of_the_folder_is_for_who_trusts_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {**CONFIG, "auto_map": {"AutoModel": "own.Model"}})
    assert read_hub_folder(folder, trusted=True).custom_code


def test_names_of_the_hub() -> None:
    plain, at = hub_name("hf://org/small"), hub_name("hf://org/small@refs/pr/1")
    assert (plain.name, plain.revision) == ("org/small", None)
    assert (at.name, at.revision) == ("org/small", "refs/pr/1")
    # As a path spells it.
    assert hub_name(str(Path("hf://org/small@refs/pr/1"))) == at
    assert str(at) == "hf://org/small@refs/pr/1"


@pytest.mark.parametrize("source", ["hf://", "hf://org/../x", "hf://a/b/c", "hf://a/b@", "hf:///b"])
def test_other_names_are_refused(source: str) -> None:
    with pytest.raises(AotcError) as raised:
        hub_name(source)
    assert raised.value.code == "AOTC-I147"


def test_what_is_recognized(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    assert HuggingFace().recognizes("hf://org/small")
    assert HuggingFace().recognizes(str(Path("hf://org/small")))
    assert HuggingFace().recognizes(str(folder))
    assert not HuggingFace().recognizes(str(tmp_path))
    assert not is_hub_folder(folder / "config.json")
    (folder / "model.onnx").touch()
    assert is_hub_folder(folder)
    (folder / "model.safetensors").unlink()
    assert not is_hub_folder(folder)
    (folder / "model.onnx").unlink()
    assert is_hub_folder(folder)
    assert HuggingFace().model_name("hf://org/small@main") == "small"
    assert HuggingFace().model_name(f"{folder}/") == "bert"


def test_files_that_decide_a_capture(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "README.md").touch()
    assert [path.name for path in HuggingFace().files(str(folder))] == [
        "config.json",
        "model.safetensors",
    ]


def test_the_record_of_a_folder_is_plain_data(tmp_path: Path) -> None:
    found = read_hub_folder(folder_of(tmp_path))
    assert isinstance(found, HubFolder)
    assert found.weights[0].size == (tmp_path / "bert" / "model.safetensors").stat().st_size


def test_a_header_with_an_endless_place_is_damaged(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    text = b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1e999]}}'
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    assert refusal(folder).code == "AOTC-I145"
