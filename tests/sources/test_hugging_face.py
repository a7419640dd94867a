"""Models of the hub in their own framework: loaded, tried, exported, found in the cache."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-sources")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

import zoo_models  # noqa: E402

from aotc.base.errors import AotcError  # noqa: E402
from aotc.providers.ort import import_onnxruntime  # noqa: E402
from aotc.sources.base import Captured, CaptureRequest  # noqa: E402
from aotc.sources.hugging_face import HuggingFace  # noqa: E402
from aotc.sources.hugging_face_folder import read_hub_folder  # noqa: E402
from aotc.sources.hugging_face_models import load_model, model_call  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def written(name: str, folder: Path) -> Path:
    """The source of the zoo's entry `name`."""
    entry = next(each for each in zoo_models.ENTRIES if each.name == name)
    return entry.write(folder / name)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small BERT."""
    return written("bert", tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The hub's cache is an empty folder, and nothing is asked of the hub itself."""
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    yield cache


def captured(source: Path | str, folder: Path) -> Captured:
    """The capture of a source in `folder`."""
    return HuggingFace().capture(CaptureRequest(source=str(source)), folder)


def runs_as_the_framework(source: Path | str, folder: Path, found: Captured, **sizes: int) -> None:
    """Hold the exported model to the framework's answers at `sizes`."""
    request = CaptureRequest(source=str(source))
    answers = HuggingFace().answering(request, folder, found)
    model = load_model(read_hub_folder(Path(source)), tried=False)
    arrays = model.described.arrays(sizes, seed=3)
    session = import_onnxruntime().InferenceSession(str(folder / found.model))
    names = [each.name for each in session.get_inputs()]
    given = {name: arrays[name] for name in names}
    outputs = session.run(list(found.outputs), given)
    for name, wanted in answers(given).items():
        got = outputs[found.outputs.index(name)]
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5)


def test_an_encoder_is_captured_with_its_dims_and_evidence(bert: Path, tmp_path: Path) -> None:
    found = captured(bert, tmp_path)
    framework = found.framework
    assert found.outputs == ("logits",)
    assert {dim.name: dim.inputs for dim in framework.dims} == {
        "batch": ("input_ids.0", "attention_mask.0"),
        "sequence": ("input_ids.1", "attention_mask.1"),
    }
    assert (found.dims["sequence"].min, found.dims["sequence"].max) == (1, 64)
    assert [file.name for file in framework.files] == ["config.json", "model.safetensors"]
    assert framework.made_by == f"transformers {transformers.__version__}"
    assert framework.weights_sha256
    assert not framework.static_dims
    with np.load(tmp_path / found.examples) as examples:
        assert {name: examples[name].shape for name in examples} == {
            "input_ids": (1, 11),
            "attention_mask": (1, 11),
        }
    modules = json.loads((tmp_path / found.modules).read_text())
    assert any(path.startswith("bert.encoder.layer.1.attention") for path, _ in modules.values())
    runs_as_the_framework(bert, tmp_path, found, batch=3, sequence=64)
    runs_as_the_framework(bert, tmp_path, found, batch=1, sequence=1)


def test_inputs_are_those_that_the_tokenizer_gives(bert: Path, tmp_path: Path) -> None:
    source = shutil.copytree(bert, tmp_path / "bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"]
    tokenizer = transformers.BertTokenizer(vocab={word: at for at, word in enumerate(words)})
    tokenizer.save_pretrained(source)
    model = load_model(read_hub_folder(source), tried=False)
    given = tokenizer("word word", return_tensors="np")
    assert {each.name for each in model.described.inputs} == set(given)
    assert model_call(model, given)["logits"].shape == (1, 2)


def test_a_decoder_is_captured_with_its_cache(tmp_path: Path) -> None:
    source = written("llama", tmp_path)
    found = captured(source, tmp_path)
    assert found.outputs == (
        *("logits", "present.0.key", "present.0.value"),
        *("present.1.key", "present.1.value"),
    )
    assert found.relations == ("total_sequence = past_sequence + sequence",)
    assert (found.dims["past_sequence"].min, found.dims["sequence"].max) == (0, 64)
    runs_as_the_framework(source, tmp_path, found, batch=2, sequence=16, past_sequence=0)
    runs_as_the_framework(source, tmp_path, found, batch=1, sequence=1, past_sequence=33)


def test_a_fixed_size_of_the_model_is_known_with_its_line(tmp_path: Path) -> None:
    model = load_model(read_hub_folder(written("vit", tmp_path)))
    assert {each.asked for each in model.static} == {"height", "width"}
    assert all(each.place.startswith("vit/modeling_vit.py:") for each in model.static)
    assert "doesn't match model (32*32)" in model.static[0].why


def test_a_loop_over_a_dim_is_told_with_its_line(tmp_path: Path) -> None:
    found = captured(written("mamba", tmp_path), tmp_path)
    lost = {each.asked: each for each in found.framework.static_dims}
    assert set(lost) == {"sequence"}
    assert lost["sequence"].size == 11
    assert lost["sequence"].place.startswith("mamba/modeling_mamba.py:")


def test_parts_that_the_weights_lack_are_refused(bert: Path, tmp_path: Path) -> None:
    source = shutil.copytree(bert, tmp_path / "other")
    config = json.loads((source / "config.json").read_text())
    config["architectures"] = ["BertForQuestionAnswering"]
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(AotcError) as raised:
        load_model(read_hub_folder(source))
    assert raised.value.code == "AOTC-I146"
    assert raised.value.expected == "qa_outputs.bias, qa_outputs.weight"


