"""A small manifest, for tests of code that reads one."""

from __future__ import annotations

from aotc.spec.manifest import Capture, Manifest
from aotc.spec.payload import Value
from aotc.spec.shapes import Domain
from aotc.spec.variant import (
    MemoryPlan,
    Parity,
    Placement,
    Requirements,
    SessionSpec,
    Toolchain,
    Variant,
)

CPU = ("CPUExecutionProvider",)


def variant(name: str, *, exact: bool = False) -> Variant:
    """A variant for the CPU, for any ISA or for exactly one."""
    return Variant(
        name=name,
        component="model",
        providers=CPU,
        model="model/model.onnx",
        files=("model/model.onnx",),
        session=SessionSpec(optimization="all"),
        placement=Placement(origin="observed", nodes=(), share={}),
        memory=MemoryPlan(weights_bytes=0),
        parity=Parity(status="passed"),
        requirements=Requirements(
            os="linux",
            architecture="x86_64",
            isa_exact=exact,
            onnxruntime_min="1.31.0",
            onnxruntime_below="1.33",
            providers=CPU,
        ),
    )


def manifest(
    *inputs: Value,
    domain: Domain | None = None,
    strict: bool = False,
    variants: tuple[Variant, ...] = (),
) -> Manifest:
    """A manifest with these inputs; a portable and a native variant unless others are given."""
    return Manifest(
        schema="aotc.manifest/1.0",
        name="m",
        source=Capture(
            sha256="0" * 64,
            size=1,
            ir_version=9,
            opsets={"ai.onnx": 19},
            nodes=1,
            nodes_total=1,
            op_types={},
            initializers=0,
            initializer_bytes=0,
        ),
        profile={},
        profile_sha256="0" * 64,
        target="host",
        target_sha256="0" * 64,
        toolchain=Toolchain(aotc="0", python="3", onnx="1", onnxruntime="1.31.1"),
        inputs=inputs,
        outputs=(),
        domain=domain or Domain(),
        strict=strict,
        variants=variants or (variant("portable"), variant("native", exact=True)),
        files=(),
    )
