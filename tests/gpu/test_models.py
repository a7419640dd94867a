"""The models of AOTC_MODELS, built for CUDA here: where their nodes ran, and what they answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from on_gpu import CUDA, note, told_of
from third_party_models import MISSING, MODELS

import aotc
from aotc.base.errors import AotcError
from aotc.spec.reports import BuildReport

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
# What the budgets of the profile refuse, by code: trees have no kernels on CUDA.
REFUSED = {"xgboost_onnxmltools": "AOTC-P002"}
# Nodes on the CPU, or control flow.
WITHOUT_GRAPHS = ("mobilenet_qdq_int8", "silero_vad_v6", "silero_vad_op18_ifless")
# ONNX Runtime captures none of their graphs with channels last.
CHANNELS_FIRST = ("yunet_n_dynamic", "basic_pitch_nmp")


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

    def build() -> BuildReport:
        source = MODELS / f"{name}.onnx"
        return aotc.build(source, profile="server-cuda", dims=dims, output=output, cache=False)

    if name in REFUSED:
        with pytest.raises(AotcError) as refused:
            build()
        note(f"{name} refused", refused.value.line())
        assert refused.value.code == REFUSED[name]
        return
    report = build()
    codes = {finding.code for finding in report.findings}
    note(f"{name} findings", sorted(codes))
    note(f"{name} graphs", [each.what for each in report.findings if each.code == "AOTC-P014"])
    assert ("AOTC-P014" in codes) == (name in WITHOUT_GRAPHS)
    if name in CHANNELS_FIRST:
        assert "AOTC-O013" in codes
    with aotc.load(output) as model:
        for variant in model.manifest.variants:
            share = dict(variant.placement.share)
            note(
                f"{name} {variant.name}",
                {"share": share, "graphs": variant.cuda_graphs is not None},
            )
            assert variant.placement.origin == "observed"
            assert variant.parity.status == "passed"
            assert (variant.cuda_graphs is None) == (name in WITHOUT_GRAPHS)
        assert model.variant.placement.share[CUDA] > 0
        assert model.report.fixtures > 0
        # What the manifest says of graphs holds where it is loaded.
        assert "AOTC-R024" not in told_of(model)
        if name not in WITHOUT_GRAPHS:
            assert model._runners[0].captured
