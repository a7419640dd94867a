"""Every answer on terminals of 60, 80 and 100 columns: no line is wider, and no word is broken."""

from __future__ import annotations

import re

import numpy as np
import pytest
from command import Command
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper
from rich.cells import cell_len
from terminal import on_a_terminal

LONG = "pixel_values_of_the_first_camera"
FOREIGN = "größe_画像_入力"
CALLS = (
    "inspect m.aotc",
    "inspect m.aotc --summary",
    "inspect m.onnx",
    "verify m.aotc",
    "verify m.aotc --explain",
    "run m.aotc",
    "bench m.aotc --runs 40 --nodes",
    "diff m.aotc m.aotc",
    "profile list",
    "target list",
    "store list",
    "cache list",
    "doctor",
    "config",
    "explain G005 n040",
    "explain --list",
    "build --help",
    "bench --help",
    "trust add --help",
    "--help",
    "verify missing.aotc",
    "build m.onnx --input-shape x:1",
)
# Times and sizes differ between calls, and bars between widths; a path or a digest may be broken.
APART = re.compile(r"\d|…|^[█-▏]+$")
BREAKABLE = re.compile(r"/.*/|[0-9a-f]{40}")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Command:
    aotc = Command(tmp_path_factory.mktemp("narrow"))
    sizes = ["batch_size_of_requests", 8]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name in (LONG, FOREIGN)
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [sizes[0], 40])
    weights = np.random.default_rng(0).standard_normal((8, 40)).astype(np.float32)
    nodes = [
        helper.make_node("Add", [LONG, FOREIGN], ["sum"], name="sum"),
        helper.make_node("MatMul", ["sum", "w"], ["last_hidden_state"], name="product"),
    ]
    model = model_of(nodes, inputs, [output], [numpy_helper.from_array(weights, "w")])
    (aotc.folder / "m.onnx").write_bytes(model.SerializeToString())
    assert aotc.plain("build", "m.onnx", "-o", "m.aotc", "-q").status == 0
    # From now on the store holds it.
    assert aotc.plain("run", "m.aotc", "-q").status == 0
    return aotc


def lines(aotc: Command, call: str, columns: int) -> list[str]:
    _, sent, _ = on_a_terminal(aotc, *call.split(), columns=columns)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    return [line.rpartition("\r")[2].rstrip() for line in plain.split("\n")]


@pytest.mark.parametrize("call", CALLS)
def test_no_line_is_wider_and_no_word_is_broken(built: Command, call: str) -> None:
    whole = {word.strip("':") for line in lines(built, call, 250) for word in line.split()}
    # A call takes longer on a busy machine.
    whole |= {"s", "ms", "µs", "us"}
    for columns in (60, 80, 100):
        shown = lines(built, call, columns)
        wide = [
            line for line in shown if cell_len(line) > columns and not line.startswith("  fix:")
        ]
        assert not wide
        words = {word.strip("':") for line in shown for word in line.split()}
        long = [word for word in whole if BREAKABLE.search(word)]
        new = [word for word in words - whole if not APART.search(word)]
        assert not [word for word in new if not any(word in each for each in long)]
