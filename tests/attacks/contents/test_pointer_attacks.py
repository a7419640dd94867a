"""Models and manifests that point outside the signed files, signed by the trusted key itself.

Only the tested rule keeps such an artifact from a session.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest
from attacked_artifact import MODEL, Attacked, built_artifact, forbid_sessions
from onnx import TensorProto, helper

from aotc import load
from aotc.base.errors import AotcError
from aotc.spec.json import canonical_json
from aotc.trust import references

MANIFEST, CONTRADICTION, SESSION = "AOTC-G009", "AOTC-G014", "AOTC-R008"
Attack = Callable[[Attacked], object]
Case = tuple[Attack, tuple[str, ...]]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attacked:
    copy = built_artifact().copy(tmp_path)
    forbid_sessions(monkeypatch)
    return copy


def _external(location: str, **more: str) -> Attack:
    """Move the reference of the model's first weights to `location`."""

    def attack(target: Attacked) -> None:
        (target.path.parent / "secret.bin").write_bytes(bytes(1 << 20))
        model = onnx.load(target.model, load_external_data=False)
        tensor = next(
            each for each in model.graph.initializer if each.data_location == TensorProto.EXTERNAL
        )
        entries = {entry.key: entry for entry in tensor.external_data}
        entries["location"].value = location.format(root=target.path.parent)
        for name, value in more.items():
            entries[name].value = value
        target.model.write_bytes(model.SerializeToString())
        target.sign_files()

    return attack


def _context(target: str) -> Attack:
    """Add a node whose compiled part lies elsewhere."""

    def attack(attacked: Attacked) -> None:
        (attacked.path.parent / "secret.bin").write_bytes(bytes(1 << 20))
        model = onnx.load(attacked.model, load_external_data=False)
        place = target.format(root=attacked.path.parent)
        node = helper.make_node(
            "EPContext",
            [value.name for value in model.graph.input],
            [value.name for value in model.graph.output],
            domain="com.microsoft",
            embed_mode=0,
            main_context=1,
            ep_cache_context=place,
            source="OpenVINOExecutionProvider",
        )
        del model.graph.node[:]
        del model.graph.initializer[:]
        model.graph.node.append(node)
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        attacked.model.write_bytes(model.SerializeToString())
        attacked.sign_files()

    return attack


def _hidden(target: Attacked) -> None:
    """A tag of 33 bits before weights elsewhere: C++ reads it as the field of initializers."""
    model = onnx.load(target.model, load_external_data=False)
    tensor = model.graph.initializer.pop(0)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../../../secret.bin")
    data = tensor.SerializeToString()
    field = _varint((5 << 3 | 2) + (1 << 32)) + _varint(len(data)) + data
    graph = model.graph.SerializeToString() + field
    model.ClearField("graph")
    rest = model.SerializeToString()
    target.model.write_bytes(rest + _varint(7 << 3 | 2) + _varint(len(graph)) + graph)
    target.sign_files()


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


POINTERS: dict[str, Attack] = {
    "absolute": _external("{root}/secret.bin"),
    "up": _external("../../../../../secret.bin"),
    "up and down": _external("../../payload/../../secret.bin"),
    "a device": _external("/dev/zero"),
    "not there": _external("nothing.bin"),
    "empty": _external(""),
    "a folder": _external("."),
    "memory address": _external("*/_ORT_MEM_ADDR_/*", offset="4096"),
    "beyond the end": _external("weights.bin", offset=str(1 << 40)),
    "negative offset": _external("weights.bin", offset="-8"),
    "context up": _context("../../../../secret.bin"),
    "context absolute": _context("{root}/secret.bin"),
    "context not there": _context("nothing.bin"),
    "hidden behind a long tag": _hidden,
}


@pytest.mark.parametrize("attack", POINTERS)
def test_pointers_of_a_model_before_any_session(attack: str, target: Attacked) -> None:
    POINTERS[attack](target)
    target.refused(CONTRADICTION)


