"""Files that are no ONNX model: each is called what it is, with what to do."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from command import Command
from made_models import linear, save, save_external

POINTER: Final = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
)


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"3\n")
    return file.getvalue()


def safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.onnx"))
    return file.getvalue()


def numpy_file() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "says", "fix"),
    [
        (POINTER, "Git LFS pointer", "git lfs pull"),
        (b"/annex/objects/SHA256E-s9--00.onnx\n", "git-annex", "git annex get given"),
        (zipped("net/data.pkl", "net/version"), "PyTorch file (.pt)", "torch.export.save"),
        (pickle.dumps({"w": 1}, protocol=2), "a pickle", "torch.export.save"),
        (safetensors(), "a safetensors file", "optimum-cli export onnx"),
        (b"GGUF\3\0\0\0" + bytes(16), "a GGUF file", "optimum-cli export onnx"),
        (b"\x1c\0\0\0TFL3" + bytes(16), "a TensorFlow Lite model", "--tflite given"),
        (b"\x1c\0\0\0ORTM" + bytes(16), "(.ort)", "the .onnx file that it was made of"),
        (b"\x89HDF\r\n\x1a\n" + bytes(16), "HDF5", "model.export"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", "an HTML or XML page", "a login"),
        (b"\xef\xbb\xbf\n <html>", "an HTML or XML page", "a login"),
        (b'{"error": "Repository not found"}', "a JSON document", "download it again"),
        (numpy_file(), "a numpy array", "--fixtures"),
        (zipped("x.npy"), "a numpy archive (.npz)", "--fixtures"),
        (zipped("in/model.onnx", "README"), "a ZIP archive", "name in/model.onnx in it"),
        (zipped("net/data.pkl")[:40], "a damaged ZIP archive", "Download it again"),
        (gzip.compress(b"model", mtime=0), "compressed by gzip", "gunzip given"),
        (tarred(), "a tar archive", "Unpack it first"),
    ],
    # Not by the content, in which archives keep the time.
    ids=lambda value: value if isinstance(value, str) else "file",
)
@pytest.mark.parametrize("command", ["build", "inspect"])
def test_what_the_file_is(aotc: Command, command: str, content: bytes, says: str, fix: str) -> None:
    if command == "inspect" and content.startswith(b"PK"):
        pytest.skip("to inspect, a ZIP is a packed artifact")
    (aotc.folder / "given").write_bytes(content)
    found = aotc(command, "given").refused("AOTC-I002", 3)
    assert found["what"].startswith("the file is no ONNX model, but ")
    assert says in found["what"]
    assert fix in found["fix"]
    assert Path(found["where"]).name == "given"


def test_a_pointer_instead_of_external_data(aotc: Command) -> None:
    model, _ = save_external(aotc.folder)
    (aotc.folder / "weights.bin").write_bytes(POINTER)
    found = aotc("build", model).refused("AOTC-I004", 3)
    assert found["what"] == "external data is a Git LFS pointer, not the data itself"
    assert "git lfs pull" in found["fix"]


def test_a_model_whose_first_bytes_look_like_another_file(aotc: Command) -> None:
    """`producer_name` begins at the fifth byte, where others have their mark."""
    model = linear()
    model.producer_name = "TFL3"
    place = save(model, aotc.folder / "model.onnx")
    assert place.read_bytes()[4:8] == b"TFL3"
    assert aotc("inspect", place).status == 0


@pytest.mark.parametrize(
    ("files", "fix"),
    [
        ([], "there is none in this folder"),
        (["model.onnx"], "Name the model in it: given/model.onnx."),
        (["onnx/b.onnx", "onnx/a.onnx"], "given/onnx/a.onnx (or one of 1 others)"),
        (["saved_model.pb", "x.onnx"], "tf2onnx.convert --saved-model given"),
    ],
)
def test_a_folder(aotc: Command, files: list[str], fix: str) -> None:
    for name in ("", *files):
        place = aotc.folder / "given" / name
        if name:
            place.parent.mkdir(exist_ok=True)
            place.touch()
        else:
            place.mkdir()
    found = aotc("build", "given").refused("AOTC-I002", 3)
    assert found["what"] == "the path is a folder, not a model file"
    assert fix in found["fix"]
