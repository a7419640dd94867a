"""Fusion for CUDA: attention, activations and normalizations as operators it has kernels for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import onnx

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.toolchain import PassRecord
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.profile import PluginSpec
from aotc.engine.named_backends import backend_of
from aotc.engine.session import create_session
from aotc.errors import AotcError, install_extra
from aotc.passes.base import run_passes
from aotc.passes.name_nodes import NameNodes
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import (
    SpecializedModel,
)
from aotc.stages.variant_plan import VariantPlan

FUSED: Final = "fused.onnx"
# Every pattern has one of these.
_MARKS: Final = frozenset(
    {"Attention", "Erf", "Gelu", "LayerNormalization", "RMSNormalization", "Softmax", "Tanh"}
)
# A crash of the library, its time limit and its memory limit.
_SANDBOX: Final = frozenset({"AOTC-I013", "AOTC-I014", "AOTC-I015"})


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
            "aotc.stages.optimizing.fusion:fusion_job",
            {
                "graph": str(specialized.graph),
                "weights": str(source.weights),
                "backend": plan.providers[0],
                "plugins": encode(dict(options.profile.plugins)),
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
        from aotc.passes.fuse_for_cuda import fuse
    except ImportError as error:
        raise AotcError(
            "AOTC-O011",
            "fusion for CUDA needs a library that is not installed",
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
    plugins = {name: decode(PluginSpec, spec) for name, spec in request["plugins"].items()}
    backend = backend_of(request["backend"], plugins)
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
