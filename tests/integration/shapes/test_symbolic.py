"""Relations, grids and ranges of a profile, compared with real runs of the original model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import model_parts
import numpy as np
import onnx
import pytest
from onnx import helper
from refusals import refusal
from third_party_models import MODELS, needs_models
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.spec.codec import decode
from aotc.spec.profile import Profile

model_of = partial(model_parts.model_of, opset=17, ir_version=8)


def profile(**fields: Any) -> Profile:
    return decode(Profile, {"schema": "aotc.profile/1", "name": "symbolic", **fields})


def matched() -> onnx.ModelProto:
    """Rows of two inputs are concatenated, so their first dims must be equal."""
    node = helper.make_node("Concat", ["a", "b"], ["y"], axis=1)
    return model_of([node], {"a": [None, 4], "b": ["rows", "n"]}, {"y": ["batch", "wide"]})


def refused(bench: Workbench, model: Path | onnx.ModelProto, name: str, **fields: Any) -> AotcError:
    error = refusal(bench.build, model, name, profile=profile(**fields))
    assert not (bench.folder / f"{name}.aotc").exists()
    return error


def assert_runs(bench: Workbench, built: Built, **sizes: int) -> None:
    known = built.manifest.domain.complete(sizes)
    inputs = built.inputs(known)
    with bench.load(built) as model:
        found = model.run(inputs)
        assert model.telemetry.to_dict()["out_of_domain"] == 0
    assert_agree(plain_answer(plain_session(built.source), inputs), found, tolerance_of(built))


# -- equal dims
def test_equal_dims_have_one_name_in_graph_and_manifest(bench: Workbench) -> None:
    built = bench.build(
        matched(),
        "equal",
        profile=profile(relations=["batch = a.0 = b.0"], dims={"batch": "1..8", "n": "1..4"}),
    )
    manifest = built.manifest
    assert [value.shape for value in manifest.inputs] == [("batch", 4), ("batch", "n")]
    assert list(manifest.domain.dims) == ["batch", "n"]
    assert manifest.domain.relations == ()
    assert "AOTC-S007" not in built.codes()
    graph = onnx.load(built.payload / manifest.variants[0].model, load_external_data=False).graph
    first = [value.type.tensor_type.shape.dim[0].dim_param for value in graph.input]
    assert first == ["batch", "batch"]
    assert_runs(bench, built, batch=3, n=2)
    with (
        bench.load(built) as model,
        pytest.raises(AotcError, match="AOTC-R004 dim 'batch' has two sizes in one call"),
    ):
        model.run({"a": np.zeros((2, 4), np.float32), "b": np.zeros((3, 1), np.float32)})


def test_without_a_relation_the_same_is_found(bench: Workbench) -> None:
    built = bench.build(matched(), "found", profile=profile(dims={"n": "1..4"}))
    assert [str(relation) for relation in built.manifest.domain.relations] == ["rows = a.0"]
    assert built.finding("AOTC-S007") == "rows: rows = a.0"


@pytest.mark.parametrize("name", ["batch", "rows", "a.0", "b.0"])
def test_a_dim_may_be_called_by_any_of_its_names(bench: Workbench, name: str) -> None:
    built = bench.build(
        matched(),
        f"called-{name}",
        profile=profile(
            relations=["batch = a.0 = b.0"],
            dims={name: {"buckets": [2, 4], "outside": "pad"}, "n": 3},
            inputs={"b": {"shape": ["rows", "n"]}},
            outputs={"y": {"crop": {"0": name}}},
        ),
    )
    assert built.manifest.domain.dims["batch"].buckets == (2, 4)
    assert {variant.buckets["batch"] for variant in built.manifest.variants} == {2, 4}
    assert built.manifest.padding is not None
    assert [crop.dims for crop in built.manifest.padding.crops] == [("batch",)]


def test_a_position_is_the_dim_that_the_model_names(bench: Workbench) -> None:
    built = bench.build(matched(), "position", profile=profile(dims={"b.1": 3, "a.0": "1..4"}))
    assert built.manifest.domain.dims["n"].max == 3
    assert built.manifest.domain.dims["a.0"].max == 4


def test_one_dim_with_two_ranges_is_refused(bench: Workbench) -> None:
    error = refused(
        bench,
        matched(),
        "two",
        relations=["batch = a.0 = b.0"],
        dims={"batch": "1..8", "rows": "1..4"},
    )
    assert error.code == "AOTC-S011"
    assert error.what == "'batch' and 'rows' are the same dim, but have different ranges"
    assert (error.expected, error.found) == ("1..8", "1..4")


def test_equal_dims_that_are_bounded_differently(bench: Workbench) -> None:
    error = refused(bench, matched(), "bounds", dims={"a.0": "1..8", "rows": "1..4"})
    assert (error.code, error.what) == ("AOTC-S011", "the model runs only where rows = a.0")


def test_an_equality_that_the_model_does_not_need_is_reported(bench: Workbench) -> None:
    node = helper.make_node("Concat", ["a", "b"], ["y"], axis=0)
    model = model_of([node], {"a": ["m", 2], "b": ["n", 2]}, {"y": None})
    built = bench.build(model, "unneeded", profile=profile(relations=["m = n"]))
    assert built.finding("AOTC-S025").startswith("m = n: the model also runs at m=")
    assert list(built.manifest.domain.dims) == ["m"]


def test_a_wrong_relation_is_refused_with_the_right_one(bench: Workbench) -> None:
    error = refused(bench, matched(), "wrong", relations=["rows = a.0 + 1"])
    assert (error.code, error.where) == ("AOTC-S014", "rows = a.0 + 1")
    assert error.what == "the model runs only where rows = a.0"


@pytest.mark.parametrize(
    ("relations", "code"),
    [
        (["batch = c.0"], "AOTC-S015"),
        (["x = a.0 + 1"], "AOTC-S015"),
        (["n = a.0 + 1", "a.0 = b.1 + 1"], "AOTC-S015"),
        (["n = a.1"], "AOTC-S004"),
    ],
)
def test_relations_that_do_not_fit_the_model(
    bench: Workbench, relations: list[str], code: str
) -> None:
    assert refused(bench, matched(), "unfit", relations=relations).code == code


def test_fixtures_that_contradict_a_relation(bench: Workbench, tmp_path: Path) -> None:
    data = {"a": np.zeros((2, 4), np.float32), "b": np.zeros((2, 3), np.float32)}
    np.savez(tmp_path / "one.npz", **data)
    with pytest.raises(AotcError) as caught:
        bench.build(
            matched(),
            "contradicted",
            profile=profile(relations=["n = rows + 5"]),
            fixtures=tmp_path / "one.npz",
        )
    assert caught.value.code == "AOTC-I024"
    assert (caught.value.expected, caught.value.found) == ("7", "3")


# -- ranges
def reshaped() -> onnx.ModelProto:
    """A model whose dim is declared free but runs at only one size."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    return model_of([node], {"x": ["n", 4]}, {"y": [48, 4]}, {"shape": np.array([48, 4])})


