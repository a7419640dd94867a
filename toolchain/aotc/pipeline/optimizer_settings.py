"""What the optimizer is told for a variant: operator set, level, layout, fusion for CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import onnx

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.convert_opset import ConvertOpset, choose_opset, opset_of
from aotc.graph.passes.name_nodes import NameNodes
from aotc.pipeline.context import BuildContext, BuildState, requested_backend
from aotc.pipeline.types import SpecializedModel, VariantPlan
from aotc.precision.half_types import HALF_TYPES
from aotc.providers.base import Backend, Claims
from aotc.providers.named_backends import backend_of
from aotc.session.sessions import create_session
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Finding
from aotc.spec.providers import CPU
from aotc.spec.variant import Optimization, PassRecord, SessionSpec

FUSED: Final = "fused.onnx"
# A crash of the library, its time limit and its memory limit.
_SANDBOX: Final = frozenset({"AOTC-I013", "AOTC-I014", "AOTC-I015"})
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


# Fusion into operators that the first provider alone has fast kernels for.


def fuse(
    specialized: SpecializedModel, state: BuildState
) -> tuple[SpecializedModel, tuple[Finding, ...]]:
    """`specialized` with what its first provider fuses.

    What cannot be made, or does not load, is left as it is, with AOTC-O012.  Raises AOTC-O011 if
    the library of the rules is not installed.
    """
    plan, source = specialized.plan, specialized.analyzed.source
    if not may_fuse(plan, state.context):
        return specialized, ()
    folder = state.work / f"fuse-{plan.name}"
    try:
        value = state.workers.run(
            "aotc.pipeline.optimizer_settings:fusion_job",
            {
                "graph": str(specialized.graph),
                "weights": str(source.weights),
                "backend": plan.providers[0],
                "plugins": state.context.plugins(),
            },
            folder=folder,
            where=f"variant {plan.name}",
        ).value
    except AotcError as error:
        if error.code not in _SANDBOX:
            raise
        return specialized, (_not_fused(plan, error.line()),)
    if value["why_not"]:
        return specialized, (_not_fused(plan, value["why_not"]),)
    if not value["passes"]:
        return specialized, ()
    records = tuple(decode(PassRecord, item) for item in value["passes"])
    return (
        replace(specialized, graph=folder / FUSED, passes=(*specialized.passes, *records)),
        (),
    )


def may_fuse(plan: VariantPlan, context: BuildContext) -> bool:
    """Whether the variant's graph may be fused for its first provider."""
    first = backend_of(plan.providers[0], context.profile.plugins)
    return first.fuses(plan.cuda) and plan.optimization != "disable"


def _not_fused(plan: VariantPlan, why: str) -> Finding:
    """The finding AOTC-O012: the variant's graph is not fused."""
    return Finding(code="AOTC-O012", what=why[:500], where=f"variant {plan.name}")


def fusion_job(request: Json) -> Json:
    """In the worker: write the fused graph; no passes if nothing was found."""
    model = onnx.load(request["graph"], load_external_data=False)
    backend = requested_backend(request)
    weights = Path(request["weights"])
    try:
        fused, records = backend.fuse(model, weights)
    except AotcError:
        raise
    except Exception as error:
        # Rules of another project, on any graph.
        return {"passes": [], "why_not": f"a rule failed: {type(error).__name__}: {error}"[:300]}
    if not records:
        return {"passes": [], "why_not": ""}
    records += run_passes(fused, (NameNodes(),))
    Path(FUSED).write_bytes(fused.SerializeToString(deterministic=True))
    why_not = _without_kernel(model, fused, backend) or _does_not_load(fused, weights)
    return {"passes": [encode(item) for item in records], "why_not": why_not}


def _without_kernel(model: onnx.ModelProto, fused: onnx.ModelProto, backend: Backend) -> str:
    """What of the fused graph, and not of the model, would be left to the CPU."""
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
    specialized: SpecializedModel, state: BuildState
) -> tuple[SpecializedModel, tuple[Finding, ...]]:
    """`specialized` at the opset at which its first provider refuses the fewest nodes.

    Only providers whose kernels are known in advance are asked; the graph is unchanged if the
    model's own opset is as good as any, or the profile says `opset: keep`.
    """
    plan = specialized.plan
    if state.context.profile.opset == "keep" or plan.cpu_only:
        return specialized, ()
    folder = state.work / f"opset-{plan.name}"
    value = state.workers.run(
        "aotc.pipeline.optimizer_settings:opset_job",
        {
            "graph": str(specialized.graph),
            "backend": plan.providers[0],
            "plugins": state.context.plugins(),
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
