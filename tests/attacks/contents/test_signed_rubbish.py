"""What a trusted key signed may still be rubbish: verify or load refuses it with a code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edited_artifact import base, edited, written
from fuzz_loaded import SPINNING, SPINS
from made_keys import TRUSTED

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.runtime.loading import load
from aotc.spec.codec import ParseError
from aotc.spec.providers import MANIFEST_KEYS
from aotc.spec.yaml import strict_yaml
from aotc.trust.gate import verify
from aotc.trust.policy.host_trust import Trust

TRUST = Trust.of((TRUSTED.trusted(),))
ORT = ["components", "model", "variants", "portable", "executor_info", "ort"]
CONFIG = ["variants", 0, "session", "config"]
X, Y, MODEL = "fixtures/opt/x.npy", "fixtures/opt/y.npy", "model/portable/model.onnx"
INPUT, OUTPUT = ["fixtures", 0, "inputs", 0], ["fixtures", 0, "outputs", 0]
Edit = list[Any]


def config(value: str, key: str = SPINS) -> list[Edit]:
    """A session option that both manifests state."""
    return [
        ["aotc.json", CONFIG, "set", {key: value}],
        ["manifest.json", [*ORT, "session_options", key], "set", value],
    ]


def of(*edit: Any) -> list[Edit]:
    return [["aotc.json", *edit]]


# Edits, and the codes of verify; if it finds nothing, the code of load.
RUBBISH: dict[str, tuple[list[Edit], str, str]] = {
    "no profile": (of(["profile"], "set", None), "G009", ""),
    "a profile that is not valid": (of(["profile"], "set", {"name": 7}), "", "G009"),
    "a newer profile": (of(["profile"], "set", {"schema": "aotc.profile/9"}), "", "I046"),
    "no outputs": (of(["outputs"], "set", []), "G009", ""),
    "an output twice": (of(["outputs", 1], "copy", ["outputs", 0]), "G009", ""),
    "an input twice": (of(["inputs", 1], "copy", ["inputs", 0]), "G009", ""),
    "other outputs": (
        [*of(["outputs", 0, "name"], "set", "z"), *of(["fixtures"], "set", [])],
        "",
        "R023",
    ),
    "other inputs": (
        [*of(["inputs", 0, "name"], "set", "z"), *of(["fixtures"], "set", [])],
        "",
        "R023",
    ),
    "a fixture without outputs": (of(["fixtures", 0, "outputs"], "set", []), "G009", ""),
    "a fixture without inputs": (of(["fixtures", 0, "inputs"], "set", []), "G009", ""),
    "a fixture's unknown output": (of([*OUTPUT, "name"], "set", "z"), "G009", ""),
    "a fixture's unknown input": (of([*INPUT, "name"], "set", "z"), "G009", ""),
    "a fixture's output twice": (
        of(["fixtures", 0, "outputs", 1], "copy", ["fixtures", 0, "outputs", 0]),
        "G009",
        "",
    ),
    "two fixtures of one name": (of(["fixtures", 1], "copy", ["fixtures", 0]), "G009", ""),
    "an array's header": ([[X, 49, "put", "23"]], "", "G014"),
    "a golden array's header": ([[Y, 49, "put", "23"]], "", "G014"),
    "an array that ends early": ([[X, 130, "cut", None]], "", "G014"),
    "a session value too long": (config("0" * 8193), "G014", ""),
    "a session value with a NUL": (config("0\0"), "G014", ""),
    "a session that compiles": (config("1", "ep.context_enable"), "G014", ""),
    "another device": (
        [["manifest.json", [*ORT[:-2], "device"], "set", "gpu"]],
        "G014",
        "",
    ),
    "a package that says nothing": ([["manifest.json", [], "set", None]], "G014", ""),
    "a manifest that says nothing": ([["aotc.json", [], "set", None]], "G009", ""),
    "no threads": (of([*CONFIG[:-1], "threads"], "set", 0), "G014", ""),
    "more threads than there are": (of([*CONFIG[:-1], "threads"], "set", 1025), "G014", ""),
    "a variant left out for a dim that has no buckets": (
        of(
            ["dropped"],
            "set",
            [{"name": "v", "spec": "portable", "buckets": {"z": 1}, "rejects": True, "reason": ""}],
        ),
        "G009",
        "",
    ),
    "names that are no text": ([[MODEL, 23, "put", "9adc"]], "", "R023"),
}


@pytest.mark.parametrize("name", RUBBISH)
def test_signed_rubbish_has_a_code(name: str, tmp_path: Path) -> None:
    edits, at_verify, at_load = RUBBISH[name]
    made = edited(json.dumps(edits).encode())
    assert made is not None
    assert written(made, tmp_path / "a.aotc")
    report = verify(tmp_path / "a.aotc", trust=TRUST)
    wanted = {f"AOTC-{at_verify}"} if at_verify else set()
    assert {refusal.code for refusal in report.refusals} == wanted
    with pytest.raises(AotcError) as caught:
        load(tmp_path / "a.aotc", trust=TRUST, store=tmp_path / "store", threads=1).close()
    assert caught.value.code == f"AOTC-{at_verify or at_load}"


def test_the_artifact_without_edits_loads(tmp_path: Path) -> None:
    assert written(base(), tmp_path / "a.aotc")
    assert verify(tmp_path / "a.aotc", trust=TRUST).authentic
    load(tmp_path / "a.aotc", trust=TRUST, store=tmp_path / "store", threads=1).close()


def test_the_longest_session_value_is_taken(tmp_path: Path) -> None:
    """The limit is that of ONNX Runtime."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.add_session_config_entry("session.x", "x" * 8192)
    with pytest.raises(RuntimeError):
        options.add_session_config_entry("session.y", "x" * 8193)
    assert SPINS in SPINNING
    assert "ep.context_enable" not in MANIFEST_KEYS


@pytest.mark.parametrize(
    "text",
    [
        b"sequence: 9007199254740992",
        b"sequence: -9007199254740992",
        b"a: 999999999999999999",
        b'a: "\\ud800"',
        b'"\\ud800": a',
    ],
)
def test_yaml_that_json_cannot_express(text: bytes) -> None:
    """A policy's sequence is remembered in JSON, and names of files are UTF-8."""
    with pytest.raises(ParseError):
        strict_yaml(text)
    assert strict_yaml(b"sequence: 9007199254740991") == {"sequence": 2**53 - 1}


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999,)}",
        "{'descr': 'O', 'fortran_order': False, 'shape': ()}",
        "(" * 500,
        "\\\0",
        "1" * 9000,
    ],
)
def test_headers_of_arrays(header: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    text = header.encode().ljust(118)
    path.write_bytes(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + bytes(8))
    with pytest.raises(AotcError) as caught:
        values.load(path, refusal="AOTC-I027")
    assert caught.value.code == "AOTC-I027"
    np.save(path, np.zeros(2))
    assert values.load(path).shape == (2,)