def test_weights_of_other_shapes_are_refused(bert: Path, tmp_path: Path) -> None:
    source = shutil.copytree(bert, tmp_path / "other")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "vocab_size": 99}))
    with pytest.raises(AotcError) as raised:
        load_model(read_hub_folder(source))
    assert raised.value.code == "AOTC-I146"


@pytest.mark.parametrize("name", ["BertForNothing", "logging", "BertTokenizer"])
def test_a_class_that_the_library_lacks_is_refused(bert: Path, tmp_path: Path, name: str) -> None:
    source = shutil.copytree(bert, tmp_path / "other")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "architectures": [name]}))
    with pytest.raises(AotcError) as raised:
        load_model(read_hub_folder(source))
    assert raised.value.code == "AOTC-I141"


@pytest.mark.parametrize(
    "stated",
    [{"hidden_size": "x"}, {"num_attention_heads": 0}, {"hidden_act": "os.system"}],
    ids=["type", "zero", "name"],
)
def test_values_that_the_library_does_not_take_are_refused(
    bert: Path, tmp_path: Path, stated: dict[str, Any]
) -> None:
    source = shutil.copytree(bert, tmp_path / "stated")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, **stated}))
    with pytest.raises(AotcError) as raised:
        load_model(read_hub_folder(source))
    assert raised.value.code == "AOTC-I146"


@pytest.mark.parametrize("wanted", ["kernels-community/flash-attn", "flash_attention_2"])
@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_kernels_that_a_config_asks_for_are_not_fetched(
    bert: Path, tmp_path: Path, key: str, wanted: str
) -> None:
    source = shutil.copytree(bert, tmp_path / "kernels")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, key: wanted}))
    model = load_model(read_hub_folder(source), tried=False)
    assert model.module.config._attn_implementation == "sdpa"


def test_a_pipeline_is_no_model(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    source = tmp_path / "pipeline"
    source.mkdir()
    save_file({"a": torch.zeros(1)}, source / "diffusion_pytorch_model.safetensors")
    stated = {"_class_name": "DiffusionPipeline", "_diffusers_version": "0.42.1"}
    (source / "config.json").write_text(json.dumps(stated))
    with pytest.raises(AotcError) as raised:
        load_model(read_hub_folder(source))
    assert raised.value.code == "AOTC-I141"


def in_cache(model: Path, cache: Path, branch: str) -> Path:
    """Put a model into the hub's cache as the library lays it, and return its snapshot."""
    root = cache / "models--org--small"
    snapshot = root / "snapshots" / COMMIT
    (root / "blobs").mkdir(parents=True)
    (root / "refs").mkdir()
    snapshot.mkdir(parents=True)
    (root / "refs" / branch).write_text(COMMIT)
    for number, file in enumerate(sorted(model.iterdir())):
        blob = shutil.copy(file, root / "blobs" / f"{number:064}")
        (snapshot / file.name).symlink_to(Path("../../blobs") / Path(blob).name)
    return snapshot


def fetched(source: str) -> Path:
    """Where a name of the hub is found."""
    found = HuggingFace().fetch(CaptureRequest(source=source))
    assert HuggingFace().is_remote(found.source)
    return Path(str(found.options["fetched"]))


@pytest.mark.parametrize("at", ["", "@main", f"@{COMMIT}"])
def test_a_name_is_found_in_the_cache(bert: Path, offline: Path, at: str) -> None:
    snapshot = in_cache(bert, offline, "main")
    found = fetched(f"hf://org/small{at}")
    assert found == snapshot
    hub = read_hub_folder(found)
    assert (hub.name, hub.revision) == ("org/small", COMMIT)


def test_a_name_is_captured_with_its_revision(bert: Path, tmp_path: Path, offline: Path) -> None:
    in_cache(bert, offline, "main")
    request = HuggingFace().fetch(CaptureRequest(source="hf://org/small@main"))
    framework = HuggingFace().capture(request, tmp_path).framework
    assert (framework.source, framework.revision) == ("hf://org/small@main", COMMIT)


def test_a_name_that_is_nowhere_says_how_to_fetch_it() -> None:
    with pytest.raises(AotcError) as raised:
        fetched("hf://org/none@v1")
    assert raised.value.code == "AOTC-I147"
    assert raised.value.fix == (
        "Fetch it first, where there is a network: hf download org/none --revision v1."
    )


def test_a_snapshot_without_weights_is_refused(bert: Path, offline: Path) -> None:
    (in_cache(bert, offline, "main") / "model.safetensors").unlink()
    with pytest.raises(AotcError) as raised:
        read_hub_folder(fetched("hf://org/small"))
    assert raised.value.code == "AOTC-I144"


def test_code_of_a_folder_is_run_for_who_trusts_it(bert: Path, tmp_path: Path) -> None:
    source = shutil.copytree(bert, tmp_path / "own")
    ran = tmp_path / "ran"
    (source / "modeling_own.py").write_text(
        "from pathlib import Path\n"
        "from transformers import BertConfig, BertForSequenceClassification\n"
        f"Path({str(ran)!r}).touch()\n"
        "class OwnModel(BertForSequenceClassification):\n"
        "    config_class = BertConfig\n"
    )
    config: dict[str, Any] = json.loads((source / "config.json").read_text())
    config["architectures"] = ["OwnModel"]
    config["auto_map"] = {"AutoModelForSequenceClassification": "modeling_own.OwnModel"}
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(AotcError) as raised:
        captured(source, tmp_path)
    assert raised.value.code == "AOTC-I127"
    assert not ran.exists()
    model = load_model(read_hub_folder(source, trusted=True), trusted=True)
    assert ran.exists()
    assert model_call(model, model.described.arrays({}))["logits"].shape == (2, 2)
