"""An artifact with parts that OpenVINO compiled, merged with one of ONNX Runtime's own provider."""

from __future__ import annotations

import openvino_models as small
import pytest
import shared_workers
from made_profiles import small_profile
from workbench import Workbench

from aotc import load, verify
from aotc.spec.codec import decode
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest

pytestmark = pytest.mark.openvino
OPENVINO = "OpenVINOExecutionProvider"


def test_compiled_parts_are_taken_over(bench: Workbench) -> None:
    source = bench.save(small.plain(64), "net")
    variants = [{"name": "compiled", "providers": ["openvino", "cpu"]}]
    compiled = bench.build(
        source, "compiled", profile=small_profile("edge-openvino", variants=variants)
    )
    plain = bench.build(source, "plain", profile=small_profile("edge"))
    output = bench.folder / "merged.aotc"
    shared_workers.merge([plain.path, compiled.path], output, key=bench.private)
    document = strict_json((output / "payload" / "aotc.json").read_bytes())
    merged = decode(Manifest, document)
    # What an accelerator runs is preferred, whichever came first.
    assert [variant.name for variant in merged.variants] == ["compiled", "portable"]
    parts = merged.variants[0].partitioning
    assert parts is not None
    assert all(part.file in merged.variants[0].files for part in parts.partitions if part.file)
    assert verify(output, key=bench.public).best == "compiled"
    for name in ("compiled", "portable"):
        with load(output, key=bench.public, store=bench.folder / "store", variant=name) as model:
            assert model.report.fixtures > 0
