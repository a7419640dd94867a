"""Builds with a test key, loads from a test store, and the plain session for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from shared_workers import build

from aotc import load
from aotc.graph.model import read_model
from aotc.runtime.model import Model
from aotc.sizes.inputs.fixtures import generate
from aotc.sizes.inputs.hints import hints_of
from aotc.spec.codec import decode
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.precision import Tolerance
from aotc.spec.reports import BuildReport
from aotc.spec.variant import Variant
from aotc.trust import key_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One artifact, the model file it was built from, and the build's report."""

    path: Path
    source: Path
    report: BuildReport
    manifest: Manifest

    @property
    def payload(self) -> Path:
        """The model package."""
        return self.path / "payload"

    def codes(self) -> list[str]:
        """Codes of all findings."""
        return [finding.code for finding in self.manifest.findings]

    def finding(self, code: str) -> str:
        """The text of the only finding with `code`."""
        (found,) = (f for f in self.manifest.findings if f.code == code)
        return f"{found.where}: {found.what}" if found.where else found.what

    def nodes(self, variant: str = "portable") -> list[onnx.NodeProto]:
        """Nodes of a variant's main graph."""
        (chosen,) = (v for v in self.manifest.variants if v.name == variant)
        graph = onnx.load(self.payload / chosen.model, load_external_data=False).graph
        return list(graph.node)

    def inputs(self, sizes: Mapping[str, int], seed: int = 3) -> dict[str, Any]:
        """Sensible inputs at `sizes`."""
        return generate(self.manifest.inputs, sizes, hints_of(read_model(self.source)), seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """A folder with a signing key, a store and everything that is built."""

    folder: Path
    private: Path
    public: Path

    @classmethod
    def at(cls, folder: Path) -> Workbench:
        """A new one in `folder`."""
        private, public = key_files.generate(folder / "release.pem")
        return cls(folder=folder, private=private, public=public)

    def save(self, model: onnx.ModelProto, name: str) -> Path:
        """Write `model` as NAME.onnx."""
        path = self.folder / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    def build(self, model: Path | onnx.ModelProto, name: str, **options: Any) -> Built:
        """Build `model` into NAME.aotc; `options` are those of `aotc.build`."""
        source = model if isinstance(model, Path) else self.save(model, name)
        output = self.folder / f"{name}.aotc"
        report = build(source, output=output, key=self.private, **options)
        text = (output / "payload" / "aotc.json").read_bytes()
        manifest = decode(Manifest, strict_json(text))
        return Built(path=output, source=source, report=report, manifest=manifest)

    def load(self, built: Built, variant: str | None = None) -> Model:
        """Load an artifact, with one thread per operator."""
        store = self.folder / "store"
        return load(built.path, key=self.public, store=store, variant=variant, threads=1)


def only_variant(built: Built) -> Variant:
    """The variant of an artifact that has no other."""
    (variant,) = built.manifest.variants
    return variant


def plain_session(model: Path) -> ort.InferenceSession:
    """A session without this toolchain, with optimizations off."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def plain_answer(session: ort.InferenceSession, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of the plain session by name."""
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def assert_agree(expected: Any, found: Any, tolerance: Tolerance, where: str = "") -> None:
    """Equal kinds, types and shapes; floats within the tolerance, everything else exactly.

    Independent of the toolchain's own comparison, so that a fault in that is found.
    """
    if isinstance(expected, dict):
        assert list(expected) == list(found), where
        for key, value in expected.items():
            assert_agree(value, found[key], tolerance, f"{where}/{key}")
        return
    if isinstance(expected, list | tuple):
        assert isinstance(found, list | tuple)
        assert len(expected) == len(found), where
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            assert_agree(one, other, tolerance, f"{where}/{index}")
        return
    if expected is None:
        assert found is None, where
        return
    one, other = np.asarray(expected), np.asarray(found)
    assert one.shape == other.shape, where
    if one.dtype.kind == "O" or other.dtype.kind in "OU":
        assert one.astype(str).tolist() == other.astype(str).tolist(), where
        return
    assert one.dtype == other.dtype, where
    if one.dtype.kind in "biu" or not one.size:
        assert np.array_equal(one, other), where
        return
    if one.dtype.kind == "c":
        one, other = np.stack([one.real, one.imag]), np.stack([other.real, other.imag])
    one, other = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(one)
    assert np.array_equal(one[~finite], other[~finite], equal_nan=True), where
    if finite.any():
        bound = tolerance.atol + tolerance.rtol * np.abs(one[finite]).max()
        error = np.abs(one[finite] - other[finite]).max()
        assert error <= bound, f"{where}: error {error} exceeds {bound}"


def tolerance_of(built: Built, variant: str = "portable") -> Tolerance:
    """The tolerance that the manifest promises for a variant."""
    (chosen,) = (v for v in built.manifest.variants if v.name == variant)
    assert chosen.parity.tolerance is not None
    return chosen.parity.tolerance
