"""What was rewritten for CUDA and does not pass is tried without that, before anything else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.pipeline.attempts import Form, drop_failed, next_forms
from aotc.pipeline.types import LoweredModel, ReferenceRun, SpecializedModel, VariantPlan
from aotc.providers.base import SessionUse
from aotc.providers.cuda import is_convolutional
from aotc.spec.payload import Finding
from aotc.spec.profile_files import load_profile
from aotc.spec.providers import CudaOptions, GraphOptions
from aotc.spec.shapes import EMPTY, FURTHER, Dim, Domain
from aotc.spec.variant import PassRecord, SessionSpec

PLAN = VariantPlan(name="gpu", spec="gpu", isa="baseline", providers=("cuda", "cpu"))
FUSED = PassRecord(name="fuse-gelu", nodes_before=9, nodes_after=1, matched={"erf": 2})
NAMED = PassRecord(name="name-nodes", nodes_before=1, nodes_after=1)


def following(
    plan: VariantPlan,
    passes: tuple[PassRecord, ...],
    code: str,
    ops: tuple[str, ...] = (),
    found: str = "",
    where: str = "variant gpu",
    source: Path = Path(),
    rounds: int = 0,
) -> Form | None:
    """The form after a variant of which only plan and passes are known, at a probed batch."""
    unused: Any = None
    specialized = SpecializedModel(
        analyzed=unused, plan=plan, domain=None, component="", graph=Path(), passes=passes
    )
    optimized = SimpleNamespace(specialized=specialized, nodes=tuple((op, op) for op in ops))
    captures = plan.cuda.graphs.capture != "none"
    use = SessionUse(
        cuda=plan.cuda,
        operators=ops,
        names=tuple(f"node_{number}" for number in range(len(ops))),
        fused=any(each.fused for each in passes),
        captured=2 if captures else 0,
        weights_bytes=21_000_000,
    )
    analyzed = SimpleNamespace(
        source=SimpleNamespace(graph=source),
        domain=Domain(
            dims={"batch": Dim(min=0, max=8, opt=2)},
            also=({"batch": Dim(min=16, max=32, opt=16)},),
        ),
        references=tuple(
            ReferenceRun(
                name=name, origin="", sizes={"batch": size}, inputs={}, outputs={}, finite=True
            )
            for name, size in (("opt", 2), (EMPTY, 0))
        ),
    )
    lowered: Any = SimpleNamespace(
        plan=plan, contexts=(), optimized=optimized, use=use, analyzed=analyzed
    )
    context: Any = SimpleNamespace(profile=load_profile("edge"))
    state: Any = SimpleNamespace(context=context, announce=lambda text: None)
    error = AotcError(code, "the answers differ", where=where, found=found)
    before = Finding(code="AOTC-N081", what="kernels fail", where="variant gpu")
    form = Form(plan=plan, findings=(before,) * rounds)
    return next_forms({"gpu": form}, [(lowered, error)], state).get("gpu")


@pytest.mark.parametrize("code", ["AOTC-N001", "AOTC-R008", "AOTC-I013", "AOTC-R036"])
def test_the_next_form_is_unfused_at_the_same_level(code: str) -> None:
    found = following(PLAN, (FUSED, NAMED), code)
    assert found is not None
    assert found.plan == replace(PLAN, cuda=CudaOptions(fusion="none"))
    assert [finding.code for finding in found.findings] == ["AOTC-O012"]
    assert [form.form for form in found.tried] == ["fusion for CUDA"]


def test_nodes_whose_kernel_fails_stay_in_float32(tmp_path: Path) -> None:
    """With those that are equal, as the provider chooses the same kernel for them."""
    weights = {"first": (8, 1, 128), "second": (8, 1, 128), "third": (8, 1, 3)}
    nodes = [
        helper.make_node("Conv", [before, f"w_{name}"], [name], name, group=8)
        for before, name in zip(("x", *weights), weights, strict=False)
    ]
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8, 999])],
        [helper.make_tensor_value_info("third", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.zeros(shape, np.float32), f"w_{name}")
            for name, shape in weights.items()
        ],
    )
    source = tmp_path / "graph.onnx"
    onnx.save(helper.make_model(graph), source)
    failed = "Non-zero status code returned while running Conv node. Name:'first_token_28' Status"
    plan = replace(PLAN, precision="float16")
    found = following(plan, (FUSED,), "AOTC-N001", IMAGES, found=failed, source=source)
    assert found is not None
    assert found.plan == replace(plan, failing=("first", "second"))
    assert [finding.code for finding in found.findings] == ["AOTC-N081"]
    # In float32 it fails again, and so in another layout.
    again = following(found.plan, (FUSED,), "AOTC-N001", IMAGES, found=failed, source=source)
    assert again is not None
    assert again.plan == replace(found.plan, cuda=CudaOptions(layout="nchw"))
    # Where kernels of many kinds fail, it is not they that do.
    fifth = following(plan, (FUSED,), "AOTC-N001", IMAGES, failed, source=source, rounds=4)
    assert fifth is not None and fifth.plan == replace(plan, cuda=CudaOptions(layout="nchw"))
    # A node that was made by fusion is none of the source's; sizes without elements go first.
    fused = failed.replace("first_token_28", "attention_1")
    other = following(plan, (FUSED,), "AOTC-N001", found=fused, source=source)
    assert other is not None and other.plan.cuda.fusion == "none"
    empty = f"variant gpu, fixture {EMPTY}"
    assert following(plan, (FUSED,), "AOTC-N001", (), failed, empty, source) is None


def test_a_size_without_elements_goes_before_fusion() -> None:
    assert following(PLAN, (FUSED,), "AOTC-R008", where=f"variant gpu, fixture {EMPTY}") is None
    for place in ("opt", f"{FURTHER}0"):
        other = following(PLAN, (FUSED,), "AOTC-R008", where=f"variant gpu, fixture {place}")
        assert other is not None and other.plan.cuda.fusion == "none"


def test_a_level_that_the_profile_states_does_not_prevent_it() -> None:
    plan = replace(PLAN, may_lower_level=False, optimization="basic")
    found = following(plan, (FUSED,), "AOTC-N001")
    assert found is not None and found.plan.cuda.fusion == "none"


@pytest.mark.parametrize(
    ("plan", "passes"),
    [(PLAN, (NAMED,)), (replace(PLAN, cuda=CudaOptions(fusion="none")), (FUSED,))],
    ids=["nothing was fused", "unfused already"],
)
def test_otherwise_the_level_is_lowered(plan: VariantPlan, passes: tuple[PassRecord, ...]) -> None:
    found = following(plan, passes, "AOTC-N001")
    assert found is not None
    assert found.plan == replace(plan, optimization="extended")


IMAGES = (*["Conv"] * 4, "Relu")


@pytest.mark.parametrize("code", ["AOTC-N001", "AOTC-R008"])
def test_channels_come_first_before_fusion_is_left_out(code: str) -> None:
    found = following(PLAN, (FUSED,), code, IMAGES)
    assert found is not None
    assert found.plan == replace(PLAN, cuda=CudaOptions(layout="nchw"))
    assert [finding.code for finding in found.findings] == ["AOTC-O013"]
    assert [form.form for form in found.tried] == ["channels last on CUDA"]
    found = following(found.plan, (FUSED,), code, IMAGES)
    assert found is not None
    assert found.plan.cuda == CudaOptions(layout="nchw", fusion="none")
    found = following(found.plan, (NAMED,), code, IMAGES)
    assert found is not None and found.plan.optimization == "extended"


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ("", "channels come first for node_0, node_1, node_2, node_3, node_4, and 2 more: "),
        (
            "Non-zero status code returned while running Conv node. Name:'node_5' Status: 1",
            "channels come first for 7 nodes, of which the refusal names node_5: AOTC-R008 the a",
        ),
    ],
    ids=["none is named", "one is named"],
)
def test_a_layout_that_is_given_up_names_its_convolutions(found: str, says: str) -> None:
    form = following(PLAN, (NAMED,), "AOTC-R008", (*["Conv"] * 7, "Relu"), found)
    assert form is not None
    assert form.findings[0].what.startswith(says)


def test_fusion_that_is_given_up_names_what_it_fused() -> None:
    ops = ("MatMul", "com.microsoft::Attention", "com.microsoft::FusedConv", "Softmax")
    form = following(PLAN, (FUSED,), "AOTC-N001", ops)
    assert form is not None
    assert form.findings[0].what == "not fused into node_1: AOTC-N001 the answers differ"


@pytest.mark.parametrize(
    ("plan", "ops"),
    [
        (replace(PLAN, cuda=CudaOptions(layout="nhwc")), IMAGES),
        (replace(PLAN, providers=("cpu",)), IMAGES),
        (PLAN, (*IMAGES, "ConvTranspose")),
        (PLAN, ("MatMul",)),
    ],
    ids=["the profile says so", "on the CPU", "were first already", "no images"],
)
def test_where_channels_are_not_changed(plan: VariantPlan, ops: tuple[str, ...]) -> None:
    found = following(plan, (NAMED,), "AOTC-N001", ops)
    assert found is not None and found.plan.cuda == plan.cuda


def test_few_or_transposed_convolutions_keep_channels_first() -> None:
    assert is_convolutional([*["Conv"] * 2, "Relu", *["com.microsoft::FusedConv"] * 2])
    # A vision transformer.
    assert not is_convolutional(["Conv", *["MatMul"] * 9])
    assert not is_convolutional(["Conv"] * 3)
    assert not is_convolutional([*["Conv"] * 4, "ConvTranspose"])
    assert not is_convolutional(["MatMul"])


def test_a_graph_that_is_not_captured_runs_without_where_the_profile_allows_it() -> None:
    graphs = GraphOptions(capture="sizes", on_refusal="run")
    plan = replace(PLAN, cuda=CudaOptions(graphs=graphs))
    found = following(plan, (FUSED,), "AOTC-P014", IMAGES)
    # Graphs gain more than the layout does.
    assert found is not None and found.plan.cuda == CudaOptions(layout="nchw", graphs=graphs)
    found = following(found.plan, (FUSED,), "AOTC-P014", IMAGES)
    assert found is not None
    assert found.plan.cuda.graphs == replace(graphs, capture="none")
    assert [finding.code for finding in found.findings] == ["AOTC-P014"]
    refusing = replace(plan, cuda=CudaOptions(graphs=replace(graphs, on_refusal="fail")))
    assert following(refusing, (FUSED,), "AOTC-P014") is None
    # Without a wish for graphs, it is a refusal of something else.
    assert following(PLAN, (FUSED,), "AOTC-P014") is None


def test_sizes_that_do_not_hold_together_get_a_session_each_before_anything_else() -> None:
    graphs = GraphOptions(capture="sizes", on_refusal="run")
    plan = replace(PLAN, cuda=CudaOptions(graphs=graphs))
    found = following(plan, (FUSED,), "AOTC-P015", ("MatMul",))
    apart = replace(graphs, sessions="each")
    assert found is not None and found.plan.cuda == CudaOptions(graphs=apart)
    (finding,) = found.findings
    assert finding.code == "AOTC-P015"
    assert "42.0 MB of weights in all beside the first copy" in finding.what
    # Convolutions have them from the beginning.
    found = following(plan, (FUSED,), "AOTC-P015", IMAGES)
    assert found is not None and found.plan.cuda == CudaOptions(layout="nchw", graphs=graphs)
    found = following(replace(plan, cuda=CudaOptions(graphs=apart)), (FUSED,), "AOTC-P015", IMAGES)
    assert found is not None and found.plan.cuda == CudaOptions(layout="nchw", graphs=apart)
    found = following(found.plan, (FUSED,), "AOTC-P015", IMAGES)
    assert found is not None
    assert found.plan.cuda.graphs == replace(apart, capture="none")
    assert [finding.what for finding in found.findings] == [
        "no CUDA graphs are captured: the answers differ"
    ]
    # Sessions that find no room have graphs given up, unless these are all that the profile takes.
    found = following(replace(plan, cuda=CudaOptions(graphs=apart)), (FUSED,), "AOTC-M004", IMAGES)
    assert found is not None and found.plan.cuda.graphs == replace(apart, capture="none")
    found = following(plan, (FUSED,), "AOTC-M004", IMAGES)
    assert found is not None and found.plan.cuda.graphs == replace(graphs, capture="none")
    assert following(plan, (FUSED,), "AOTC-M004", ("MatMul",)) is None
    # A build that must capture has no form left; and a stated session for all sizes is kept.
    refusing = replace(plan, cuda=CudaOptions(graphs=replace(apart, on_refusal="fail")))
    assert following(refusing, (FUSED,), "AOTC-P015") is None
    stated = replace(plan, cuda=CudaOptions(graphs=replace(graphs, sessions="one")))
    found = following(stated, (FUSED,), "AOTC-P015", IMAGES)
    assert found is not None and found.plan.cuda.layout == "nchw"


def test_captured_sizes_of_convolutions_are_apart() -> None:
    """Wherever a session runs more than one size, unless the profile says otherwise."""
    use = SessionUse(cuda=CudaOptions(), operators=("com.microsoft::FusedConv",))
    assert use.apart and not replace(use, operators=("MatMul",)).apart
    # A generator of images may have transposed ones alone, which are planned as others are.
    assert replace(use, operators=("Relu", "ConvTranspose")).apart
    assert not replace(use, alone=True).apart
    for sessions in ("one", "each"):
        cuda = CudaOptions(graphs=GraphOptions(sessions=sessions))
        assert replace(use, cuda=cuda).apart == (sessions == "each")
        assert replace(use, cuda=cuda, operators=()).apart == (sessions == "each")


def is_alone(
    captures: tuple[Mapping[str, int], ...],
    buckets: Mapping[str, int] | None = None,
    **dims: Dim,
) -> bool:
    """Whether a variant that captures so is called with one size, in a domain of these dims."""
    plan = replace(PLAN, captures=captures, buckets=buckets or {})
    specialized = SimpleNamespace(
        passes=(), analyzed=SimpleNamespace(domain=Domain(dims=dims)), plan=plan
    )
    claimed = SimpleNamespace(optimized=SimpleNamespace(specialized=specialized, nodes=()))
    lowered = LoweredModel(
        partitioned=cast(Any, SimpleNamespace(plan=plan, claimed=claimed)),
        model=Path(),
        weights=Path(),
        files=(),
        session=SessionSpec(optimization="basic"),
        memory=cast(Any, SimpleNamespace(weights_bytes=0)),
    )
    return lowered.use.alone


def test_a_variant_is_alone_where_all_its_calls_have_the_captured_size() -> None:
    padded = Dim(min=1, max=8, opt=8, buckets=(8,), outside=("pad",), pad_from=1)
    routed = replace(padded, max=64, outside=("pad", "route"))
    eight = {"batch": 8}
    assert is_alone(({},)) and is_alone(({},), batch=Dim(min=8, max=8, opt=8))
    assert is_alone((eight,), batch=padded)
    assert not is_alone(({},), batch=Dim(min=1, max=8, opt=8))
    assert not is_alone((eight, {"batch": 4}), batch=replace(padded, buckets=(4, 8)))
    # What is routed runs in the same session, without a graph; a static variant has no such calls.
    assert not is_alone((eight,), batch=routed)
    assert is_alone((eight,), eight, batch=routed)


@pytest.mark.parametrize("code", ["AOTC-P014", "AOTC-P015"])
@pytest.mark.parametrize("refused", ["run", "fail"])
def test_a_graph_that_may_run_uncaptured_is_no_breach_of_what_fails_otherwise(
    refused: Literal["run", "fail"], code: str
) -> None:
    graphs = GraphOptions(capture="sizes", on_refusal=refused)
    plan = replace(PLAN, cuda=CudaOptions(graphs=graphs))
    wrong = AotcError("AOTC-N001", "the answers differ", also=(AotcError("AOTC-M002", "memory"),))
    uncaptured = AotcError(code, "not captured", also=(wrong,))
    for first in (replaced(wrong, uncaptured), uncaptured):
        forms = {"gpu": Form(plan=plan, first=first)}
        lowered: Any = SimpleNamespace(plan=plan)
        made: Any = SimpleNamespace(failed=((lowered, wrong),), refused=(), left_out=(), proven=())
        context: Any = SimpleNamespace(profile=load_profile("edge"))
        state: Any = SimpleNamespace(context=context)
        _, (refusal,) = drop_failed(forms, made, state)
        codes = {each.code for each in refusal.every()}
        assert (code in codes) == (refused == "fail")
        assert {"AOTC-N001", "AOTC-M002"} <= codes


def replaced(error: AotcError, also: AotcError) -> AotcError:
    """`error`, with another one in place of its further ones."""
    return AotcError(error.code, error.what, also=(also,))


def test_an_error_of_another_kind_ends_it() -> None:
    assert following(PLAN, (FUSED,), "AOTC-P003") is None
