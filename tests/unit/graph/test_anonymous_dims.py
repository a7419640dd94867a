"""Anonymous dims: which names count as such, and their names in graph and profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import pytest
from model_parts import info
from onnx import TensorProto, helper

from aotc.base.errors import AotcError
from aotc.graph.model import graph_inputs
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.on_import import NameDims
from aotc.graph.symbols import Symbols, symbols_of
from aotc.session.capture import anonymous_names, clashing_names, read_capture, value_of
from aotc.spec.codec import decode, encode
from aotc.spec.relations import is_anonymous

Shape = Sequence[int | str | None] | None


def graph_of(inputs: Mapping[str, Shape], outputs: Mapping[str, Shape]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Sum", list(inputs), ["y"], name="sum")],
        "graph",
        [info(*item) for item in inputs.items()],
        [info(*item) for item in outputs.items()],
    )
    return helper.make_model(graph)


def params(value: onnx.ValueInfoProto) -> list[str | int]:
    shape = value.type.tensor_type.shape
    return [dim.dim_value or dim.dim_param for dim in shape.dim]


def symbols(model: onnx.ModelProto, *relations: str) -> Symbols:
    clashing = clashing_names(model)
    inputs = [value_of(value, clashing) for value in graph_inputs(model)]
    return symbols_of(relations, inputs, anonymous_names(model))


# -- which names say nothing
@pytest.mark.parametrize(
    "name",
    [
        "", " ", "?", "??", "*", "-1", "-2147483648", "None", "none", "NONE", "null", "nan",
        "unk", "unk__12", "unk_3", "unk__749", "unknown", "Unknown", "unknown_4", "undefined",
        "dynamic", "DynamicDimension", "DynamicDimension.0", "p2o.DynamicDimension.17",
        "input_dynamic_axes_1", "dynamic_axes_2", "x:0_dynamic_axes_12",
    ],
)  # fmt: skip
def test_a_name_that_says_nothing(name: str) -> None:
    assert is_anonymous(name)


@pytest.mark.parametrize(
    "name",
    [
        "N", "n", "batch", "batch_size", "s0", "s77", "u0", "dim_0", "x_dim_1", "s0 + s1", "0",
        "64", "None_of_these", "nonetheless", "unknowns", "unk_words", "dynamic_batch",
        "input_dynamic_axes", "dynamic_axes_x", "sequence", "?x", "x?", "p2o.Batch.0", "NoneType",
        "Relu_output_dim_0", "unk__12_o0__d1",
    ],
)  # fmt: skip
def test_a_name_that_is_a_symbol(name: str) -> None:
    assert not is_anonymous(name)


# -- inputs and outputs
@pytest.mark.parametrize("name", ["None", "?", "", "unk__12", None])
def test_each_position_is_a_dim_of_its_own(name: str | None) -> None:
    model = graph_of({"x": [name, 3, name], "z": [name, "n", 4]}, {"y": [name, 3, name]})
    assert [value.shape for value in symbols(model).inputs()] == [
        ("x.0", 3, "x.2"),
        ("z.0", "n", 4),
    ]
    assert value_of(model.graph.output[0]).shape == ("y.0", 3, "y.2")


def test_inspect_lists_the_same_names(tmp_path: Path) -> None:
    model = graph_of({"x": ["None", "None"], "z": ["x.1", "n"]}, {"y": ["None", "x.1"]})
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    _, inputs, outputs = read_capture(path)
    assert inputs == symbols(model).inputs()
    assert [value.shape for value in outputs] == [("y.0", "x.1_")]


# -- names that clash with positions
@pytest.mark.parametrize(
    ("inputs", "outputs", "clashing"),
    [
        ({"x": ["None"], "z": ["x.0"]}, {"y": ["None"]}, {"x.0": "x.0_"}),
        ({"x": [None], "z": ["x.0"]}, {"y": ["None"]}, {"x.0": "x.0_"}),
        ({"x": None, "z": ["x.0"]}, {"y": ["None"]}, {"x.0": "x.0_"}),
        ({"x": ["None"], "z": ["x.0", "x.0_"]}, {"y": [1]}, {"x.0": "x.0__"}),
        ({"x": ["None", "x.0"]}, {"y": [1]}, {"x.0": "x.0_"}),
        ({"x": ["n"]}, {"y": ["None", "y.0"]}, {"y.0": "y.0_"}),
        ({"x": ["y.0"]}, {"y": ["None"]}, {"y.0": "y.0_"}),
        # The dim is at the position that its name states.
        ({"x": ["x.0"], "z": ["x.0"]}, {"y": ["x.0"]}, {}),
        # Only the free dim of that name is meant.
        ({"x": [4], "z": ["x.0"]}, {"y": [1]}, {}),
        ({"x.0": ["None"], "x": [None, None]}, {"y": [1]}, {}),
    ],
)
def test_a_name_that_is_the_position_of_another_dim(
    inputs: Mapping[str, Shape], outputs: Mapping[str, Shape], clashing: dict[str, str]
) -> None:
    model = graph_of(inputs, outputs)
    assert clashing_names(model) == clashing
    found = symbols(model)
    free = [d for value in found.inputs() for d in value.shape or () if isinstance(d, str)]
    written = [d for shape in inputs.values() for d in shape or () if isinstance(d, str) or not d]
    real = [d for d in written if d not in (None, "None")]
    assert len(set(free)) == len(written) - len(real) + len(set(real))
    for value in found.inputs():
        for axis, dim in enumerate(value.shape or ()):
            if dim == f"{value.name}.{axis}":
                assert found.dim(dim) == dim


def test_a_clash_of_names_is_resolved_in_the_graph() -> None:
    model = graph_of({"x": ["None", "n"], "z": ["x.0", "n"]}, {"y": ["x.0", "None"]})
    run_passes(model, [NameDims(clashing=clashing_names(model))])
    assert [params(value) for value in model.graph.input] == [["x.0", "n"], ["x.0_", "n"]]
    assert params(model.graph.output[0]) == ["x.0_", ""]


# -- the graph
def test_a_staged_graph_has_the_names_of_the_manifest() -> None:
    model = graph_of(
        {"x": ["None", 3, "None"], "z": [None, "unk__1", -1]}, {"y": ["None", 3, "unk__1"]}
    )
    model.graph.value_info.extend([info("inner", ["None", "unk__1", "x.0"])])
    declared = symbols(model).inputs()
    run_passes(model, [NameDims()])
    assert [tuple(params(value)) for value in model.graph.input] == [v.shape for v in declared]
    assert params(model.graph.output[0]) == ["", 3, ""]
    assert params(model.graph.value_info[0]) == ["", "", ""]


@pytest.mark.parametrize(
    ("inputs", "output", "expected"),
    [
        ({"x": ["n", 3]}, ["n", None], False),
        ({"x": [2, 3], "z": []}, [2, 3], False),
        ({"x": None}, None, False),
        ({"x": [None]}, [2], True),
        ({"x": ["None"]}, [2], True),
        ({"x": ["n"]}, ["unk__1"], True),
    ],
)
def test_a_graph_whose_names_all_say_something_is_left(
    inputs: Mapping[str, Shape], output: Shape, expected: bool
) -> None:
    model = graph_of(inputs, {"y": output})
    assert NameDims().has_work(model) == expected
    before = model.SerializeToString()
    run_passes(model, [NameDims()])
    assert (model.SerializeToString() != before) == expected


def test_anonymous_names_disappear_from_subgraphs_and_sequences() -> None:
    body = graph_of({}, {"y": ["None", "n"]}).graph
    model = graph_of({"x": ["None", "n"]}, {"y": ["None", "n"]})
    model.graph.node.append(
        helper.make_node("If", ["k"], ["z"], name="if", then_branch=body, else_branch=body)
    )
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["None", "n"])
    several = helper.make_sequence_type_proto(tensor)
    model.graph.input.append(helper.make_value_info("several", several))
    model.graph.output.append(
        helper.make_value_info("maybe", helper.make_optional_type_proto(several))
    )
    run_passes(model, [NameDims(names={"n": "m"})])
    assert params(model.graph.input[0]) == ["x.0", "m"]
    for attribute in model.graph.node[1].attribute:
        assert params(attribute.g.output[0]) == ["", "m"]
    inner = model.graph.input[1].type.sequence_type.elem_type.tensor_type
    assert [dim.dim_param for dim in inner.shape.dim] == ["", "m"]
    outer = model.graph.output[1].type.optional_type.elem_type.sequence_type.elem_type
    assert [dim.dim_param for dim in outer.tensor_type.shape.dim] == ["", "m"]


# -- what a profile may call them
def test_an_old_name_that_stands_once_goes_on_working() -> None:
    model = graph_of({"serving_default_x:0": ["unk__749", 4]}, {"y": ["unk__749", 4]})
    found = symbols(model)
    assert found.dim("unk__749") == found.dim("serving_default_x:0.0") == "serving_default_x:0.0"
    assert found.dim("unk__750") is None
    assert decode(Symbols, encode(found)) == found
    renamed = symbols(model, "batch = unk__749")
    assert renamed.names == {"serving_default_x:0.0": "batch"}
    assert renamed.dim("unk__749") == "batch"


def test_an_old_name_that_stands_twice_means_neither_until_they_are_equal() -> None:
    model = graph_of({"x": ["None", "None"], "z": ["None"]}, {"y": ["None"]})
    found = symbols(model)
    assert found.dim("None") is None
    assert found.dims_of_anonymous("None") == ("x.0", "x.1", "z.0")
    assert symbols(model, "n = x.0 = x.1").dims_of_anonymous("None") == ("n", "z.0")
    assert symbols(model, "n = x.0 = x.1 = z.0").dim("None") == "n"


@pytest.mark.parametrize("relation", ["n = None", "None = x.0", "m = None + 1"])
def test_a_relation_of_an_old_name_that_stands_twice_names_the_positions(relation: str) -> None:
    model = graph_of({"x": ["None", "n"], "a-b": ["None", "m"]}, {"y": ["None"]})
    with pytest.raises(AotcError) as caught:
        symbols(model, relation)
    error = caught.value
    assert (error.code, error.what) == (
        "AOTC-S015",
        "'None' is the name of 2 different dims",
    )
    assert (error.where, error.expected) == ("relations[0]", "x.0, a-b.0")
    # The proposed profile can be read.
    assert 'size = x.0 = "a-b.0"' in error.fix
    assert symbols(model, 'size = x.0 = "a-b.0"').dim("None") == "size"