def test_a_range_of_which_one_size_runs(bench: Workbench) -> None:
    error = refused(bench, reshaped(), "one", dims={"n": "16..128"})
    assert (error.code, error.what) == ("AOTC-S016", "the model runs only where n is 48")
    error = refused(bench, reshaped(), "fixed", dims={"n": 64})
    assert (error.code, error.expected) == ("AOTC-S005", "n runs at 48")
    assert bench.build(reshaped(), "right", profile=profile(dims={"n": 48})).manifest.domain


def test_two_builds_find_the_same(bench: Workbench) -> None:
    fields = {"relations": ["batch = a.0 = b.0"], "dims": {"n": {"multiple_of": 4}}}
    first, second = (
        bench.build(matched(), f"twice{index}", profile=profile(**fields)) for index in range(2)
    )
    assert first.manifest.domain == second.manifest.domain
    assert first.manifest.findings == second.manifest.findings
    assert first.manifest.domain.dims["n"].multiple_of == 4
    assert first.manifest.domain.dims["n"].origin == "stated"


# -- real models
@needs_models
def test_gpt2_with_its_total_stated(bench: Workbench) -> None:
    built = bench.build(
        MODELS / "tiny_gpt2_past_genai.onnx",
        "gpt2",
        profile=profile(
            relations=["n = input_ids.0", "total_seq_len = past_seq_len + seq_len"],
            dims={"n": "1..2", "past_seq_len": "0..32", "seq_len": "1..16"},
        ),
    )
    domain = built.manifest.domain
    assert [str(r) for r in domain.relations] == ["total_seq_len = past_seq_len + seq_len"]
    assert "AOTC-S025" not in built.codes()
    assert_runs(bench, built, n=2, past_seq_len=0, seq_len=3)
    assert_runs(bench, built, n=1, past_seq_len=7, seq_len=1)


