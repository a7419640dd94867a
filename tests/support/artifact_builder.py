"""A small real artifact: an ONNX model with external weights, as a signed ORT model package."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aotc.host.probe import probe
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.codec import Json, encode
from aotc.spec.json import canonical_json, canonical_sha256
from aotc.spec.manifest import Capture, Manifest, session_options
from aotc.spec.payload import CHUNK_BYTES, FileEntry, Fixture, FixtureTensor, Value
from aotc.spec.precision import Tolerance
from aotc.spec.profile import Profile
from aotc.spec.profile_files import load_target
from aotc.spec.shapes import Dim, Domain
from aotc.spec.target import Libc
from aotc.spec.variant import (
    MemoryPlan,
    NodePlacement,
    Parity,
    Placement,
    Requirements,
    SessionSpec,
    Toolchain,
    Variant,
)
from aotc.spec.versions import MANIFEST_SCHEMA, VERSION
from aotc.trust import oms, statements
from aotc.trust.key_loading import PrivateKey

CPU = ("CPUExecutionProvider",)
FEATURES = 4


def build_artifact(
    folder: Path,
    key: PrivateKey,
    *,
    native: bool = True,
    padding: int = 0,
    change: dict[str, Any] | None = None,
    requirements: dict[str, Any] | None = None,
    parity: Parity | None = None,
) -> Path:
    """Write an artifact `y = x @ W + b` into `folder` and sign it.

    `padding` bytes are added to the weights file; `change` replaces fields of the written
    aotc.json before it is signed, `requirements` and `parity` those of every variant.
    """
    payload = folder / "payload"
    weights = _write_weights(payload, padding)
    variants = []
    for name, component in [("portable", "model"), *([("native", "model.native")] * native)]:
        model = f"{component}/{name}/model.onnx"
        (payload / model).parent.mkdir(parents=True)
        (payload / model).write_bytes(_model().SerializeToString())
        variants.append(_variant(name, component, model, weights, requirements or {}, parity))
    fixture = _write_fixture(payload)
    (payload / "manifest.json").write_bytes(canonical_json(package_manifest(variants)))
    files = tuple(
        sorted(
            (_entry(path, payload) for path in payload.rglob("*") if path.is_file()),
            key=lambda entry: entry.path,
        )
    )
    document: dict[str, Json] = encode(_manifest(tuple(variants), fixture, files))
    document.update(change or {})
    (payload / "aotc.json").write_bytes(canonical_json(document))
    sign_artifact(folder, key)
    return folder


def sign_artifact(folder: Path, key: PrivateKey, name: str = "oms.sigstore.json") -> None:
    """Sign the current payload, and add an evidence attestation."""
    digests = payload_digests(folder)
    attestations = folder / "attestations"
    attestations.mkdir(exist_ok=True)
    (attestations / name).write_bytes(oms.sign(digests, key))
    (attestations / "evidence.sigstore.json").write_bytes(
        statements.sign(
            KINDS["evidence"].predicate_type,
            {"seconds": 1.5},
            {"aotc.json": digests["aotc.json"]},
            key,
        )
    )


def payload_digests(folder: Path) -> dict[str, str]:
    """sha256 of every payload file, by path."""
    payload = folder / "payload"
    return {
        path.relative_to(payload).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in payload.rglob("*")
        if path.is_file()
    }


def package_manifest(variants: list[Variant]) -> dict[str, Json]:
    """ORT's manifest.json for these variants."""
    components: dict[str, Json] = {}
    for variant in variants:
        components[variant.component] = {
            "variants": {
                variant.name: {
                    "variant_directory": variant.model.rpartition("/")[0],
                    "ep": variant.providers[0],
                    "executor_info": {
                        "ort": {
                            "model_file": "model.onnx",
                            "session_options": session_options(variant),
                        }
                    },
                }
            }
        }
    return {
        "schema_version": "1.0",
        "package_name": "linear",
        "layout": "portable",
        "components": components,
    }


def _weight_arrays() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(20261121)
    return (
        random.standard_normal((FEATURES, FEATURES)).astype(np.float32),
        random.standard_normal(FEATURES).astype(np.float32),
    )


