"""What the optimizer is told for a variant: operator set, level, layout, fusion for CUDA."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import onnx

from aotc.base.errors import AotcError, install_extra
from aotc.base.records import replace
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.convert_opset import ConvertOpset, choose_opset, opset_of
from aotc.graph.passes.name_nodes import NameNodes
from aotc.pipeline.options import BuildOptions, requested_backend
from aotc.pipeline.types import OptimizedModel, SpecializedModel, VariantPlan
from aotc.precision.half_types import HALF_TYPES
from aotc.providers.base import Claims
from aotc.session.sessions import create_session
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Finding
from aotc.spec.providers import CPU
from aotc.spec.variant import Optimization, PassRecord, SessionSpec

FUSED: Final = "fused.onnx"
# Every pattern has one of these.
_MARKS: Final = frozenset(
    {"Attention", "Erf", "Gelu", "LayerNormalization", "RMSNormalization", "Softmax", "Tanh"}
)
# A crash of the library, its time limit and its memory limit.
_SANDBOX: Final = frozenset({"AOTC-I013", "AOTC-I014", "AOTC-I015"})
_CONVOLUTIONS: Final = frozenset({"Conv", "FusedConv"})
# ONNX Runtime fails in cuDNN on some of these with channels last.
_TRANSPOSED: Final = "ConvTranspose"
# With fewer, as in a vision transformer that only cuts patches so, transposes cost what is gained.
_FEWEST: Final = 4
LowerLevel = Literal["extended", "basic", "disable"]
# EXTENDED omits the layout step, which depends on the CPU of the build host.
_WRITTEN: Final[Mapping[str, Optimization]] = {
    "baseline": "extended",
    "vnni": "extended",
    "host": "all",
}
# A portable variant takes the layout step at load; the host's variant already contains it.
_LOADED: Final[Mapping[str, Optimization]] = {"baseline": "all", "vnni": "all", "host": "disable"}
# The next level to try when a variant computes wrongly.
_LOWER: Final[Mapping[str, LowerLevel]] = {
    "auto": "extended",
    "extended": "basic",
    "basic": "disable",
}


# Fusion for CUDA: attention, activations and normalizations as operators it has kernels for.


def fuse_for_cuda(
    specialized: SpecializedModel, options: BuildOptions
) -> tuple[SpecializedModel, tuple[Finding, ...]]:
    """`specialized` with what can be fused, if CUDA is its first provider and it may be.

    What cannot be made, or does not load, is left as it is, with AOTC-O012.  Raises AOTC-O011 if
    the library of the rules is not installed.
    """
    plan, source = specialized.plan, specialized.analyzed.source
    if not may_fuse(plan):
        return specialized, ()
    folder = options.work / f"fuse-{plan.name}"
    try:
        value = options.workers.run(
            "aotc.pipeline.optimizer_settings:fusion_job",
            {
                "graph": str(specialized.graph),
                "weights": str(source.weights),
                "backend": plan.providers[0],
                "plugins": options.plugins(),
            },
            folder=folder,
            where=f"variant {plan.name}",
        ).value
    except AotcError as error:
        if error.code not in _SANDBOX:
            raise
        return specialized, (not_fused(plan, error.line()),)
    if value["why_not"]:
        return specialized, (not_fused(plan, value["why_not"]),)
    if not value["passes"]:
        return specialized, ()
    records = tuple(decode(PassRecord, item) for item in value["passes"])
    return (
        replace(specialized, graph=folder / FUSED, passes=(*specialized.passes, *records)),
        (),
    )


def may_fuse(plan: VariantPlan) -> bool:
    """Whether the variant's graph may be fused for CUDA."""
    return plan.on_cuda and plan.cuda.fusion == "auto" and plan.optimization != "disable"


def is_fused(specialized: SpecializedModel) -> bool:
    """Whether something was fused for CUDA."""
    return any(item.fused for item in specialized.passes)


def not_fused(plan: VariantPlan, why: str) -> Finding:
    """The finding AOTC-O012: the variant's graph is not fused."""
    return Finding(code="AOTC-O012", what=why[:500], where=f"variant {plan.name}")


def fusion_job(request: Json) -> Json:
    """In the worker: write the fused graph; no passes if nothing was found."""
    model = onnx.load(request["graph"], load_external_data=False)
    if not any(node.op_type in _MARKS for node in model.graph.node):
        return {"passes": [], "why_not": ""}
    try:
        from aotc.graph.passes.fuse_for_cuda import fuse
    except ImportError as error:
        raise AotcError(
            "AOTC-O011",
            "fusion for CUDA needs a package that is not installed",
            expected="onnxscript",
            found=str(error),
            fix=f"{install_extra('gpu')}, or set 'cuda: {{fusion: none}}' in the profile.",
        ) from None
    # The library reports each pattern that it does not match, and shapes that it cannot infer.
    logging.getLogger("onnxscript").setLevel(logging.CRITICAL)
    logging.getLogger("onnx_ir").setLevel(logging.CRITICAL)
    weights = Path(request["weights"])
    try:
        fused, records = fuse(model, weights)
    except Exception as error:
        # Rules of another project, on any graph.
        return {"passes": [], "why_not": f"a rule failed: {type(error).__name__}: {error}"[:300]}
    if not records:
        return {"passes": [], "why_not": ""}
    records += run_passes(fused, (NameNodes(),))
    Path(FUSED).write_bytes(fused.SerializeToString(deterministic=True))
    why_not = _without_kernel(model, fused, request) or _does_not_load(fused, weights)
    return {"passes": [encode(item) for item in records], "why_not": why_not}