@pytest.mark.parametrize("attack", POINTERS)
def test_pointers_of_a_model_are_not_followed(
    attack: str, target: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even without the gate: ONNX Runtime gets bytes and one folder."""
    POINTERS[attack](target)
    monkeypatch.undo()
    monkeypatch.setattr(references, "outside_references", lambda *_: [])
    store = target.path.with_name("store")
    last = target.manifest["variants"][-1]["name"]
    with pytest.raises(AotcError) as caught:
        load(target.path, key=target.public, store=store, variant=last).close()
    assert caught.value.code == SESSION


def test_a_model_in_another_format(target: Attacked) -> None:
    """ONNX Runtime detects the format by the bytes; references in these formats are not read."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(target.path.parent / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(MODEL, options)
    data = (target.path.parent / "model.ort").read_bytes()
    assert ort.InferenceSession(data).get_inputs()
    target.model.write_bytes(data)
    target.sign_files()
    target.refused(CONTRADICTION)


def test_pointers_of_a_variant_that_no_load_here_reads(target: Attacked) -> None:
    model = onnx.load(target.unread, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../../../../secret.bin"
    target.unread.write_bytes(model.SerializeToString())
    target.sign_files()
    assert target.verified() == [CONTRADICTION]


def _promise(change: Callable[[Any, str], object]) -> Attack:
    """Change a promise of the manifest and sign it correctly."""

    def attack(target: Attacked) -> None:
        (target.path.parent / "secret.bin").write_bytes(b"x")
        manifest = target.manifest
        change(manifest, str(target.path.parent))
        target.sign_manifest(canonical_json(manifest))

    return attack


PROMISES: dict[str, Case] = {
    "model up": (
        _promise(lambda m, root: m["variants"][-1].update(model="../secret.bin")),
        (MANIFEST,),
    ),
    "model absolute": (
        _promise(lambda m, root: m["variants"][-1].update(model=f"{root}/secret.bin")),
        (MANIFEST,),
    ),
    "model backslash": (
        _promise(lambda m, root: m["variants"][-1].update(model="..\\secret.bin")),
        (MANIFEST,),
    ),
    "model unsigned": (
        _promise(lambda m, root: m["variants"][-1].update(model="model/nothing.onnx")),
        (MANIFEST,),
    ),
    "weights up": (
        _promise(lambda m, root: m["variants"][-1].update(weights="..")),
        (MANIFEST,),
    ),
    "weights absolute": (
        _promise(lambda m, root: m["variants"][-1].update(weights=root)),
        (MANIFEST,),
    ),
    "weights elsewhere": (
        _promise(lambda m, root: m["variants"][-1].update(weights="model")),
        (CONTRADICTION,),
    ),
    "files up": (
        _promise(lambda m, root: m["variants"][-1]["files"].append("../../secret.bin")),
        (MANIFEST,),
    ),
    "files unsigned": (
        _promise(lambda m, root: m["variants"][-1]["files"].append("nothing.bin")),
        (MANIFEST,),
    ),
    "fixture up": (
        _promise(lambda m, root: m["fixtures"][0]["inputs"][0].update(path="../../secret.bin")),
        (MANIFEST,),
    ),
    "fixture unsigned": (
        _promise(lambda m, root: m["fixtures"][0]["inputs"][0].update(path="nothing.npy")),
        (MANIFEST,),
    ),
    "listed up": (
        _promise(lambda m, root: m["files"][0].update(path="../secret.bin")),
        (MANIFEST,),
    ),
    "listed twice": (
        _promise(lambda m, root: m["files"].append(m["files"][0])),
        (MANIFEST,),
    ),
    "digest in upper case": (
        _promise(lambda m, root: m["files"][0].update(sha256=m["files"][0]["sha256"].upper())),
        (MANIFEST,),
    ),
    "another place for contexts": (
        _promise(
            lambda m, root: m["variants"][-1]["session"].update(
                config={"ep.context_file_path": root}
            )
        ),
        (CONTRADICTION,),
    ),
}


@pytest.mark.parametrize("attack", PROMISES)
def test_promises_of_a_manifest(attack: str, target: Attacked) -> None:
    make, codes = PROMISES[attack]
    make(target)
    target.refused(*codes)


def test_another_folder_for_weights(target: Attacked) -> None:
    """An option that the load itself sets, and that no artifact may state."""
    name = "session.model_external_initializers_file_folder_path"
    root = str(target.path.parent)
    manifest = target.manifest
    for variant in manifest["variants"]:
        variant["session"]["config"] = {name: root}
    target.sign_manifest(canonical_json(manifest))
    target.refused(CONTRADICTION)
