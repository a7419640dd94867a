"""Sizes at which a run does not end and its process is killed: the search continues."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from workbench import Workbench

from aotc.spec.payload import Finding
from aotc.spec.profile import ProbeLimits, Profile
from aotc.spec.shapes import DimRange

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def constant(name: str, value: object) -> onnx.NodeProto:
    tensor = numpy_helper.from_array(np.array(value))
    return helper.make_node("Constant", [], [name], value=tensor)


def model(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """A model of one input `x[1, n]`; the value `n` is a scalar."""
    size = [
        helper.make_node("Shape", ["x"], ["shape"]),
        constant("axis", np.int64(1)),
        helper.make_node("Gather", ["shape", "axis"], ["n"]),
    ]
    graph = helper.make_graph(
        [*size, *nodes],
        "deadly",
        [helper.make_tensor_value_info("x", FLOAT, [1, "n"])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def endless(every: int, *, once: bool = False) -> onnx.ModelProto:
    """A loop that never ends if n is a multiple of `every`; with `once`, if it is `every`."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["again"]),
            helper.make_node("Identity", ["value"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("value", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", FLOAT, None),
        ],
    )
    return model(
        [
            constant("every", np.int64(every)),
            constant("zero", np.int64(0)),
            helper.make_node("Sub" if once else "Mod", ["n", "every"], ["rest"]),
            helper.make_node("Equal", ["rest", "zero"], ["endless"]),
            helper.make_node("Loop", ["", "endless", "x"], ["y"], body=body),
        ]
    )


def texts_with_code(findings: tuple[Finding, ...], code: str) -> list[str]:
    return [f"{finding.what} {finding.where}" for finding in findings if finding.code == code]


def test_a_size_at_which_a_run_does_not_end_is_excluded_and_reported(bench: Workbench) -> None:
    probe = ProbeLimits(run_seconds=1.0, max_size=1024)
    profile = Profile(schema="aotc.profile/1", name="patient", probe=probe)
    built = bench.build(endless(481), "rarely", profile=profile)
    dim = built.manifest.domain.dims["n"]
    hung = texts_with_code(built.manifest.findings, "AOTC-S012")
    assert hung
    assert all(int(text.rpartition("n=")[2]) % 481 == 0 for text in hung)
    assert dim.max == 1024
    assert not dim.allows(481)
    assert not any(size % 481 == 0 for size in dim.tested)
    assert not any(
        "probe.seconds" in text for text in texts_with_code(built.manifest.findings, "AOTC-S008")
    )


def test_a_drawn_size_that_does_not_end_is_found_among_several_runs(bench: Workbench) -> None:
    """The process dies while several references run: which of them it was, shows one by one."""
    stated = DimRange(min=1, max=4096)
    profile = Profile(
        schema="aotc.profile/1",
        name="patient",
        probe=ProbeLimits(run_seconds=1.0),
        dims={"n": stated},
    )
    (variant,) = bench.build(endless(5000), "never", profile=profile).manifest.variants
    compared = [sizes["n"] for sizes in variant.parity.shapes]
    drawn = next(size for size in reversed(compared) if size not in (1, 64, 4096))
    built = bench.build(endless(drawn, once=True), "once", profile=profile)
    (hung,) = texts_with_code(built.manifest.findings, "AOTC-S012")
    assert hung.endswith(f"n={drawn}")
    (variant,) = built.manifest.variants
    assert [sizes["n"] for sizes in variant.parity.shapes] == [n for n in compared if n != drawn]


def test_restarts_share_the_time_of_one_search(bench: Workbench) -> None:
    """Each run that does not end takes a second of CPU time, of three for the whole search."""
    probe = ProbeLimits(seconds=3.0, run_seconds=1.0)
    profile = Profile(schema="aotc.profile/1", name="short", probe=probe)
    built = bench.build(endless(7), "endless", profile=profile)
    assert 1 <= len(texts_with_code(built.manifest.findings, "AOTC-S012")) <= 3
    ended = texts_with_code(built.manifest.findings, "AOTC-S008")
    assert any("probe.seconds" in text for text in ended)
    assert not any(dim.stopped_by == "error" for dim in built.manifest.domain.dims.values())


def test_a_random_size_that_does_not_end_is_reported(bench: Workbench) -> None:
    """It did not run before: random sizes within the range are tried after the search."""
    profile = Profile(
        schema="aotc.profile/1", name="drawn", probe=ProbeLimits(run_seconds=1.0, max_size=1024)
    )
    manifest = bench.build(endless(100_003), "without", profile=profile).manifest
    compared = {sizes["n"] for variant in manifest.variants for sizes in variant.parity.shapes}
    random_size = min(compared - {1024, *manifest.domain.dims["n"].tested})
    built = bench.build(endless(random_size, once=True), "drawn", profile=profile)
    assert built.manifest.domain.dims["n"].max == 1024
    for code in ("AOTC-S012", "AOTC-S013"):
        assert [
            text
            for text in texts_with_code(built.manifest.findings, code)
            if text.endswith(f"n={random_size}")
        ]