def _model() -> onnx.ModelProto:
    weight, bias = (
        numpy_helper.from_array(array, name)
        for name, array in zip("Wb", _weight_arrays(), strict=True)
    )
    offset = 0
    for tensor in (weight, bias):
        size = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for name, value in (("location", "weights.bin"), ("offset", offset), ("length", size)):
            tensor.external_data.add(key=name, value=str(value))
        offset += size
    shape = ["batch", FEATURES]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "W", "b"], ["y"], name="gemm")],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [weight, bias],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _write_weights(payload: Path, padding: int) -> str:
    data = b"".join(array.tobytes() for array in _weight_arrays())
    data += np.random.default_rng(1).bytes(padding)
    line = f"{hashlib.sha256(data).hexdigest()}  weights.bin\n"
    name = f"shared_assets/sha256-{hashlib.sha256(line.encode()).hexdigest()}"
    (payload / name).mkdir(parents=True)
    (payload / name / "weights.bin").write_bytes(data)
    return name


def _write_fixture(payload: Path) -> Fixture:
    folder = payload / "fixtures" / "opt"
    folder.mkdir(parents=True)
    weight, bias = _weight_arrays()
    x = np.arange(2 * FEATURES, dtype=np.float32).reshape(2, FEATURES)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", x @ weight + bias)
    return Fixture(
        name="opt",
        origin="generated",
        sizes={"batch": 2},
        inputs=(FixtureTensor(name="x", path="fixtures/opt/x.npy"),),
        outputs=(FixtureTensor(name="y", path="fixtures/opt/y.npy"),),
    )


def _entry(path: Path, payload: Path) -> FileEntry:
    data = path.read_bytes()
    name = path.relative_to(payload).as_posix()
    parts = range(0, len(data), CHUNK_BYTES) if len(data) > CHUNK_BYTES else ()
    roles = {"fixtures": "fixture", "shared_assets": "weights", "manifest.json": "package"}
    return FileEntry(
        path=name,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        role=roles.get(name.partition("/")[0], "model"),  # type: ignore[arg-type]
        chunks=tuple(hashlib.sha256(data[i : i + CHUNK_BYTES]).hexdigest() for i in parts),
    )


def native_fits(target: str) -> bool:
    """Whether the variant `native`, which is for this CPU and no other, fits a known target."""
    return set(probe(gpus=False).isa or ()) == set(load_target(target).isa or ())


def _variant(
    name: str,
    component: str,
    model: str,
    weights: str,
    requirements: dict[str, Any],
    parity: Parity | None,
) -> Variant:
    host = probe(gpus=False)
    exact = name == "native"
    required = Requirements(
        os=host.os,
        architecture=host.architecture,
        libc=Libc(name="glibc", version="2.17"),
        isa=(host.isa or ()) if exact else (),
        isa_exact=exact,
        onnxruntime_min="1.31.0",
        onnxruntime_below="1.33",
        providers=CPU,
    )
    return Variant(
        name=name,
        component=component,
        providers=CPU,
        model=model,
        files=(model, f"{weights}/weights.bin"),
        weights=weights,
        session=SessionSpec(optimization="all"),
        placement=Placement(
            origin="observed",
            nodes=(NodePlacement(name="gemm", op="Gemm", provider=CPU[0]),),
            share={CPU[0]: 1.0},
        ),
        memory=MemoryPlan(weights_bytes=80),
        parity=parity
        or Parity(status="passed", tolerance=Tolerance(atol=1e-5, rtol=1e-4, min_cosine=0.9999)),
        requirements=dataclasses.replace(required, **requirements),
    )


def _manifest(
    variants: tuple[Variant, ...], fixture: Fixture, files: tuple[FileEntry, ...]
) -> Manifest:
    profile = encode(Profile(schema="aotc.profile/1", name="edge"))
    shape = ("batch", FEATURES)
    return Manifest(
        schema=MANIFEST_SCHEMA,
        name="linear",
        source=Capture(
            sha256=hashlib.sha256(_model().SerializeToString()).hexdigest(),
            size=len(_model().SerializeToString()),
            ir_version=9,
            opsets={"ai.onnx": 17},
            nodes=1,
            nodes_total=1,
            op_types={"Gemm": 1},
            initializers=2,
            initializer_bytes=80,
            constants=0,
        ),
        profile=profile,
        profile_sha256=canonical_sha256(profile),
        target="host",
        target_sha256="0" * 64,
        toolchain=Toolchain(
            aotc=VERSION, python="3.11.2", onnx=onnx.__version__, onnxruntime="1.31.1"
        ),
        inputs=(Value(name="x", dtype="float32", shape=shape),),
        outputs=(Value(name="y", dtype="float32", shape=shape),),
        domain=Domain(dims={"batch": Dim(min=1, max=8, opt=2, origin="stated")}),
        variants=variants,
        fixtures=(fixture,),
        files=files,
    )