def _without_kernel(model: onnx.ModelProto, fused: onnx.ModelProto, request: Json) -> str:
    """What of the fused graph, and not of the model, would be left to the CPU."""
    backend = requested_backend(request)
    before, after = backend.predict(model), backend.predict(fused)
    if before is None or after is None:
        return ""
    known = {refusal.node for refusal in before.refusals}
    new = [refusal for refusal in after.refusals if refusal.node not in known]
    return f"{backend.name} has no kernel: {new[0].node}: {new[0].reason}" if new else ""


def _does_not_load(fused: onnx.ModelProto, weights: Path) -> str:
    """Why ONNX Runtime does not load the fused graph; empty if it does."""
    try:
        create_session(
            fused.SerializeToString(),
            SessionSpec(optimization="disable"),
            providers=[CPU],
            weights_folder=weights,
        )
    except AotcError as error:
        return f"the fused graph does not load: {error.found}"
    return ""


# The layout of images on CUDA: channels last where convolutions are faster so.


def is_convolutional(ops: Iterable[str]) -> bool:
    """Whether nodes of these operators are four convolutions or more, and none is transposed."""
    names = [op.rpartition("::")[2] for op in ops]
    return sum(name in _CONVOLUTIONS for name in names) >= _FEWEST and _TRANSPOSED not in names


def may_change_layout(plan: VariantPlan, optimized: OptimizedModel) -> bool:
    """Whether the variant has channels last on CUDA, and not because the profile says so."""
    chosen = plan.on_cuda and plan.cuda.layout == "auto"
    return chosen and is_convolutional(op for _, op in optimized.nodes)


def channels_first(plan: VariantPlan, why: str) -> Finding:
    """The finding AOTC-O013: the variant's images have channels first."""
    return Finding(code="AOTC-O013", what=why[:500], where=f"variant {plan.name}")


# Levels of ONNX Runtime's optimizer: that of a variant's written graph, and that of its load.


def written_level(plan: VariantPlan) -> Optimization:
    """The level of the written graph; other providers do not know fused operators."""
    if not plan.cpu_only:
        return "disable" if plan.optimization == "disable" else "basic"
    return _WRITTEN[plan.isa] if plan.optimization == "auto" else plan.optimization


def load_level(plan: VariantPlan) -> Optimization:
    """The level at which a CPU-only session of the variant is created.

    Where weights are stored in half precision, BASIC folds the casts that make them float32.
    """
    if plan.isa == "host" and plan.optimization == "auto" and plan.precision in HALF_TYPES:
        return "basic"
    return _LOADED[plan.isa] if plan.optimization == "auto" else plan.optimization


def lower_level(plan: VariantPlan) -> LowerLevel | None:
    """The next level below the variant's; None if there is none."""
    return _LOWER.get(plan.optimization)


# The operator set that a variant's providers have kernels for, if the model's lacks some.


def convert_opset(
    specialized: SpecializedModel, options: BuildOptions
) -> tuple[SpecializedModel, tuple[Finding, ...]]:
    """`specialized` at the opset at which its first provider refuses the fewest nodes.

    Only providers whose kernels are known in advance are asked; the graph is unchanged if the
    model's own opset is as good as any, or the profile says `opset: keep`.
    """
    plan = specialized.plan
    if options.profile.opset == "keep" or plan.cpu_only:
        return specialized, ()
    folder = options.work / f"opset-{plan.name}"
    value = options.workers.run(
        "aotc.pipeline.optimizer_settings:opset_job",
        {
            "graph": str(specialized.graph),
            "backend": plan.providers[0],
            "plugins": options.plugins(),
        },
        folder=folder,
        where=f"variant {plan.name}",
    ).value
    if value is None:
        return specialized, ()
    finding = Finding(
        code="AOTC-O005",
        what=f"opset {value['from']} was converted to {value['to']}: {plan.providers[0]} refuses "
        f"{value['refused_before']} nodes at the one and {value['refused_after']} at the other",
        where=f"variant {plan.name}",
    )
    records = tuple(decode(PassRecord, record) for record in value["passes"])
    converted = replace(
        specialized, graph=folder / "converted.onnx", passes=(*specialized.passes, *records)
    )
    return converted, (finding,)


def opset_job(request: Json) -> Json:
    """In the worker: choose the opset, convert and write the graph; None if nothing is gained."""
    backend = requested_backend(request)
    model = onnx.load(request["graph"], load_external_data=False)
    before = backend.predict(model)
    if before is None or not before.refusals:
        return None

    def refused(candidate: onnx.ModelProto) -> int:
        claims: Claims | None = backend.predict(candidate)
        return len(claims.refusals) if claims is not None else 0

    wanted = choose_opset(model, refused)
    if wanted is None:
        return None
    own = opset_of(model)
    records = run_passes(model, (ConvertOpset(to=wanted), NameNodes()))
    Path("converted.onnx").write_bytes(model.SerializeToString(deterministic=True))
    return {
        "from": own,
        "to": wanted,
        "refused_before": len(before.refusals),
        "refused_after": refused(model),
        "passes": [encode(record) for record in records],
    }
