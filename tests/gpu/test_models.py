"""The models of AOTC_MODELS, built for CUDA here: where their nodes ran, and what they answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from on_gpu import CUDA, note
from third_party_models import MISSING, MODELS

import aotc
from aotc.errors import AotcError

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
# What stands in an answer's code if the profile's budgets refuse a model.
_REFUSED = ("AOTC-P", "AOTC-S")


def _models() -> dict[str, dict[str, Any]]:
    if MISSING:
        return {}
    return {entry["name"]: entry for entry in json.loads((MODELS / "MANIFEST.json").read_text())}


@pytest.mark.parametrize("name", list(_models()))
def test_a_model_is_built_observed_and_proven(name: str, tmp_path: Path) -> None:
    described = _models()[name]
    shapes = [shape for _, shape in described["inputs"].values()]
    dims: dict[str, str | int] = {"batch": 1} if any("batch" in shape for shape in shapes) else {}
    output = tmp_path / "built.aotc"
    try:
        report = aotc.build(
            MODELS / f"{name}.onnx", profile="server-cuda", dims=dims, output=output, cache=False
        )
    except AotcError as error:
        note(f"{name} refused", error.line())
        if error.code.startswith(_REFUSED):
            pytest.skip(error.line())
        raise
    with aotc.load(output) as model:
        for variant in model.manifest.variants:
            share = dict(variant.placement.share)
            note(f"{name} {variant.name}", {"share": share, "graphs": variant.graphs is not None})
            assert variant.placement.how == "observed"
            assert variant.parity.status == "passed"
        assert model.variant.placement.share[CUDA] > 0
        assert model.report.fixtures > 0
    note(f"{name} findings", sorted({finding.code for finding in report.findings}))
