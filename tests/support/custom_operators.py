"""Models whose operators are those of onnxruntime-extensions, and libraries that are none."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

TEXT_DOMAIN, IMAGE_DOMAIN = "ai.onnx.contrib", "com.microsoft.extensions"
REGISTERS = "int RegisterCustomOps(void *options, void *base) { return 0; }"
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s", "a", "cat")


def real_library() -> Path:
    """The library of the installed onnxruntime-extensions; skips the test where there is none."""
    found = find_spec("onnxruntime_extensions")
    if found is None or found.origin is None:
        pytest.skip("onnxruntime-extensions is not installed (it is in requirements/dev.lock)")
    (library,) = Path(found.origin).parent.glob("_extensions_pydll*.so")
    return library


def compiled(place: Path, source: str = REGISTERS, *words: str) -> Path:
    """A shared library of C code at `place`; skips the test without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to make a library with")
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(place), *words]
    subprocess.run(command, input=source, text=True, check=True)
    return place


def other_architecture(library: Path) -> Path:
    """The library, changed to one of aarch64, or of x86-64 where it is one of that."""
    data = bytearray(library.read_bytes())
    data[18:20] = (183 if data[18:20] == b"\x3e\0" else 62).to_bytes(2, "little")
    library.write_bytes(data)
    return library


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "custom", inputs, outputs, constants)
    domains = {"", *(node.domain for node in nodes)}
    opsets = [helper.make_opsetid(name, 1 if name else 18) for name in sorted(domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def text_model() -> onnx.ModelProto:
    """Tokens of one text or two, and the embedding of each."""
    table = np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32)
    return model_of(
        [
            helper.make_node(
                "BertTokenizer",
                ["text"],
                ["ids", "segments", "mask"],
                domain=TEXT_DOMAIN,
                vocab_file="\n".join(VOCABULARY),
            ),
            helper.make_node("Gather", ["table", "ids"], ["embedded"]),
            helper.make_node("Softmax", ["embedded"], ["weights"]),
        ],
        [helper.make_tensor_value_info("text", onnx.TensorProto.STRING, ["batch"])],
        [
            helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["tokens"]),
            helper.make_tensor_value_info("weights", onnx.TensorProto.FLOAT, ["tokens", 16]),
        ],
        [numpy_helper.from_array(table, "table")],
    )


def image_model() -> onnx.ModelProto:
    """An image as a PNG file, which is decoded, and convolved."""
    kernel = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    return model_of(
        [
            helper.make_node("EncodeImage", ["image"], ["file"], domain=IMAGE_DOMAIN, format="png"),
            helper.make_node("DecodeImage", ["file"], ["decoded"], domain=IMAGE_DOMAIN),
            helper.make_node("Cast", ["decoded"], ["real"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Transpose", ["real"], ["planes"], perm=[2, 0, 1]),
            helper.make_node("Unsqueeze", ["planes", "first"], ["batch"]),
            helper.make_node("Conv", ["batch", "kernel"], ["y"]),
        ],
        [helper.make_tensor_value_info("image", onnx.TensorProto.UINT8, ["h", "w", 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4, None, None])],
        [
            numpy_helper.from_array(np.array([0]), "first"),
            numpy_helper.from_array(kernel, "kernel"),
        ],
    )


def file_model() -> onnx.ModelProto:
    """The bytes of an image's file, which is decoded, as floats."""
    return model_of(
        [
            helper.make_node("DecodeImage", ["png"], ["decoded"], domain=IMAGE_DOMAIN),
            helper.make_node("Cast", ["decoded"], ["y"], to=onnx.TensorProto.FLOAT),
        ],
        [helper.make_tensor_value_info("png", onnx.TensorProto.UINT8, ["bytes"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, None, 3])],
    )


def png_file(width: int, height: int) -> np.ndarray:
    """The bytes of a PNG file with random pixels."""
    chance = np.random.default_rng((width, height))
    rows = [b"\0" + chance.integers(0, 256, width * 3, np.uint8).tobytes() for _ in range(height)]
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"".join(rows))),
        (b"IEND", b""),
    )
    data = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    return np.frombuffer(b"\x89PNG\r\n\x1a\n" + data, np.uint8)


def plain_answers(model: Path, library: Path, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """What ONNX Runtime answers with the library, without this toolchain."""
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(library))
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))