@needs_models
@pytest.mark.parametrize(
    "stated", ["total_seq_len = past_seq_len + seq_len + 1", "total_seq_len = seq_len"]
)
def test_gpt2_with_a_wrong_total(bench: Workbench, stated: str) -> None:
    error = refused(bench, MODELS / "tiny_gpt2_past_genai.onnx", "gpt2-wrong", relations=[stated])
    assert (error.code, error.where) == ("AOTC-S014", stated)
    assert error.what == "the model runs only where total_seq_len = seq_len + past_seq_len"


@needs_models
def test_silero_with_its_state_tied_to_the_batch(bench: Workbench) -> None:
    built = bench.build(
        MODELS / "silero_vad_v6.onnx",
        "silero",
        profile=profile(relations=["batch = input.0 = state.1"], dims={"batch": "1..4"}),
    )
    assert built.manifest.domain.relations == ()
    assert [value.shape for value in built.manifest.inputs] == [
        ("batch", "input.1"),
        (2, "batch", 128),
        (),
    ]
    assert_runs(bench, built, batch=3, **{"input.1": 512})


@needs_models
def test_yunet_refuses_sizes_off_its_grid_and_tells_it(bench: Workbench) -> None:
    path = MODELS / "yunet_n_dynamic.onnx"
    error = refused(bench, path, "yunet-off", dims={"height": "32..100"})
    assert error.code == "AOTC-S005"
    assert error.expected == "height runs at 32..2048 in steps of 32, and maybe beyond"
    dims = {"batch": 1, "height": {"multiple_of": 48}, "width": 64}
    built = bench.build(path, "yunet-grid", profile=profile(dims=dims))
    height = built.manifest.domain.dims["height"]
    assert (height.min, height.multiple_of, height.origin) == (96, 96, "stated")


@needs_models
@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"min": 1, "max": 4096}, "the largest stated sizes do not run: batch=3, sequence=4096"),
        ({"buckets": [16, 256]}, "bucket 256 of sequence does not run: batch=3, sequence=256"),
    ],
)
def test_tinybert_tells_its_longest_sequence(
    bench: Workbench, spec: dict[str, Any], what: str
) -> None:
    path = MODELS / "tinybert_untrained.onnx"
    error = refused(bench, path, "tinybert", dims={"sequence": spec})
    assert (error.code, error.what) == ("AOTC-S005", what)
    assert error.expected == "sequence runs at 1..100"


@needs_models
@pytest.mark.parametrize(
    ("name", "dims", "wanted"),
    [
        ("tract_bidi_lstm", {"length": {"multiple_of": 16}}, (16, 16)),
        ("magika_v3_3", {"bytes.0": {"multiple_of": 4}}, (4, 4)),
        ("basic_pitch_nmp", {"serving_default_input_2:0.0": "1..2"}, (1, 1)),
    ],
)
def test_ranges_and_grids_of_other_models(
    bench: Workbench, name: str, dims: dict[str, Any], wanted: tuple[int, int]
) -> None:
    built = bench.build(MODELS / f"{name}.onnx", name, profile=profile(dims=dims))
    stated = [dim for dim in built.manifest.domain.dims.values() if dim.origin == "stated"]
    assert [(dim.min, dim.multiple_of) for dim in stated] == [wanted]
