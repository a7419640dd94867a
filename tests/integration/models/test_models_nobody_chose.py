"""Models as users bring them, built without stating dims: claims are compared with ONNX Runtime.

Two towers, an encoder whose inputs do not share names of dims, a codec of frames, windows,
fused attention with a past, words as text, the state of a recurrent net.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import onnx
from model_parts import node
from onnx import TensorProto, helper, numpy_helper
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.spec.shapes import Dim

Shape = Sequence[str | int]
Value = tuple[int, Shape]
FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
STRING = TensorProto.STRING
RANDOM = np.random.default_rng(12)
# Number of calls compared per domain, and maximum elements of an input.
_CALLS, _ELEMENTS = 8, 1 << 20


def weights(*shape: int) -> Any:
    return (RANDOM.standard_normal(shape) * 0.3).astype(np.float32)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Value],
    outputs: Mapping[str, Value],
    constants: Mapping[str, Any],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "nobody",
        [helper.make_tensor_value_info(name, *value) for name, value in inputs.items()],
        [helper.make_tensor_value_info(name, *value) for name, value in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    opsets = [("", 18), ("com.microsoft", 1), ("ai.onnx.ml", 3)]
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*opset) for opset in opsets], ir_version=9
    )


def random_size(dim: Dim, random: Random) -> int:
    sizes = [s for s in range(dim.min, dim.max + 1, dim.multiple_of) if s not in dim.gaps]
    return random.choice([sizes[0], sizes[-1], dim.opt, *random.choices(sizes, k=3)])


def assert_holds(bench: Workbench, built: Built) -> None:
    """Random sizes of the domain run in plain ONNX Runtime, and the artifact answers the same."""
    random = Random(7)
    domain = built.manifest.domain
    plain = plain_session(built.source)
    with bench.load(built) as loaded:
        for _ in range(_CALLS):
            free = {name: random_size(dim, random) for name, dim in domain.dims.items()}
            sizes = domain.complete(free)
            if np.prod([float(size) for size in sizes.values()]) > _ELEMENTS:
                sizes = domain.corner("min")
            inputs = built.inputs(sizes)
            expected = plain_answer(plain, inputs)
            assert_agree(expected, loaded.run(inputs), tolerance_of(built), str(sizes))


def ranges(built: Built) -> dict[str, str]:
    return {name: f"{d.text()}, {d.opt}" for name, d in built.manifest.domain.dims.items()}


def relations(built: Built) -> dict[str, bool]:
    return {str(relation): relation.enforced for relation in built.manifest.domain.relations}


def test_an_encoder_each_of_whose_inputs_names_its_own_dims(bench: Workbench) -> None:
    names = ("words", "kinds", "places")
    graph = model(
        [
            *(node("Gather", f"table.{name} {name}", f"{name}.e") for name in names),
            node("Sum", "words.e kinds.e places.e", "h"),
            node("Transpose", "h", "t", perm=[0, 2, 1]),
            node("MatMul", "h t", "scores"),
            node("Cast", "mask", "kept", to=FLOAT),
            node("Unsqueeze", "kept middle", "kept.u"),
            node("Mul", "scores kept.u", "masked"),
            node("MatMul", "masked h", "y"),
        ],
        {name: (INT64, (f"{name}_n", f"{name}_s")) for name in (*names, "mask")},
        {"y": (FLOAT, ("n", "s", 8))},
        {
            "table.words": weights(40, 8),
            "table.kinds": weights(2, 8),
            "table.places": weights(512, 8),
            "middle": np.array([1]),
        },
    )
    built = bench.build(graph, "own_names")
    assert set(ranges(built)) == {"words_n", "words_s"}
    dims = built.manifest.domain.dims
    assert dims["words_n"].max >= 8
    assert (dims["words_s"].min, dims["words_s"].opt) == (0, 128)
    assert len(relations(built)) == 6
    assert_holds(bench, built)


def test_two_towers_whose_channels_are_free(bench: Workbench) -> None:
    graph = model(
        [
            node("Gather", "table words", "w"),
            node("Shape", "words", "length", start=1, end=2),
            node("Slice", "places zero length zero", "at"),
            node("Add", "w at", "text"),
            node("ReduceMean", "text one", "t", keepdims=0),
            node("Conv", "pixels patches", "p", strides=[16, 16]),
            node("Flatten", "p", "f", axis=1),
            node("MatMul", "f head", "i"),
            node("Transpose", "i", "it"),
            node("MatMul", "t it", "y"),
        ],
        {
            "words": (INT64, ("texts", "sequence")),
            "pixels": (FLOAT, ("images", "channels", "height", "width")),
        },
        {"y": (FLOAT, ("texts", "images"))},
        {
            "table": weights(40, 8),
            "places": weights(77, 8),
            "zero": np.array([0]),
            "one": np.array([1]),
            "patches": weights(4, 3, 16, 16),
            "head": weights(4 * 14 * 14, 8),
        },
    )
    built = bench.build(graph, "towers")
    found = ranges(built)
    assert found["channels"] == "3, 3"
    assert found["sequence"] == "0..77, 77"
    assert found["height"] == found["width"] == "224..239, 224"
    assert built.manifest.domain.dims["images"].max >= 8
    assert built.manifest.domain.dims["texts"].max >= 8
    assert_holds(bench, built)


def test_a_codec_of_frames_of_320_samples(bench: Workbench) -> None:
    strides = (2, 4, 5, 8)
    nodes, constants, x = [], {}, "audio"
    for index, stride in enumerate(strides):
        constants[f"down{index}"] = weights(4, 4 if index else 1, 2 * stride)
        pads = [stride // 2, stride - stride // 2]
        down = node("Conv", f"{x} down{index}", f"x{index}", strides=[stride], pads=pads)
        nodes += [down, node("Tanh", f"x{index}", f"a{index}")]
        x = f"a{index}"
    for index, stride in enumerate(reversed(strides)):
        constants[f"up{index}"] = weights(4, 4 if index < 3 else 1, 2 * stride)
        pads = [stride // 2, stride - stride // 2]
        nodes.append(
            node("ConvTranspose", f"{x} up{index}", f"y{index}", strides=[stride], pads=pads)
        )
        x = f"y{index}"
    shape = ("batch", 1, "samples")
    nodes.append(node("Sub", f"audio {x}", "lost"))
    graph = model(nodes, {"audio": (FLOAT, shape)}, {"lost": (FLOAT, shape)}, constants)
    built = bench.build(graph, "codec")
    samples = built.manifest.domain.dims["samples"]
    assert (samples.min, samples.multiple_of, samples.opt) == (320, 320, 16000)
    assert samples.max >= 160000
    assert samples.stopped_by == "bytes"
    assert_holds(bench, built)


def test_windows_of_7_patches(bench: Workbench) -> None:
    graph = model(
        [
            node("Conv", "x patches", "p", strides=[4, 4]),
            node("Shape", "p", "size", start=2, end=4),
            node("Div", "size seven", "counts"),
            node("Split", "counts", "rows columns", num_outputs=2),
            node("Concat", "front rows seven columns seven", "windows", axis=0),
            node("Reshape", "p windows", "w"),
            node("ReduceMax", "w axes", "y", keepdims=0),
        ],
        {"x": (FLOAT, ("batch", 3, "height", "width"))},
        {"y": (FLOAT, ("batch", 4, "rows", "columns"))},
        {
            "patches": weights(4, 3, 4, 4),
            "seven": np.array([7]),
            "front": np.array([0, 4]),
            "axes": np.array([3, 5]),
        },
    )
    built = bench.build(graph, "windows")
    for side in ("height", "width"):
        dim = built.manifest.domain.dims[side]
        assert (dim.min, dim.multiple_of, dim.opt, dim.gaps) == (28, 28, 448, ())
    assert_holds(bench, built)


def test_fused_attention_with_a_past(bench: Workbench) -> None:
    cache = ("batch", 2, "past", 16)
    grown = ("batch", 2, "total", 16)
    angles = np.arange(64)[:, None] * weights(1, 8)
    graph = model(
        [
            node("Gather", "table ids", "h"),
            *(node("MatMul", f"h w{name}", name) for name in "qkv"),
            node("Cast", "mask", "m", to=INT32),
            node("ReduceSum", "m one", "lengths", keepdims=0),
            node("Sub", "lengths one32", "last"),
            node("Shape", "mask", "shape", start=1),
            node("Squeeze", "shape", "total64"),
            node("Cast", "total64", "total", to=INT32),
            node(
                "GroupQueryAttention",
                "q k v keys values last total cos sin",
                "y new_keys new_values",
                domain="com.microsoft",
                num_heads=4,
                kv_num_heads=2,
                do_rotary=1,
            ),
        ],
        {
            "ids": (INT64, ("batch", "sequence")),
            "mask": (INT64, ("batch", "total")),
            "keys": (FLOAT, cache),
            "values": (FLOAT, cache),
        },
        {
            "y": (FLOAT, ("batch", "sequence", 64)),
            "new_keys": (FLOAT, grown),
            "new_values": (FLOAT, grown),
        },
        {
            "table": weights(40, 32),
            "wq": weights(32, 64),
            "wk": weights(32, 32),
            "wv": weights(32, 32),
            "one": np.array([1]),
            "one32": np.array(1, np.int32),
            "cos": np.cos(angles).astype(np.float32),
            "sin": np.sin(angles).astype(np.float32),
        },
    )
    built = bench.build(graph, "fused")
    assert list(relations(built)) == ["total = sequence + past"]
    dims = built.manifest.domain.dims
    assert (dims["past"].min, dims["sequence"].min) == (0, 1)
    assert dims["past"].max + dims["sequence"].max == 64
    # With one token, or without a past, ONNX Runtime accepts more.
    assert (dims["batch"].max, dims["batch"].stopped_by) == (1, "combined")
    calls = [(1, 1, 50), (3, 1, 50), (3, 8, 0)]
    plain = plain_session(built.source)
    with bench.load(built) as loaded:
        for batch, sequence, past in calls:
            inputs = {
                "ids": np.ones((batch, sequence), np.int64),
                "mask": np.ones((batch, sequence + past), np.int64),
                "keys": weights(batch, 2, past, 16),
                "values": weights(batch, 2, past, 16),
            }
            expected = plain_answer(plain, inputs)
            assert_agree(expected, loaded.run(inputs), tolerance_of(built), str(inputs.keys()))


def test_words_as_text(bench: Workbench) -> None:
    known = {"keys_strings": ["a", "b", "c"], "values_int64s": [1, 2, 3], "default_int64": 0}
    graph = model(
        [
            node("LabelEncoder", "words", "ids", domain="ai.onnx.ml", **known),
            node("Gather", "table ids", "e"),
            node("ReduceMean", "e one", "y", keepdims=0),
        ],
        {"words": (STRING, ("batch", "length"))},
        {"y": (FLOAT, ("batch", 4))},
        {"table": weights(4, 4), "one": np.array([1])},
    )
    built = bench.build(graph, "words")
    dims = built.manifest.domain.dims
    assert dims["batch"].max >= 8
    assert dims["length"].max >= 128
    assert_holds(bench, built)


def test_the_state_of_a_recurrent_net(bench: Workbench) -> None:
    state = (1, "batch", 8)
    graph = model(
        [
            node("Transpose", "x", "t", perm=[1, 0, 2]),
            node("LSTM", "t w r - - h c", "y hn cn", hidden_size=8),
        ],
        {"x": (FLOAT, ("batch", "frames", "features")), "h": (FLOAT, state), "c": (FLOAT, state)},
        {
            "y": (FLOAT, ("frames", 1, "batch", 8)),
            "hn": (FLOAT, state),
            "cn": (FLOAT, state),
        },
        {"w": weights(1, 32, 6), "r": weights(1, 32, 8)},
    )
    built = bench.build(graph, "recurrent")
    dims = built.manifest.domain.dims
    assert ranges(built)["features"] == "6, 6"
    assert (dims["batch"].opt, dims["frames"].opt) == (1, 128)
    assert dims["batch"].max >= 8
    assert_holds(bench, built)


def test_frames_of_which_one_is_broadcast(bench: Workbench) -> None:
    """Two frames are one of 1500 positions; 1 runs only without shared buffers: not a range."""
    graph = model(
        [
            node("Conv", "x k", "c", strides=[2], pads=[1, 1]),
            node("Transpose", "c", "t", perm=[0, 2, 1]),
            node("Add", "t places", "h"),
            node("LayerNormalization", "h scale", "y"),
        ],
        {"x": (FLOAT, ("batch", 8, "frames"))},
        {"y": (FLOAT, ("batch", 1500, 4))},
        {"k": weights(4, 8, 3), "places": weights(1500, 4), "scale": weights(4)},
    )
    built = bench.build(graph, "frames")
    frames = built.manifest.domain.dims["frames"]
    assert (frames.min, frames.max, frames.gaps) == (2999, 3000, ())
    assert_holds(bench, built)
