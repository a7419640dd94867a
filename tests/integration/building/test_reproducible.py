"""Equal inputs give equal bytes, whatever the folder and the user of the build."""

from __future__ import annotations

import datetime
import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from built_artifact import DIGITS
from file_bytes import contents_of
from onnx import TensorProto, helper, numpy_helper

from aotc.trust import key_files

SIGNATURE = "attestations/oms.sigstore.json"
# The build as a separate command: another process, another working directory, another user's
# folders, another order of sets and dicts.
BUILD = """
import sys, aotc
model, profile, output, key = sys.argv[1:]
aotc.build(model, profile=profile, output=output, key=key)
"""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return key_files.generate(tmp_path_factory.mktemp("key") / "release.pem")[0]


def built(source: list[Path], place: Path, output: str, key: Path, profile: str, seed: int) -> Path:
    """Copy the model (the first of `source`) into `place`, and build it there."""
    for folder in ("model", "home", "temporary"):
        (place / folder).mkdir(parents=True)
    for path in source:
        shutil.copyfile(path, place / "model" / path.name)
    environment = {
        **os.environ,
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "temporary"),
        "XDG_CACHE_HOME": str(place / "home" / "cache"),
        "XDG_CONFIG_HOME": str(place / "home" / "config"),
        "PYTHONHASHSEED": str(seed),
    }
    model = place / "model" / source[0].name
    subprocess.run(
        [sys.executable, "-c", BUILD, str(model), profile, output, str(key)],
        cwd=place,
        env=environment,
        check=True,
        timeout=600,
    )
    return place / output


def external_model(folder: Path) -> list[Path]:
    """Two layers, a branch, documentation with paths, weights in an external file."""
    rng = np.random.default_rng(2)
    branch = helper.make_graph(
        [helper.make_node("Mul", ["hidden", "two"], ["doubled"], doc_string=f"{folder}/a.py:1")],
        "then",
        [],
        [helper.make_tensor_value_info("doubled", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["hidden"], ["same"])],
        "else",
        [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Relu", ["product"], ["hidden"]),
            helper.make_node("ReduceSum", ["hidden"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "two"], ["large"]),
            helper.make_node("If", ["large"], ["y"], then_branch=branch, else_branch=other),
        ],
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
        [
            numpy_helper.from_array(rng.normal(size=(64, 64)).astype(np.float32), "w"),
            numpy_helper.from_array(np.float32(2), "two"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.doc_string = f"exported by {getpass.getuser()} on {socket.gethostname()}"
    helper.set_model_props(model, {"source": str(folder)})
    path = folder / "layers.onnx"
    onnx.save(model, path, save_as_external_data=True, location="layers.data", size_threshold=64)
    return [path, folder / "layers.data"]


@pytest.fixture(scope="module", params=["digits", "external"])
def two_builds(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, key: Path
) -> tuple[Path, Path]:
    """Two builds that share only the model's bytes, the profile and the key."""
    folder = tmp_path_factory.mktemp("twins")
    source = [DIGITS / "digits.onnx"] if request.param == "digits" else external_model(folder)
    return (
        built(source, folder / "here", "one.aotc", key, "server-cpu", 1),
        built(source, folder / "far" / "away", "another-name.aotc", key, "server-cpu", 2),
    )


def test_payloads_are_the_same_bytes(two_builds: tuple[Path, Path]) -> None:
    one, other = (contents_of(path / "payload") for path in two_builds)
    assert list(one) == list(other)
    assert [name for name in one if one[name] != other[name]] == []


def test_signatures_are_the_same_bytes(two_builds: tuple[Path, Path]) -> None:
    one, other = ((path / SIGNATURE).read_bytes() for path in two_builds)
    assert one == other


def test_the_payload_contains_no_place_and_no_time(two_builds: tuple[Path, Path]) -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    user, host = getpass.getuser(), socket.gethostname()
    # Names with delimiters around them, since weights may contain a short name by chance.
    for path in two_builds:
        place = path.parent
        patterns = {
            "the folder it was built in": re.escape(str(place)),
            "the folders above": re.escape(str(place.parent)),
            "the home folder": re.escape(str(Path.home())) + "/",
            "a temporary folder": re.escape(tempfile.gettempdir()) + "/",
            "the interpreter's folder": re.escape(sys.prefix),
            "the output's name": re.escape(path.name),
            "the user's name": rf'[/"@ ]{re.escape(user)}[/"@ ]',
            "the host's name": rf'[/"@ ]{re.escape(host)}[/"@ ]',
            "a time": rf"{today:%Y}-?{today:%m}-?\d\d|{today:%Y}-\d\d-\d\dT",
        }
        for name, data in contents_of(path / "payload").items():
            found = [what for what, one in patterns.items() if re.search(one.encode(), data)]
            assert found == [], f"{name} holds {found}"


def test_only_evidence_and_provenance_contain_the_time(two_builds: tuple[Path, Path]) -> None:
    one, other = (contents_of(path / "attestations") for path in two_builds)
    assert sorted(name for name in one if one[name] != other[name]) == [
        "evidence.sigstore.json",
        "provenance.sigstore.json",
    ]
    assert sorted(one) == [
        "evidence.sigstore.json",
        "oms.sigstore.json",
        "provenance.sigstore.json",
        "sbom.sigstore.json",
    ]
