"""`aotc debug parity`: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from command import Command
from jsonschema import Draft202012Validator
from made_models import FEATURES, linear, save
from onnx import helper
from replaced_payload import with_model
from repository import ROOT

SCHEMA = json.loads((ROOT / "manifests" / "debug-parity.schema.json").read_text("utf-8"))


def wrong_sign(model: onnx.ModelProto) -> None:
    """A pass that negates what the last node makes."""
    last = model.graph.node[-1]
    name = last.output[0]
    last.output[0] = f"{name}_before"
    model.graph.node.append(helper.make_node("Neg", [last.output[0]], [name], name="wrong"))


@pytest.fixture(scope="module")
def aotc(tmp_path_factory: pytest.TempPathFactory) -> Command:
    made = Command(tmp_path_factory.mktemp("debug"))
    save(linear(), made.folder / "model.onnx")
    assert made.plain("keygen", "-o", "release.pem").status == 0
    words = "build model.onnx --dim batch=1..8 --key release.pem -o model.aotc"
    assert made.plain(*words.split()).status == 0
    with_model(made.folder / "model.aotc", made.folder / "spoiled.aotc", wrong_sign)
    return made


def test_within_tolerance(aotc: Command) -> None:
    done = aotc("debug", "parity", "model.aotc", "--model", "model.onnx")
    assert done.status == 0
    Draft202012Validator(SCHEMA).validate(done.document)
    assert (done.document["status"], done.document["failed"]) == ("UNVERIFIED", [])
    assert done.document["variant"] in ("portable", "native")


def test_out_of_tolerance_ends_with_one_and_writes_what_reproduces_it(aotc: Command) -> None:
    words = ("debug", "parity", "spoiled.aotc", "--model", "model.onnx", "--variant", "portable")
    done = aotc(*words, "-o", "failing")
    assert done.status == 1
    Draft202012Validator(SCHEMA).validate(done.document)
    assert [failed["code"] for failed in done.document["failed"]] == ["AOTC-N037"]
    assert done.document["errors"]["first"]
    folder = aotc.folder / "failing"
    assert {path.name for path in folder.iterdir()} == set(done.document["submodel"]["files"])
    again = subprocess.run(
        [sys.executable, "-I", str(folder / "reproduce.py")], capture_output=True, check=False
    )
    assert again.returncode == 1
    shown = aotc.plain(*words)
    assert shown.status == 1
    assert "out of tolerance; nothing here was verified" in shown.stdout
    assert "smallest part that fails" in shown.stdout
    aotc(*words, "-o", "failing").refused("AOTC-I017", 3)


def test_refusals(aotc: Command) -> None:
    other = aotc.folder / "other.onnx"
    save(linear(), other)
    model = onnx.load(other)
    model.producer_name = "another"
    other.write_bytes(model.SerializeToString())
    aotc("debug", "parity", "model.aotc", "--model", "other.onnx").refused("AOTC-I083", 3)
    aotc("debug", "parity", "model.aotc").refused("AOTC-I027", 2)
    aotc("debug", "parity", "model.onnx", "--model", "model.onnx").refused("AOTC-G015", 1)
    words = ("debug", "parity", "model.aotc", "--model", "model.onnx")
    aotc(*words, "-o", "model.aotc/failing").refused("AOTC-I027", 2)
    np.savez(aotc.folder / "large.npz", x=np.ones((99, FEATURES), np.float32))
    aotc(*words, "--fixtures", "large.npz").refused("AOTC-I085", 3)


def test_inspect_measures_nodes_on_request(aotc: Command) -> None:
    words = ("inspect", "spoiled.aotc", "--model", "model.onnx")
    (errors,) = aotc(*words).document["node_errors"].values()
    assert errors["first"] == errors["worst"] != ""
    assert aotc("inspect", "spoiled.aotc").document["node_errors"] == {}
    assert "worst nodes" in aotc.plain(*words).stdout
    page = aotc.plain(*words, "--html", "-").stdout
    assert "errors by node" in page
    aotc("inspect", "spoiled.aotc", "--fixtures", "large.npz").refused("AOTC-I027", 2)
