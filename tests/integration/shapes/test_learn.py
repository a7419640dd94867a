"""Profiles learned for models of other projects: measured, built, and compared with the traffic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from third_party_models import MODELS, needs_models
from workbench import Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.spec.codec import decode
from aotc.spec.command_reports import LearnReport
from aotc.spec.profile_files import load_profile
from aotc.spec.traffic import read_traffic
from aotc.tools.inspect import traffic_coverage
from aotc.tools.learn import profile_learn
from aotc.tools.learn_costs import CostTable

pytestmark = needs_models
SECONDS = 0.5


def written(folder: Path, requests: Sequence[Mapping[str, object]]) -> Path:
    path = folder / "shapes.jsonl"
    path.write_text("\n".join(json.dumps(request) for request in requests))
    return path


def learned(folder: Path, requests: Sequence[Mapping[str, object]], model: str) -> LearnReport:
    """The report of learning on a model of the folder; the profile is next to the traffic."""
    answer = profile_learn(
        written(folder, requests),
        model=MODELS / f"{model}.onnx",
        seconds=SECONDS,
        threads=1,
        output=folder / "learned.yaml",
    )
    assert load_profile(folder / "learned.yaml") == answer.profile
    return answer


def test_an_encoder(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = np.clip(np.round(np.exp(rng.normal(np.log(20), 0.6, 300))), 1, 100).astype(int)
    names = ("input_ids", "attention_mask", "token_type_ids")
    requests = [{name: [1, int(length)] for name in names} for length in [*lengths, 97]]
    answer = learned(tmp_path, requests, "tinybert_untrained")
    assert (answer.dims, answer.fixed, answer.coverage) == (("sequence",), {"batch": 1}, 1.0)
    assert {"one dynamic variant", "buckets", "powers of two", "pad to the largest"} <= {
        plan.name for plan in answer.plans
    }
    bench = Workbench.at(tmp_path)
    source = MODELS / "tinybert_untrained.onnx"
    built = bench.build(source, "learned", profile=str(tmp_path / "learned.yaml"))
    covered = traffic_coverage(
        built.manifest, read_traffic(tmp_path / "shapes.jsonl", built.manifest.inputs)
    )
    assert covered.accepted == 1.0
    assert covered.padding == pytest.approx(answer.padding)
    with bench.load(built) as model:
        for length in (int(min(lengths)), 13, 97):
            inputs = built.inputs({"batch": 1, "sequence": length})
            expected = plain_answer(plain_session(source), inputs)
            assert_agree(
                expected, model.run(inputs), tolerance_of(built, built.manifest.variants[0].name)
            )


def test_a_past_that_may_be_empty(tmp_path: Path) -> None:
    """A size of 0 is never padded: no bucket serves it, and the plan that does is chosen."""
    requests = []
    for past, length in ((0, 4), (0, 7), (6, 1), (6, 4), (9, 1), (0, 1)):
        request: dict[str, object] = {f"past_{i}": [2, 1, 4, past, 8] for i in range(5)}
        request |= {"input_ids": [1, length], "position_ids": [1, length]}
        requests.append({**request, "attention_mask": [1, past + length]})
    answer = learned(tmp_path, requests, "tiny_gpt2_past_genai")
    assert answer.dims == ("past_seq_len", "seq_len")
    assert answer.coverage == 1.0
    # On a busy machine a remark follows.
    wanted = "one dynamic variant, as others refuse requests that cannot be padded"
    assert answer.verdict.startswith(wanted)
    assert {plan.coverage for plan in answer.plans if plan.name == "buckets"} == {0.5}
    assert answer.profile.dims["past_seq_len"].min == 0
    assert answer.profile.relations == ("total_seq_len = past_seq_len + seq_len",)
    bench = Workbench.at(tmp_path)
    source = MODELS / "tiny_gpt2_past_genai.onnx"
    built = bench.build(source, "learned", profile=str(tmp_path / "learned.yaml"))
    shapes = read_traffic(tmp_path / "shapes.jsonl", built.manifest.inputs)
    assert traffic_coverage(built.manifest, shapes).accepted == 1.0


def test_images_whose_padding_changes_the_answer(tmp_path: Path) -> None:
    """Without padding, exact sizes get variants; equal sides are stated as measured."""
    requests = [{"input": [1, 3, side, side]} for side in (96, 160, 160, 224)]
    path = written(tmp_path, requests)
    source = MODELS / "yunet_n_dynamic.onnx"
    answer = profile_learn(
        path,
        model=source,
        max_variants=3,
        padding=False,
        seconds=SECONDS,
        threads=1,
        output=tmp_path / "learned.yaml",
        save_costs=tmp_path / "costs.json",
    )
    table = decode(CostTable, json.loads((tmp_path / "costs.json").read_text()))
    assert answer.follows == {"height": ("width",)}
    assert (answer.coverage, answer.padding) == (1.0, 0.0)
    # 128 is a power of two that was never recorded; it runs, so it is measured.
    assert table.sizes["width"] == (96, 128, 160, 224)
    assert answer.profile.relations == ("height = width",)
    assert not any("pad" in dim.outside for dim in answer.profile.dims.values())
    bench = Workbench.at(tmp_path)
    built = bench.build(source, "learned", profile=str(tmp_path / "learned.yaml"))
    covered = traffic_coverage(built.manifest, read_traffic(path, built.manifest.inputs))
    assert covered.accepted == 1.0


def test_candidates_that_the_model_does_not_take(tmp_path: Path) -> None:
    """Sizes from rounding up are left out if the model does not run at them."""
    rows = [
        {"batch": batch, "sequence": size} for batch in range(1, 9) for size in range(3, 101, 7)
    ]
    profile_learn(
        written(tmp_path, [*rows, {"batch": 1, "sequence": 97}]),
        model=MODELS / "tinybert_untrained.onnx",
        seconds=SECONDS,
        threads=1,
        save_costs=tmp_path / "costs.json",
    )
    table = decode(CostTable, json.loads((tmp_path / "costs.json").read_text()))
    # Rounded up to the grid of candidates, 97 would be 112, and the model ends at 100.
    assert table.sizes["sequence"][-1] == 97


@pytest.mark.parametrize(
    ("size", "code", "where"),
    [(600, "AOTC-S005", "batch=1, sequence=600"), (2_000_000_000, "AOTC-S022", "shapes.jsonl")],
)
def test_a_size_beyond_the_model(tmp_path: Path, size: int, code: str, where: str) -> None:
    path = written(tmp_path, [{"batch": 1, "sequence": 5}, {"batch": 1, "sequence": size}])
    with pytest.raises(AotcError) as caught:
        profile_learn(path, model=MODELS / "tinybert_untrained.onnx", seconds=SECONDS)
    assert caught.value.code == code
    assert where in caught.value.where
